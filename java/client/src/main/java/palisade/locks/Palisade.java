package palisade.locks;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisURI;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

/**
 * Has locks on one server with the Palisade module, or on several through a {@code palisade agent}. Any number of threads may
 * use it.
 * <p>
 * It has connections of its own: one for commands that are answered at once, and one for each wait. {@link #close()} it at the
 * end; a program that ends without it leaves its leases to run out.
 */
public final class Palisade implements AutoCloseable {

    private final Connections connections;

    private final Releasing releasing;

    private final Watching watching;

    private final LockOptions defaults;

    private final Set<Held> held = new HashSet<>();

    private final Set<Attempt> attempts = new HashSet<>();

    private boolean closed;

    private Palisade(Transport transport, Builder from) {
        this.connections = new Connections(transport, from.answerWithin, from.executor);
        this.releasing = new Releasing(connections);
        this.watching = new Watching(connections);
        this.defaults = from.defaults;
        transport.onTakenAway(this::takenAway);
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
         * {@link CompletableFuture} by default.
         *
         * @param executor the executor
         * @return this
         */
        public Builder executor(Executor executor) {
            this.executor = Objects.requireNonNull(executor, "executor");
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
         * Takes how to encrypt and to connect from these options. Their rules for reconnecting and sending again do not count.
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
        return lock(key, defaults);
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
        return take(key, List.of(), options);
    }

    /**
     * Acquires a lock.
     *
     * @param key the name of the lock
     * @param options how to wait, and how to keep it
     * @return the held lock; cancelling it gives the wait up, and leaves nothing behind
     * @see #lock(String)
     */
    public CompletableFuture<LockHandle> lockAsync(String key, LockOptions options) {
        return takeAsync(key, List.of(), options);
    }

    /**
     * Acquires a lock if it is free now.
     *
     * @param key the name of the lock
     * @return the held lock; empty if another owner has it
     * @throws InterruptedException if the thread is interrupted
     */
    public Optional<LockHandle> tryLock(String key) throws InterruptedException {
        return tryLock(key, defaults);
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
        return tryTake(key, List.of(), options);
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
        return take(key, List.of("SHARED"), options);
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
        return readLock(key, defaults);
    }

    /**
     * Acquires a lock together with other readers.
     *
     * @param key the name of the lock
     * @param options how to wait, and how to keep it
     * @return the held lock; cancelling it gives the wait up
     * @see #readLock(String, LockOptions)
     */
    public CompletableFuture<LockHandle> readLockAsync(String key, LockOptions options) {
        return takeAsync(key, List.of("SHARED"), options);
    }

    /**
     * Returns a semaphore.
     *
     * @param key its name
     * @param limit the number of permits at a time, from 1 to 65 535
     * @return the semaphore
     */
    public Semaphore semaphore(String key, int limit) {
        return new Semaphore(this, key, limit);
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
     * Runs work if the lock is free, and skips it otherwise. The lock stays held for at least {@code minHold} from its grant,
     * even if the work takes less: so hosts whose clocks differ by less than that do not run one job twice. The call does not
     * wait for that time; the lease runs out by itself. Longer work runs under a lock that is extended as usual.
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
        Optional<LockHandle> lock = tryTake(key, List.of(), defaults, least);
        if (lock.isEmpty()) {
            return Optional.empty();
        }
        T result;
        try {
            result = work.run(lock.get());
        } catch (Throwable e) {
            try {
                lock.get().leaveUntil(least);
            } catch (PalisadeException also) {
                e.addSuppressed(also);
            }
            throw e;
        }
        lock.get().leaveUntil(least);
        return Optional.ofNullable(result);
    }

    LockOptions defaults() {
        return defaults;
    }

    LockHandle take(String key, List<String> mode, LockOptions options) throws InterruptedException {
        Taking taking = begin(key, mode, options, Duration.ZERO, Note.flowOfThread());
        return Waits.get(taking.lock, taking::giveUp);
    }

    Optional<LockHandle> tryTake(String key, List<String> mode, LockOptions options) throws InterruptedException {
        return tryTake(key, mode, options, Duration.ZERO);
    }

    private Optional<LockHandle> tryTake(String key, List<String> mode, LockOptions options, Duration minHold)
            throws InterruptedException {
        Taking taking = begin(key, mode, options.waitUpTo(Duration.ZERO), minHold, Note.flowOfThread());
        try {
            return Optional.of(Waits.get(taking.lock, taking::giveUp));
        } catch (NotAcquiredException e) {
            if (e.reason() == NotAcquiredException.Reason.HELD) {
                return Optional.empty();
            }
            throw e;
        }
    }

    CompletableFuture<LockHandle> takeAsync(String key, List<String> mode, LockOptions options) {
        Taking taking = begin(key, mode, options, Duration.ZERO, Note.newFlow());
        CompletableFuture<LockHandle> own = Waits.forCaller(taking.lock, connections.callers);
        own.whenComplete((lock, failure) -> {
            if (own.isCancelled()) {
                taking.giveUp(new CancellationException("the wait was given up"));
            }
        });
        return own;
    }

    private record Taking(Attempt attempt, CompletableFuture<LockHandle> lock) {

        void giveUp(Throwable why) {
            attempt.cancel(why);
            // A grant that came first belongs to nobody.
            lock.thenAccept(LockHandle::releaseAsync);
        }

    }

    private Taking begin(String key, List<String> mode, LockOptions options, Duration minHold, String flow) {
        Objects.requireNonNull(key, "key");
        Acquisition wanted = Acquisition.of(key, Math.max(options.ttl().toNanos(), minHold.toNanos()));
        String note = Note.withHolder(options.note(), options.holderId().orElse(flow));
        List<String> words = new ArrayList<>(mode);
        if (!note.isEmpty()) {
            words.addAll(List.of("NOTE", note));
        }
        Attempt attempt = new Attempt(connections, releasing, wanted, words,
                options.waitLimit().map(Duration::toNanos).orElse(Clock.NEVER));
        CompletableFuture<LockHandle> lock = new CompletableFuture<>();
        if (register(attempt)) {
            attempt.run().whenComplete((grant, failure) -> {
                unregister(attempt);
                if (failure != null) {
                    lock.completeExceptionally(Refusals.unwrap(failure));
                } else {
                    hold(lock, wanted, grant, mode, options);
                }
            });
        } else {
            lock.completeExceptionally(new ClosedException());
        }
        return new Taking(attempt, Waits.named(key, lock));
    }

    private synchronized boolean register(Attempt attempt) {
        return !closed && attempts.add(attempt);
    }

    private synchronized void unregister(Attempt attempt) {
        attempts.remove(attempt);
    }

    /** Keeps a granted lock from now on. */
    private void hold(CompletableFuture<LockHandle> lock, Acquisition acquired, Attempt.Grant grant, List<String> mode,
            LockOptions options) {
        Held kept = new Held(connections, acquired, grant, modeOfGate(mode, grant), options, this::forget);
        boolean late;
        synchronized (this) {
            late = closed;
            if (!late) {
                held.add(kept);
            }
        }
        if (late) {
            releasing.giveBack(acquired, null);
            lock.completeExceptionally(new ClosedException());
            return;
        }
        kept.keep();
        watching.watch(kept);
        lock.complete(new LockHandle(kept, connections, releasing));
    }

    /** Returns the mode as a gate knows it: a single permit is an exclusive lock there. */
    private static List<String> modeOfGate(List<String> mode, Attempt.Grant grant) {
        if (grant.number() == 0) {
            return mode;
        }
        return mode.get(1).equals("1") ? List.of() : List.of("PERMIT", String.valueOf(grant.number()));
    }

    private synchronized void forget(Held one) {
        held.remove(one);
    }

    private void takenAway(String key) {
        List<Held> all;
        synchronized (this) {
            all = held.stream().filter(one -> one.acquisition.key().equals(key)).toList();
        }
        all.forEach(one -> one.lose(LossReason.TAKEN_AWAY));
    }

    /**
     * Releases all held locks (they are lost: {@link LossReason#CLOSED}), ends all waits with {@link ClosedException}, and
     * closes the connections once the server has answered.
     */
    @Override
    public void close() {
        List<Held> all;
        List<Attempt> waits;
        synchronized (this) {
            closed = true;
            all = List.copyOf(held);
            waits = List.copyOf(attempts);
        }
        waits.forEach(attempt -> attempt.cancel(new ClosedException()));
        all.forEach(one -> {
            one.lose(LossReason.CLOSED);
            releasing.giveBack(one.acquisition, null);
        });
        connections.close();
    }

}
