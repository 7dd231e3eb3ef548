package palisade.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/**
 * A held lock, for as long as it is valid. Check {@link #isValid()} before each step that must not happen without the lock,
 * and give {@link #token()} to the resource. It belongs to no thread: any may use it.
 * <p>
 * {@link #close()} gives the lock back, so that {@code try} with resources does.
 */
public final class LockHandle implements AutoCloseable {

    private static final System.Logger LOGGER = System.getLogger(LockHandle.class.getName());

    private final Held held;

    private final Connections connections;

    private final Releasing releasing;

    private CompletableFuture<Release> released;

    LockHandle(Held held, Connections connections, Releasing releasing) {
        this.held = held;
        this.connections = connections;
        this.releasing = releasing;
    }

    /**
     * Returns the name of the lock.
     *
     * @return the name
     */
    public String key() {
        return held.acquisition.key();
    }

    /**
     * Returns the name of this acquisition on the server: new and random. Anyone who knows it can release the lock.
     *
     * @return 32 hexadecimal digits
     */
    public String owner() {
        return held.acquisition.owner();
    }

    /**
     * Returns the fencing token: larger than that of every earlier holder, and below 2^53. It never falls, but behind a
     * {@code palisade agent} it can rise while the lock is held: read it at each use.
     *
     * @return the token
     */
    public long token() {
        return held.token();
    }

    /**
     * Returns the number of a permit, from 1 to the limit, which no other holder has meanwhile.
     *
     * @return the number; 0 of other locks
     */
    public int number() {
        return held.number;
    }

    /**
     * Returns for how long the lock may be relied on from now, counted on a clock that nobody sets, from before the server was
     * asked, less 1 % and 2 ms.
     *
     * @return the time; zero once it may not
     */
    public Duration validFor() {
        return isReleased() ? Duration.ZERO : Duration.ofNanos(held.validFor());
    }

    /**
     * Reports whether the lock may be relied on now. The clock decides at each call, not whether a timer has run.
     *
     * @return whether {@link #validFor()} is above zero
     */
    public boolean isValid() {
        return !validFor().isZero();
    }

    /**
     * Returns a future of the loss. A release cancels it. What depends on it runs on a thread of
     * {@link Palisade.Builder#executor}.
     *
     * @return a new future, which affects no other one
     */
    public CompletableFuture<Loss> lost() {
        return held.lost();
    }

    /** Extends the lease to the ttl of the lock from now. Not needed where the lock is extended in the background. */
    public void extend() {
        Waits.join(extending(Duration.ofNanos(held.acquisition.ttl())));
    }

    /**
     * Extends the lease to {@code ttl} from now. After {@link UnavailableException} the lock stays valid until its previous
     * end.
     *
     * @param ttl as of {@link LockOptions#ttl}
     */
    public void extend(Duration ttl) {
        Waits.join(extending(ttl));
    }

    /**
     * Extends the lease.
     *
     * @param ttl as of {@link LockOptions#ttl}
     * @return completed once the lease is extended
     * @see #extend(Duration)
     */
    public CompletableFuture<Void> extendAsync(Duration ttl) {
        return Waits.forCaller(extending(ttl), connections.callers);
    }

    private CompletableFuture<Void> extending(Duration ttl) {
        long nanos = LockOptions.checkTtl(ttl).toNanos();
        return unlessReleased(() -> held.extend(nanos, false));
    }

    /**
     * Returns another handle of this acquisition, for code that acquires a lock it may already hold. The lock is free once all
     * are released.
     *
     * @return the handle
     */
    public LockHandle reenter() {
        return Waits.join(reentering());
    }

    /**
     * Returns another handle of this acquisition.
     *
     * @return the handle
     * @see #reenter()
     */
    public CompletableFuture<LockHandle> reenterAsync() {
        return Waits.forCaller(reentering(), connections.callers);
    }

    private CompletableFuture<LockHandle> reentering() {
        return unlessReleased(() -> {
            held.check();
            LockHandle inner = new LockHandle(held, connections, releasing);
            List<String> words = List.of("LOCK.REENTER", key(), owner(), "LEVEL", String.valueOf(held.reenter()));
            return asking(words).thenApply(reply -> {
                if (reply == null) {
                    held.lose(LossReason.TAKEN_AWAY);
                }
                held.check();
                return inner;
            }).whenComplete((done, failure) -> {
                if (failure != null) {
                    inner.releaseAsync();
                }
            });
        });
    }

    /**
     * Makes an exclusive lock a read lock: waiting readers get in, and the token stays. The holder must not write from now on.
     */
    public void downgrade() {
        Waits.join(converting("SHARED", () -> {
            held.lose(LossReason.TAKEN_AWAY);
            held.check();
            return CompletableFuture.completedFuture(null);
        }));
    }

    /**
     * Makes a read lock exclusive, with a new token, if nobody shares it. It never waits, since two readers that both waited
     * to write would wait for ever. An agent refuses it.
     *
     * @throws NotAcquiredException if another reader has the lock; this one stays as it was
     */
    public void upgrade() {
        // Null is also the answer if the lock is no longer held: an extension tells.
        Waits.join(converting("EXCLUSIVE", () -> held.extend(held.acquisition.ttl(), false).thenApply(done -> {
            throw new NotAcquiredException(NotAcquiredException.Reason.HELD, 0, null);
        })));
    }

    private CompletableFuture<Void> converting(String mode, Supplier<CompletableFuture<Void>> onNull) {
        if (number() > 0) {
            throw new IllegalStateException("a permit has no readers and writers: release it, and acquire the lock");
        }
        return unlessReleased(() -> {
            held.check();
            return asking(List.of("LOCK.CONVERT", key(), owner(), mode)).thenCompose(reply -> {
                if (reply == null) {
                    return onNull.get();
                }
                held.converted(mode.equals("SHARED") ? List.of("SHARED") : List.of(), Replies.toInteger(reply));
                held.check();
                return CompletableFuture.completedFuture(null);
            });
        });
    }

    private CompletableFuture<Object> asking(List<String> words) {
        return connections.ask(connections.answerWithin.toNanos(), words).thenApply(Connections.Answer::reply);
    }

    private <T> CompletableFuture<T> unlessReleased(Supplier<CompletableFuture<T>> work) {
        CompletableFuture<T> done;
        try {
            done = isReleased() ? CompletableFuture.failedFuture(new ReleasedException()) : work.get();
        } catch (PalisadeException e) {
            done = CompletableFuture.failedFuture(e);
        }
        return connections.inBackground(Waits.named(key(), done));
    }

    /**
     * Releases the lock, and returns whether it was held until then. Later calls return the first outcome. A re-entered handle
     * releases one hold.
     *
     * @return the outcome
     */
    public Release release() {
        return Waits.join(releasing());
    }

    /**
     * Releases the lock.
     *
     * @return the outcome; it never fails
     * @see #release()
     */
    public CompletableFuture<Release> releaseAsync() {
        return Waits.forCaller(releasing(), connections.callers);
    }

    private synchronized CompletableFuture<Release> releasing() {
        if (released == null) {
            released = connections.inBackground(begin(held.takeOff()));
        }
        return released;
    }

    private CompletableFuture<Release> begin(Held.Hold hold) {
        if (hold.isLast() && !hold.wasValid()) {
            // The server may still hold the lock.
            releasing.giveBack(held.acquisition, null);
            return CompletableFuture.completedFuture(Release.LOST);
        }
        return releasing.release(held.acquisition, hold.level()).thenApply(outcome -> {
            if (hold.isLast() && outcome == Release.UNKNOWN) {
                releasing.giveBack(held.acquisition, null);
            }
            return hold.wasValid() ? outcome : Release.LOST;
        });
    }

    /**
     * Releases the lock at the end of a block.
     *
     * @throws LockLostException if it was lost before: the last steps may have been done without it. An unknown outcome is
     *         logged, since the work was done under a valid lock.
     */
    @Override
    public void close() {
        boolean before = isReleased();
        Release outcome = release();
        if (outcome == Release.LOST && !before) {
            throw (LockLostException) new LockLostException(held.loss()).of(key());
        }
        if (outcome == Release.UNKNOWN) {
            LOGGER.log(System.Logger.Level.WARNING, "the release of {0} was not answered: it is free when its lease ends, if not"
                    + " before", Note.printable(key()));
        }
    }

    /** Leaves the lock to the end of its lease if it was held for less than {@code least}; closes it otherwise. */
    void leaveUntil(Duration least) {
        synchronized (this) {
            if (released == null && held.leave(least.toNanos())) {
                released = CompletableFuture.completedFuture(Release.HELD);
                return;
            }
        }
        close();
    }

    /** Returns the words that say to a gate which grant this is. */
    List<String> mode() {
        return held.mode();
    }

    private synchronized boolean isReleased() {
        return released != null;
    }

}
