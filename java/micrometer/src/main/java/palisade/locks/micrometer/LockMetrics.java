package palisade.locks.micrometer;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import palisade.locks.ClosedException;
import palisade.locks.GuardedException;
import palisade.locks.LockListener;
import palisade.locks.LossReason;
import palisade.locks.NoQuorumException;
import palisade.locks.NotAcquiredException;
import palisade.locks.ServerException;
import palisade.locks.UnavailableException;

/**
 * Counts locks in a registry of Micrometer, under the names of the crate for Rust, as Prometheus shows them:
 * {@code palisade_client_acquisitions_total}, {@code palisade_client_wait_seconds}, {@code palisade_client_held},
 * {@code palisade_client_hold_seconds}, {@code palisade_client_extensions_total} and {@code palisade_client_losses_total}. Their
 * tags are {@code class}, {@code mode}, {@code outcome} and {@code reason}. No name of a lock is a tag: they are unlimited.
 */
public final class LockMetrics implements LockListener {

    private final MeterRegistry registry;

    private final Map<Kind, AtomicLong> held = new ConcurrentHashMap<>();

    /**
     * Creates a listener for {@code Palisade.builder(…).listener(…)}.
     *
     * @param registry counts
     */
    public LockMetrics(MeterRegistry registry) {
        this.registry = Objects.requireNonNull(registry, "registry");
    }

    @Override
    public void acquired(Kind kind, Duration waited) {
        ended(kind, waited, "granted");
        heldOf(kind).incrementAndGet();
    }

    @Override
    public void failed(Kind kind, Duration waited, Throwable failure) {
        ended(kind, waited, outcome(failure));
    }

    private void ended(Kind kind, Duration waited, String outcome) {
        Tags tags = tags(kind).and("outcome", outcome);
        registry.counter("palisade.client.acquisitions", tags).increment();
        registry.timer("palisade.client.wait", tags).record(waited);
    }

    @Override
    public void extended(Kind kind, boolean extended) {
        registry.counter("palisade.client.extensions", tags(kind).and("outcome", extended ? "extended" : "failed")).increment();
    }

    @Override
    public void released(Kind kind, Duration heldFor) {
        heldOf(kind).decrementAndGet();
        registry.timer("palisade.client.hold", tags(kind)).record(heldFor);
    }

    @Override
    public void lost(Kind kind, Duration heldFor, LossReason reason) {
        released(kind, heldFor);
        registry.counter("palisade.client.losses", tags(kind).and("reason", word(reason))).increment();
    }

    private AtomicLong heldOf(Kind kind) {
        return held.computeIfAbsent(kind, one -> registry.gauge("palisade.client.held", tags(one), new AtomicLong()));
    }

    private static Tags tags(Kind kind) {
        return Tags.of("class", kind.lockClass(), "mode", word(kind.mode()));
    }

    private static String word(Enum<?> value) {
        return value.name().toLowerCase(Locale.ROOT);
    }

    private static String outcome(Throwable failure) {
        if (failure instanceof NotAcquiredException refused) {
            return switch (refused.reason()) {
                case HELD -> "contended";
                case TIMED_OUT -> "timed_out";
                case TOO_LATE -> "expired";
            };
        }
        if (failure instanceof GuardedException) {
            return "guarded";
        }
        if (failure instanceof NoQuorumException || failure instanceof UnavailableException) {
            return "no_quorum";
        }
        if (failure instanceof CancellationException || failure instanceof InterruptedException || failure instanceof ClosedException) {
            return "cancelled";
        }
        return failure instanceof ServerException refused && refused.code().equals("OWNED") ? "owned" : "refused";
    }

}
