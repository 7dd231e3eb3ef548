package palisade.locks;

import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongUnaryOperator;
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

    /** What {@link #lost} returned. */
    private CompletableFuture<Loss> lost;

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
     * @return the same future at each call, and a new one after a caller has completed it; it affects no other handle
     */
    public synchronized CompletableFuture<Loss> lost() {
        // A new one at each call would stay until the lock ends.
        if (lost == null || lost.isDone()) {
            lost = held.lost();
        }
        return lost;
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
        return forCaller(extending(ttl));
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
     * @return the handle; if the caller cancels this, or completes it otherwise, its hold is released
     * @see #reenter()
     */
    public CompletableFuture<LockHandle> reenterAsync() {
        CompletableFuture<LockHandle> inner = reentering();
        return Waits.forCaller(inner, connections.callers, () -> inner.thenAccept(LockHandle::releaseAsync));
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
     * Makes an exclusive lock a read lock: waiting readers get in, and the token stays. It is a reader's from the call on, also if
     * the server does not answer: the holder must not write any more.
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
        // Null is also the answer if the lock is no longer held: an extension shows which of the two it is.
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
            if (mode.equals("SHARED")) {
                // The server may let readers in although its answer is lost.
                held.becomeReader();
            }
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

    /** Replaces the note. {@code next} returns a sequence number that is larger than the one that is already there. */
    CompletableFuture<Void> noting(String note, LongUnaryOperator next) {
        return unlessReleased(() -> noteBehind(note, 0, next));
    }

    private CompletableFuture<Void> noteBehind(String note, long there, LongUnaryOperator next) {
        held.check();
        long number = next.applyAsLong(there);
        return asking(List.of("LOCK.NOTE", key(), owner(), note, "SEQ", String.valueOf(number))).thenCompose(reply -> {
            if (reply == null) {
                held.lose(LossReason.TAKEN_AWAY);
                held.check();
            }
            long current = Replies.toInteger(reply);
            // A later note is already there, so the server ignored this one: the next one has a larger number.
            return current == number ? CompletableFuture.completedFuture(null) : noteBehind(note, current, next);
        });
    }

    <T> CompletableFuture<T> forCaller(CompletableFuture<T> future) {
        return Waits.forCaller(future, connections.callers);
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
        return forCaller(releasing());
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
            throw lostException();
        }
        if (outcome == Release.UNKNOWN) {
            LOGGER.log(System.Logger.Level.WARNING, "the release of {0} was not answered: it is free when its lease ends, if not"
                    + " before", Note.printable(key()));
        }
    }

    /** Throws if the lock is no longer valid. */
    void check() {
        if (!isValid()) {
            throw lostException();
        }
    }

    private LockLostException lostException() {
        return (LockLostException) new LockLostException(held.loss()).of(key());
    }

    /**
     * Releases the lock as {@link #close()} does, but {@code least} after its grant at the earliest. A job that many hosts start is
     * so kept from running twice, if their clocks differ by less. The call does not wait: the release follows in the background,
     * and if the program ends before, the lease runs out. So the ttl must be {@code least} or longer.
     *
     * @param least the time from the grant
     * @throws LockLostException if the lock was lost before
     */
    public void closeNotBefore(Duration least) {
        synchronized (this) {
            long left = released == null ? held.leave(least.toNanos()) : 0;
            if (left > 0) {
                released = CompletableFuture.completedFuture(Release.HELD);
                connections.after(left, () -> releasing.giveBack(held.acquisition, null));
                return;
            }
        }
        close();
    }

    /**
     * Leaves the lock to another program: gives the lease its full length once more, and then neither extends nor releases it.
     * That program takes over by {@link Palisade#adopt(HandOver)}, before the lease ends. Re-entered handles end too.
     *
     * @return what the other program needs
     * @throws IllegalStateException if it is a reader's lock, or a permit
     */
    public HandOver handOver() {
        return Waits.join(handingOver());
    }

    /**
     * Leaves the lock to another program.
     *
     * @return what the other program needs
     * @see #handOver()
     */
    public CompletableFuture<HandOver> handOverAsync() {
        return forCaller(handingOver());
    }

    private CompletableFuture<HandOver> handingOver() {
        if (!held.mode().isEmpty()) {
            throw new IllegalStateException("only an exclusive lock can be handed over");
        }
        return Waits.named(key(), extending(Duration.ofNanos(held.acquisition.ttl())).thenApply(done -> {
            abandon();
            return new HandOver(key(), owner(), token());
        }));
    }

    /** Ends the extensions, and releases nothing. */
    synchronized void abandon() {
        if (released != null) {
            throw new ReleasedException();
        }
        held.abandon();
        released = CompletableFuture.completedFuture(Release.HELD);
    }

    /**
     * Returns a connection to the data whose commands pass a gate with the token of this lock: a server that has seen a newer
     * holder does not run them. {@code sync()}, {@code async()} and {@code reactive()} of it are those of Lettuce. Closing it
     * closes nothing. It has no transactions.
     * <p>
     * A refusal is a {@link FencedException} or a {@link LockLostException}: nothing was done, so stop. Of a lock that is known to
     * be lost, or was released, nothing is sent. Other errors are those of Lettuce.
     *
     * @param <K> the type of keys
     * @param <V> the type of values
     * @param data a connection to the server of the data, which needs the module
     * @param gate a gate there
     * @return the connection
     */
    public <K, V> StatefulRedisConnection<K, V> fenced(StatefulConnection<K, V> data, Gate gate) {
        return new FencedConnection<>(data, new Passing(this, held, gate));
    }

    synchronized boolean isReleased() {
        return released != null;
    }

}
