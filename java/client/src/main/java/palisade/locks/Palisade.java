package palisade.locks;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisURI;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.Lock;

/**
 * Has locks on one server with the Palisade module, or on several through a {@code palisade agent}. Any number of
 * threads may use it.
 * <p>
 * It has connections of its own: one for commands that are answered at once, and one for each wait. {@link #close()} it
 * at the end; a program that ends without it leaves its leases to run out.
 */
public final class Palisade implements AutoCloseable {

    private final Locking locking;

    private Palisade(Transport transport, Builder from) {
        Connections connections = new Connections(transport, from.answerWithin, from.executor);
        this.locking = new Locking(connections, from.defaults, from.listener);
    }

    /**
     * Opens the locks of a server. Nothing is sent yet.
     *
     * @param address {@code redis://[user:password@]host:port}, {@code rediss://…} or {@code unix:///path}
     * @return the locks
     */
    public static Palisade open(String address) {
        return builder(address).build();
    }

    /**
     * Begins to open the locks of a server, with other settings.
     *
     * @param address as of {@link #open}
     * @return the builder
     */
    public static Builder builder(String address) {
        return builder(Address.parse(address));
    }

    /**
     * Begins to open the locks of a server, with other settings.
     *
     * @param uri of one server, with how to encrypt and with whose credentials
     * @return the builder
     */
    public static Builder builder(RedisURI uri) {
        return new Builder(Address.checked(uri), null);
    }

    /**
     * Begins to open locks over another transport, as of tests.
     *
     * @param transport carries commands; it is closed with the locks
     * @return the builder
     */
    public static Builder over(Transport transport) {
        return new Builder(null, Objects.requireNonNull(transport, "transport"));
    }

    /** Settings of a {@link Palisade}. */
    public static final class Builder {

        private final RedisURI uri;

        private final Transport transport;

        private LockOptions defaults = LockOptions.defaults();

        private Duration answerWithin = Duration.ofSeconds(3);

        private Executor executor = new CompletableFuture<Void>().defaultExecutor();

        private ClientResources resources;

        private ClientOptions options = ClientOptions.create();

        private LockListener listener = new LockListener() {
        };

        private Builder(RedisURI uri, Transport transport) {
            this.uri = uri;
            this.transport = transport;
        }

        /**
         * Sets the options of locks that are given none.
         *
         * @param options the options
         * @return this
         */
        public Builder defaults(LockOptions options) {
            defaults = Objects.requireNonNull(options, "options");
            return this;
        }

        /**
         * Sets the server's time to answer, 3 s by default; waiting for a lock does not count.
         *
         * @param limit from 1 ms to a day
         * @return this
         */
        public Builder answerWithin(Duration limit) {
            answerWithin = LockOptions.within("answerWithin", limit, Duration.ofMillis(1), LockOptions.DAY);
            return this;
        }

        /**
         * Sets where futures are completed, and what depends on them runs: code there may block. The pool of
         * {@link CompletableFuture} by default. What the executor refuses, such as after its end, runs on a thread of the locks,
         * where it must not block.
         *
         * @param executor the executor
         * @return this
         */
        public Builder executor(Executor executor) {
            this.executor = Objects.requireNonNull(executor, "executor");
            return this;
        }

        /**
         * Sets the listener that receives the events of all locks, as for metrics.
         *
         * @param listener the listener
         * @return this
         */
        public Builder listener(LockListener listener) {
            this.listener = Objects.requireNonNull(listener, "listener");
            return this;
        }

        /**
         * Shares threads with other clients of Lettuce. The caller shuts them down.
         *
         * @param resources the resources
         * @return this
         */
        public Builder resources(ClientResources resources) {
            this.resources = Objects.requireNonNull(resources, "resources");
            return this;
        }

        /**
         * Takes how to encrypt and to connect from these options. Their rules for reconnecting and sending again do not
         * count.
         *
         * @param options the options of Lettuce
         * @return this
         */
        public Builder clientOptions(ClientOptions options) {
            this.options = Objects.requireNonNull(options, "options");
            return this;
        }

        /**
         * Opens the locks. Nothing is sent yet.
         *
         * @return the locks
         */
        public Palisade build() {
            return new Palisade(transport != null ? transport : new LettuceTransport(uri, resources, options, answerWithin), this);
        }

    }

    /**
     * Acquires a lock, waiting in turn if it is not free, and keeps it: its lease is extended until it is released.
     *
     * @param key the name of the lock
     * @return the held lock
     * @throws InterruptedException if the thread is interrupted: the wait is given up, and nothing stays behind
     */
    public LockHandle lock(String key) throws InterruptedException {
        return lock(key, locking.defaults);
    }

    /**
     * Acquires a lock.
     *
     * @param key the name of the lock
     * @param options how to wait, and how to keep it
     * @return the held lock
     * @throws InterruptedException if the thread is interrupted: the wait is given up, and nothing stays behind
     * @throws NotAcquiredException if it was not free in time
     * @see #lock(String)
     */
    public LockHandle lock(String key, LockOptions options) throws InterruptedException {
        return locking.take(key, List.of(), options);
    }

    /**
     * Acquires a lock.
     *
     * @param key the name of the lock
     * @param options how to wait, and how to keep it
     * @return the held lock; cancelling it, or completing it otherwise as {@link CompletableFuture#orTimeout} does, gives the
     *         wait up, and leaves nothing behind
     * @see #lock(String)
     */
    public CompletableFuture<LockHandle> lockAsync(String key, LockOptions options) {
        return locking.takeAsync(key, List.of(), options);
    }

    /**
     * Acquires a lock if it is free now.
     *
     * @param key the name of the lock
     * @return the held lock; empty if another owner has it
     * @throws InterruptedException if the thread is interrupted
     */
    public Optional<LockHandle> tryLock(String key) throws InterruptedException {
        return tryLock(key, locking.defaults);
    }

    /**
     * Acquires a lock if it is free now.
     *
     * @param key the name of the lock
     * @param options how to keep it; their wait does not count
     * @return the held lock; empty if another owner has it
     * @throws InterruptedException if the thread is interrupted
     */
    public Optional<LockHandle> tryLock(String key, LockOptions options) throws InterruptedException {
        return locking.tryTake(key, List.of(), options, Duration.ZERO);
    }

    /**
     * Acquires a lock together with other readers, for callers that do not change what it protects. Neither readers nor
     * writers pass an earlier waiter.
     *
     * @param key the name of the lock
     * @param options how to wait, and how to keep it
     * @return the held lock
     * @throws InterruptedException if the thread is interrupted: the wait is given up, and nothing stays behind
     */
    public LockHandle readLock(String key, LockOptions options) throws InterruptedException {
        return locking.take(key, List.of("SHARED"), options);
    }

    /**
     * Acquires a lock together with other readers.
     *
     * @param key the name of the lock
     * @return the held lock
     * @throws InterruptedException if the thread is interrupted
     * @see #readLock(String, LockOptions)
     */
    public LockHandle readLock(String key) throws InterruptedException {
        return readLock(key, locking.defaults);
    }

    /**
     * Acquires a lock together with other readers.
     *
     * @param key the name of the lock
     * @param options how to wait, and how to keep it
     * @return the held lock; cancelling it, or completing it otherwise, gives the wait up
     * @see #readLock(String, LockOptions)
     */
    public CompletableFuture<LockHandle> readLockAsync(String key, LockOptions options) {
        return locking.takeAsync(key, List.of("SHARED"), options);
    }

    /**
     * Returns a semaphore.
     *
     * @param key its name
     * @param limit the number of permits at a time, from 1 to 65 535
     * @return the semaphore
     */
    public Semaphore semaphore(String key, int limit) {
        return new Semaphore(locking, key, limit);
    }

    /**
     * Returns an election.
     *
     * @param name its name, which is that of its lock
     * @return the election
     */
    public Election election(String name) {
        return new Election(locking, name);
    }

    /**
     * Acquires several locks, all or none, waiting for each in turn.
     *
     * @param keys their names; one that is named twice is acquired once
     * @return the locks
     * @throws InterruptedException if the thread is interrupted: the wait is given up, and nothing stays behind
     * @see #lockAll(Collection, LockOptions)
     */
    public LockGroup lockAll(Collection<String> keys) throws InterruptedException {
        return lockAll(keys, locking.defaults);
    }

    /**
     * Acquires several locks, all or none, one after the other in the order of their bytes. So callers that acquire
     * several like this never wait for each other in a circle; that holds only for callers without other locks.
     *
     * @param keys their names; one that is named twice is acquired once
     * @param options how to wait for all together, and how to keep each
     * @return the locks
     * @throws InterruptedException if the thread is interrupted: the wait is given up, and nothing stays behind
     * @throws NotAcquiredException of the first one that was not free in time
     * @throws LockLostException if one was lost while another was waited for
     */
    public LockGroup lockAll(Collection<String> keys, LockOptions options) throws InterruptedException {
        return LockGroup.acquire(locking, keys, options);
    }

    /**
     * Takes over a lock that another program has handed over, and keeps it.
     *
     * @param from what {@link LockHandle#handOver()} returned there
     * @return the held lock
     * @throws LockLostException if the lock was no longer held with that token
     */
    public LockHandle adopt(HandOver from) {
        return adopt(from, locking.defaults);
    }

    /**
     * Takes over a lock that another program has handed over, and keeps it: who enqueues a job takes the lock, and the
     * worker releases it. The lock must be exclusive.
     *
     * @param from what {@link LockHandle#handOver()} returned there
     * @param options how to keep it; their wait and their note do not count
     * @return the held lock
     * @throws LockLostException if the lock was no longer held with that token
     */
    public LockHandle adopt(HandOver from, LockOptions options) {
        return Waits.join(locking.adopt(from, options));
    }

    /**
     * Takes over a lock that another program has handed over, and keeps it.
     *
     * @param from what {@link LockHandle#handOver()} returned there
     * @param options how to keep it
     * @return the held lock; if the caller cancels this, or completes it otherwise, the lock is left to be adopted again until
     *         its lease ends
     * @see #adopt(HandOver, LockOptions)
     */
    public CompletableFuture<LockHandle> adoptAsync(HandOver from, LockOptions options) {
        CompletableFuture<LockHandle> lock = locking.adopt(from, options);
        return Waits.forCaller(lock, locking.connections.callers, () -> lock.thenAccept(LockHandle::abandon));
    }

    /**
     * Acquires both locks of a resource, while programs move from another library to this one: in every program the old one first.
     *
     * @param old the old lock
     * @param key the name of the new one; another name than that of the old one, if both are on one server
     * @param options how to wait for both together, and how to keep the new one
     * @return both locks
     * @throws InterruptedException if the thread is interrupted: neither stays held
     * @throws NotAcquiredException if one was not free in time; then neither is held
     */
    public DualLock lockBoth(Lock old, String key, LockOptions options) throws InterruptedException {
        return DualLock.acquire(Objects.requireNonNull(old, "old"), locking, key, options);
    }

    /**
     * Work under a lock.
     *
     * @param <T> what it returns
     * @param <E> what it throws
     */
    @FunctionalInterface
    public interface Work<T, E extends Exception> {

        /**
         * Does the work.
         *
         * @param lock the held lock
         * @return what the work returns
         * @throws E if the work fails
         */
        T run(LockHandle lock) throws E;

    }

    /**
     * Runs work if the lock is free, and skips it otherwise. The lock stays held for at least {@code minHold} from its
     * grant, even if the work takes less: so hosts whose clocks differ by less than that do not run one job twice. The
     * call does not wait for that time: the release follows in the background. Longer work runs under a lock that is
     * extended as usual.
     *
     * @param <T> what the work returns
     * @param <E> what it throws
     * @param key the name of the job
     * @param minHold from 100 ms to the server's {@code lock.max-ttl}
     * @param work what is done once
     * @return what the work returned; empty if it was skipped, or returned {@code null}
     * @throws E if the work fails
     * @throws InterruptedException if the thread is interrupted before the work
     * @throws LockLostException if the lock was lost before the work had ended
     */
    public <T, E extends Exception> Optional<T> once(String key, Duration minHold, Work<T, E> work)
            throws E, InterruptedException {
        Objects.requireNonNull(work, "work");
        Duration least = LockOptions.within("minHold", minHold, LockOptions.TTL_LEAST, LockOptions.DAY);
        Optional<LockHandle> lock = locking.tryTake(key, List.of(), locking.defaults, least);
        if (lock.isEmpty()) {
            return Optional.empty();
        }
        T result;
        try {
            result = work.run(lock.get());
        } catch (Throwable e) {
            try {
                lock.get().closeNotBefore(least);
            } catch (PalisadeException also) {
                e.addSuppressed(also);
            }
            throw e;
        }
        lock.get().closeNotBefore(least);
        return Optional.ofNullable(result);
    }

    /**
     * Releases all held locks (they are lost: {@link LossReason#CLOSED}), ends all waits with {@link ClosedException},
     * and closes the connections once the server has answered.
     */
    @Override
    public void close() {
        locking.close();
    }

    static String checkKey(String key) {
        return Objects.requireNonNull(key, "key");
    }

}
