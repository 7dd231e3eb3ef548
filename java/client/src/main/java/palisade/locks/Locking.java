package palisade.locks;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;

/** Acquires the locks of a {@link Palisade}, knows those that are held, and ends all of them. */
final class Locking {

    final Connections connections;

    final LockOptions defaults;

    private final Releasing releasing;

    private final Watching watching;

    private final Listening listening;

    private final Set<Held> held = new HashSet<>();

    private final Set<Attempt> attempts = new HashSet<>();

    private boolean closed;

    Locking(Connections connections, LockOptions defaults, LockListener listener) {
        this.connections = connections;
        this.releasing = new Releasing(connections);
        this.watching = new Watching(connections);
        this.defaults = defaults;
        this.listening = new Listening(listener);
        connections.transport.onTakenAway(this::takenAway);
    }

    /**
     * What is acquired.
     *
     * @param key the name of the lock
     * @param mode the words of the mode
     * @param options how to wait, and how to keep it
     * @param minHold the length of the first lease at least
     * @param flow the holder id, unless the options have one
     */
    record Wanted(String key, List<String> mode, LockOptions options, Duration minHold, String flow) {

        LockListener.Kind kind() {
            String first = mode.isEmpty() ? "" : mode.get(0);
            Mode of = first.equals("SHARED") ? Mode.SHARED : first.equals("LIMIT") ? Mode.PERMIT : Mode.EXCLUSIVE;
            return new LockListener.Kind(options.lockClass(), of);
        }

    }

    LockHandle take(String key, List<String> mode, LockOptions options) throws InterruptedException {
        Taking taking = begin(new Wanted(key, mode, options, Duration.ZERO, Note.flowOfThread()));
        return Waits.get(taking.lock, taking::giveUp);
    }

    Optional<LockHandle> tryTake(String key, List<String> mode, LockOptions options, Duration minHold)
            throws InterruptedException {
        LockOptions now = options.waitUpTo(Duration.ZERO);
        Taking taking = begin(new Wanted(key, mode, now, minHold, Note.flowOfThread()));
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
        Taking taking = begin(new Wanted(key, mode, options, Duration.ZERO, Note.newFlow()));
        return Waits.forCaller(taking.lock, connections.callers,
                () -> taking.giveUp(new CancellationException("the wait was given up")));
    }

    /** An acquisition under way, by one attempt after the other. */
    static final class Taking {

        /** An acquisition ends after this many consecutive grants that came too late. */
        private static final int TOO_LATE_MAX = 10;

        final CompletableFuture<LockHandle> lock;

        private final long by;

        private Attempt attempt;

        private int tries;

        private boolean givenUp;

        Taking(CompletableFuture<LockHandle> lock, long by) {
            this.lock = lock;
            this.by = by;
        }

        void giveUp(Throwable why) {
            Attempt last;
            synchronized (this) {
                givenUp = true;
                last = attempt;
            }
            last.cancel(why);
            // Nobody gets a lock that was granted before this, so it is released.
            lock.thenAccept(LockHandle::releaseAsync);
        }

        /** Returns the limit of the next attempt's wait, in ns. */
        long left() {
            return by == Clock.NEVER ? Clock.NEVER : Math.max(0, by - Clock.now());
        }

        /** Makes this the present attempt, unless the caller has given up. */
        synchronized boolean begins(Attempt next) {
            attempt = next;
            tries++;
            return !givenUp;
        }

        /** Returns whether to try again after this failure: a grant that came too late, before the wait is over. */
        synchronized boolean goesOnAfter(Throwable failure) {
            return failure instanceof NotAcquiredException e && e.reason() == NotAcquiredException.Reason.TOO_LATE
                    && tries < TOO_LATE_MAX && Clock.now() < by && !givenUp;
        }

    }

    Taking begin(Wanted wanted) {
        Palisade.checkKey(wanted.key());
        LockOptions options = wanted.options();
        String note = Note.withHolder(options.note(), options.holderId().orElse(wanted.flow()));
        List<String> words = new ArrayList<>(wanted.mode());
        if (!note.isEmpty()) {
            words.addAll(List.of("NOTE", note));
        }
        CompletableFuture<LockHandle> lock = new CompletableFuture<>();
        CompletableFuture<LockHandle> named = Waits.named(wanted.key(), lock);
        listenTo(named, wanted.kind());
        // Closing waits for this: what the attempt leaves on the server is given back before it ends.
        connections.inBackground(lock);
        long wait = options.waitLimit().map(Duration::toNanos).orElse(Clock.NEVER);
        Taking taking = new Taking(named, wait == Clock.NEVER ? Clock.NEVER : Clock.in(wait));
        attempt(taking, lock, wanted, words, wait);
        return taking;
    }

    private void attempt(Taking taking, CompletableFuture<LockHandle> lock, Wanted wanted, List<String> words, long wait) {
        long ttl = Math.max(wanted.options().ttl().toNanos(), wanted.minHold().toNanos());
        // The owner is new for each attempt, so that no one mistakes another's grant for their own.
        Acquisition acquired = Acquisition.of(wanted.key(), ttl);
        Attempt attempt = new Attempt(connections, releasing, acquired, words, wait);
        if (!taking.begins(attempt) || !register(attempt)) {
            lock.completeExceptionally(new ClosedException());
            return;
        }
        attempt.run().whenComplete((grant, failure) -> {
            unregister(attempt);
            if (failure == null) {
                keep(lock, acquired, grant, wanted);
            } else if (taking.goesOnAfter(Refusals.unwrap(failure))) {
                attempt(taking, lock, wanted, words, taking.left());
            } else {
                lock.completeExceptionally(Refusals.unwrap(failure));
            }
        });
    }

    private void listenTo(CompletableFuture<LockHandle> lock, LockListener.Kind kind) {
        long began = Clock.now();
        lock.whenComplete((taken, failure) -> {
            Duration waited = Duration.ofNanos(Clock.now() - began);
            listening.report(failure == null ? to -> to.acquired(kind, waited)
                    : to -> to.failed(kind, waited, Refusals.unwrap(failure)));
        });
    }

    private synchronized boolean register(Attempt attempt) {
        return !closed && attempts.add(attempt);
    }

    private synchronized void unregister(Attempt attempt) {
        attempts.remove(attempt);
    }

    /** Takes over a lock of this owner, if it has this token or a larger one: behind an agent a token can rise. */
    CompletableFuture<LockHandle> adopt(HandOver from, LockOptions options) {
        String key = from.key();
        Acquisition adopted = new Acquisition(key, from.owner(), options.ttl().toNanos());
        Wanted wanted = new Wanted(key, List.of(), options, Duration.ZERO, "");
        long sent = Clock.now();
        String ttl = String.valueOf(options.ttl().toMillis());
        CompletableFuture<LockHandle> lock = new CompletableFuture<>();
        CompletableFuture<LockHandle> named = Waits.named(key, lock);
        listenTo(named, wanted.kind());
        connections.ask(connections.answerWithin.toNanos(), List.of("LOCK.EXTEND", key, from.owner(), ttl))
                .whenComplete((answer, thrown) -> {
                    try {
                        if (thrown != null) {
                            throw Refusals.unwrap(thrown);
                        }
                        long current = answer.reply() == null ? 0 : Replies.toInteger(answer.reply());
                        if (current < from.token()) {
                            String detail = current == 0 ? "" : "its token is " + current;
                            throw new LockLostException(new Loss(LossReason.TAKEN_AWAY, detail));
                        }
                        long until = Clock.validUntil(sent, 0, adopted.ttl());
                        keep(lock, adopted, new Attempt.Grant(current, 0, until), wanted);
                    } catch (Throwable failure) {
                        lock.completeExceptionally(failure);
                    }
                });
        return connections.inBackground(named);
    }

    /** Keeps a granted lock from now on. */
    private void keep(CompletableFuture<LockHandle> lock, Acquisition acquired, Attempt.Grant grant, Wanted wanted) {
        Held kept = new Held(connections, acquired, grant, modeOfGate(wanted.mode(), grant), wanted.options(),
                new Held.Outside(this::forget, listening, wanted.kind()));
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

    void close() {
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
