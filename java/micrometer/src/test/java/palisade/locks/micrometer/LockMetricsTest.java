package palisade.locks.micrometer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import palisade.locks.LockHandle;
import palisade.locks.LockOptions;
import palisade.locks.NotAcquiredException;
import palisade.locks.Palisade;
import palisade.locks.testing.LocksInMemory;

class LockMetricsTest {

    private static final LockOptions ORDERS = LockOptions.defaults().lockClass("orders");

    private final MeterRegistry registry = new SimpleMeterRegistry();

    private final LocksInMemory server = new LocksInMemory();

    private final Palisade locks = server.builder().listener(new LockMetrics(registry)).build();

    private void awaitAcquisition(String outcome) throws InterruptedException {
        awaitCounted("acquisitions", "class", "orders", "mode", "exclusive", "outcome", outcome);
    }

    /** Waits until this was counted once: it is counted when its caller may know already. */
    private void awaitCounted(String what, String... tags) throws InterruptedException {
        await(what + " of " + List.of(tags), () -> {
            Counter counter = registry.find("palisade.client." + what).tags(tags).counter();
            return counter != null && counter.count() == 1;
        });
    }

    private static void await(String what, BooleanSupplier condition) throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < until, what);
            Thread.sleep(5);
        }
    }

    private double held() {
        return registry.get("palisade.client.held").tags("class", "orders", "mode", "exclusive").gauge().value();
    }

    @Test
    void whatHappensToLocksIsCounted() throws Exception {
        LockHandle lock = locks.lock("orders:1", ORDERS);
        awaitAcquisition("granted");
        await("a lock is held", () -> held() == 1);
        assertEquals(1, registry.get("palisade.client.wait").tag("outcome", "granted").timer().count());
        locks.tryLock("orders:1", ORDERS);
        awaitAcquisition("contended");
        LockOptions brief = ORDERS.waitUpTo(Duration.ofMillis(20));
        assertThrows(NotAcquiredException.class, () -> locks.lock("orders:1", brief));
        awaitAcquisition("timed_out");
        CompletableFuture<LockHandle> waiting = locks.lockAsync("orders:1", ORDERS);
        waiting.cancel(true);
        awaitAcquisition("cancelled");
        lock.close();
        await("no lock is held", () -> held() == 0);
        await("the hold is counted", () -> registry.find("palisade.client.hold").timer() != null);
        locks.close();
    }

    @Test
    void aLossIsCountedWithItsReason() throws Exception {
        LockHandle lock = locks.readLock("orders:1", ORDERS);
        server.takeAway("orders:1");
        assertFalse(lock.isValid());
        awaitCounted("losses", "class", "orders", "mode", "shared", "reason", "taken_away");
        assertEquals(0, registry.get("palisade.client.held").gauge().value());
        locks.close();
    }

    @Test
    void extensionsAreCounted() throws Exception {
        LockHandle lock = locks.lock("orders:1", ORDERS.ttl(Duration.ofSeconds(2)));
        awaitCounted("extensions", "class", "orders", "mode", "exclusive", "outcome", "extended");
        lock.release();
        locks.close();
    }

}
