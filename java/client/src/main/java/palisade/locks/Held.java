package palisade.locks;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** A held acquisition, shared by all re-entered handles. It is extended by a timer, and ends in time. */
final class Held {

    final Acquisition acquisition;

    final int number;

    /** The words of the mode: of a gate, and of an acquisition. */
    private List<String> mode;

    private final Connections connections;

    private final Outside outside;

    private final CompletableFuture<Loss> lost = new CompletableFuture<>();

    private final Lease lease;

    private long token;

    private int holds = 1;

    /** Why it is no longer held: a {@link LockLostException} or a {@link ReleasedException}. */
    private PalisadeException end;

    private Runnable timer = () -> {
    };

    /**
     * The listeners of a held lock.
     *
     * @param forget is called at its end
     * @param listening receives the events that metrics count
     * @param kind its kind, for the listener
     */
    record Outside(Consumer<Held> forget, Listening listening, LockListener.Kind kind) {
    }

    Held(Connections connections, Acquisition acquisition, Attempt.Grant grant, List<String> mode, LockOptions options,
            Outside outside) {
        this.connections = connections;
        this.acquisition = acquisition;
        this.number = grant.number();
        this.token = grant.token();
        this.mode = mode;
        this.outside = outside;
        this.lease = new Lease(options.ttl().toNanos(), options.autoExtend(), options.maxHold(), grant.validUntil(),
                Clock.now());
    }

    synchronized void keep() {
        if (end == null) {
            timer.run();
            timer = connections.after(lease.sleep(Clock.now()), () -> wake(false));
        }
    }

    /** Ends the lock if its lease is over; otherwise extends it if that is due, or {@code asked} for. */
    void wake(boolean asked) {
        long ttl;
        synchronized (this) {
            long now = Clock.now();
            loseIfOver(now);
            if (end != null) {
                return;
            }
            if (!asked && !lease.isDue(now)) {
                keep();
                return;
            }
            ttl = lease.checkTtl(now);
        }
        extend(ttl, true).whenComplete((done, failure) -> {
            outside.listening.report(to -> to.extended(outside.kind, failure == null));
            keep();
        });
    }

    /** Requests a lease of {@code ttl} from now. */
    CompletableFuture<Void> extend(long ttl, boolean inBackground) {
        long limit;
        synchronized (this) {
            long now = Clock.now();
            loseIfOver(now);
            if (end != null) {
                return CompletableFuture.failedFuture(end);
            }
            limit = inBackground ? lease.answerWithin(now) : connections.answerWithin.toNanos();
        }
        long sent = Clock.now();
        List<String> words = List.of("LOCK.EXTEND", acquisition.key(), acquisition.owner(), String.valueOf(Clock.toMillis(ttl)));
        return connections.ask(limit, words).handle((answer, thrown) -> {
            extended(answer, thrown == null ? null : Refusals.unwrap(thrown), sent, ttl, inBackground);
            return null;
        });
    }

    private synchronized void extended(Connections.Answer answer, Throwable thrown, long sent, long ttl, boolean inBackground) {
        // An answer that arrives after the end of the lease does not revive a lock that was not valid meanwhile.
        loseIfOver(Clock.now());
        if (end == null && thrown == null && answer.reply() == null) {
            finish(new LockLostException(Loss.of(LossReason.TAKEN_AWAY)));
        }
        if (end != null) {
            throw end;
        }
        Throwable failure = thrown;
        if (failure == null) {
            try {
                token = Math.max(token, Replies.toInteger(answer.reply()));
                lease.extended(Clock.validUntil(sent, 0, ttl));
                return;
            } catch (UnexpectedReplyException e) {
                failure = e;
            }
        }
        if (inBackground) {
            lease.failed(Clock.now(), failure);
        }
        if (failure instanceof UnavailableException) {
            String left = Clock.shown(lease.validFor(Clock.now()));
            throw new UnavailableException("the lock was not extended, and stays valid for " + left + ": "
                    + failure.getMessage(), false, failure);
        }
        throw failure instanceof PalisadeException known ? known : new PalisadeException(failure.getMessage(), failure);
    }

    synchronized long token() {
        return token;
    }

    synchronized List<String> mode() {
        return mode;
    }

    /** Makes gates let it pass as a reader only. */
    synchronized void becomeReader() {
        mode = List.of("SHARED");
    }

    /** Notes another mode of the same lock. */
    synchronized void converted(List<String> other, long newToken) {
        mode = other;
        token = Math.max(token, newToken);
    }

    /** Returns for how long the lock may be relied on. The clock decides at each call, not whether a timer has run. */
    synchronized long validFor() {
        return end == null ? lease.validFor(Clock.now()) : 0;
    }

    /** Throws why the lock is no longer held, and notes it if its lease is over. */
    synchronized void check() {
        loseIfOver(Clock.now());
        if (end != null) {
            throw end;
        }
    }

    synchronized boolean isOver() {
        return end != null;
    }

    /** Returns the loss, of a lock that is no longer held. */
    synchronized Loss loss() {
        loseIfOver(Clock.now());
        return end instanceof LockLostException known ? known.loss() : Loss.of(LossReason.TAKEN_AWAY);
    }

    CompletableFuture<Loss> lost() {
        CompletableFuture<Loss> own = new CompletableFuture<>();
        lost.whenComplete((loss, released) -> {
            if (loss != null) {
                own.complete(loss);
            } else {
                own.cancel(false);
            }
        });
        return own;
    }

    synchronized int reenter() {
        return ++holds;
    }

    synchronized void lose(LossReason reason) {
        finish(new LockLostException(Loss.of(reason)));
    }

    /**
     * A hold that was taken off, and is to be released: its level, whether it is the last, and whether the lock was
     * valid.
     */
    record Hold(int level, boolean isLast, boolean wasValid) {
    }

    synchronized Hold takeOff() {
        boolean valid = end == null && lease.validFor(Clock.now()) > 0;
        int level = holds--;
        if (level == 1 && valid) {
            finish(new ReleasedException());
        } else {
            // The loss is reported even if no timer has run yet.
            loseIfOver(Clock.now());
        }
        return new Hold(level, level == 1, valid);
    }

    /**
     * Ends the extensions of a valid lock that was held for less than {@code least}. Returns what is left of that, in
     * ns, or 0.
     */
    synchronized long leave(long least) {
        long now = Clock.now();
        long left = least - (now - lease.since());
        if (end != null || lease.validFor(now) == 0 || left <= 0) {
            return 0;
        }
        finish(new ReleasedException());
        return left;
    }

    /** Ends the extensions of a valid lock, and leaves it to another program. Throws why it is no longer held. */
    synchronized void abandon() {
        check();
        finish(new ReleasedException());
    }

    private void loseIfOver(long now) {
        if (end == null) {
            Optional<Loss> over = lease.loss(now);
            over.ifPresent(loss -> finish(new LockLostException(loss)));
        }
    }

    /** Ends the extensions, for the first reason that is given. */
    private void finish(PalisadeException why) {
        if (end != null) {
            return;
        }
        end = why.of(acquisition.key());
        timer.run();
        outside.forget.accept(this);
        Duration heldFor = Duration.ofNanos(Clock.now() - lease.since());
        outside.listening.report(why instanceof LockLostException known
                ? to -> to.lost(outside.kind, heldFor, known.loss().reason()) : to -> to.released(outside.kind, heldFor));
        connections.callers.execute(() -> {
            if (why instanceof LockLostException known) {
                lost.complete(known.loss());
            } else {
                lost.cancel(false);
            }
        });
    }

}
