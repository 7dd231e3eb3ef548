package palisade.locks;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Acquires one lock: asks once, then waits in the queue on a connection of its own. However it ends, also by
 * {@link #cancel}, it leaves neither a lock nor a place in the queue behind: both are given back in the background.
 */
final class Attempt {

    private static final System.Logger LOGGER = System.getLogger(Attempt.class.getName());

    /** A wait without a limit ends after the server has been unreachable for this long. */
    private static final long LOOKED_FOR = TimeUnit.SECONDS.toNanos(10);

    private static final long LOOK_AGAIN = TimeUnit.MILLISECONDS.toNanos(200);

    /** A request that was pending for longer before it failed shows that the server was reachable until then. */
    private static final long STOOD = TimeUnit.SECONDS.toNanos(1);

    /** The longest wait of one request. */
    private static final long WAIT_MAX = LockOptions.DAY.toNanos();

    /**
     * A granted lock.
     *
     * @param token the fencing token
     * @param number of a permit; 0 of other locks
     * @param validUntil until when it may be relied on
     */
    record Grant(long token, int number, long validUntil) {
    }

    private final Connections connections;

    private final Releasing releasing;

    private final Acquisition wanted;

    /** The words of the command that name the mode and the note. */
    private final List<String> words;

    /** The limit of the wait, in ns; {@link Clock#NEVER} without one. */
    private final long wait;

    private final long by;

    private final CompletableFuture<Grant> result = new CompletableFuture<>();

    /** Whether the result is decided. What the attempt leaves behind is given back before {@link #result} completes. */
    private boolean decided;

    /** The request whose answer has not arrived. */
    private Releasing.UnderWay underWay;

    /** Whether a request had no answer: the server may still grant it, even if it refused a later one. */
    private boolean unsure;

    /** Whether something may be left on the server to release. */
    private boolean mayRemain;

    /** The obstacle when the server was last asked. */
    private Throwable trouble;

    private long troubleSince = Clock.NEVER;

    Attempt(Connections connections, Releasing releasing, Acquisition wanted, List<String> words, long wait) {
        this.connections = connections;
        this.releasing = releasing;
        this.wanted = wanted;
        this.words = words;
        this.wait = wait;
        this.by = wait == Clock.NEVER ? Clock.NEVER : Clock.in(wait);
    }

    CompletableFuture<Grant> run() {
        connections.transport.prepare().thenRun(() -> ask(false));
        return result;
    }

    /** Gives the attempt up, with the failure that its caller gets. */
    void cancel(Throwable cause) {
        Releasing.UnderWay left;
        boolean remains;
        synchronized (this) {
            if (decided) {
                return;
            }
            decided = true;
            left = underWay;
            underWay = null;
            remains = mayRemain;
        }
        if (left != null || remains) {
            releasing.giveBack(wanted, left);
        }
        result.completeExceptionally(cause);
    }

    private synchronized boolean isDecided() {
        return decided;
    }

    /** Asks without waiting: most locks are free. */
    private void ask(boolean broken) {
        send(null, connections.answerWithin, List.of(), (grant, failure) -> {
            if (failure == null) {
                if (grant != null) {
                    granted(grant);
                } else if (wait == 0) {
                    refuse(NotAcquiredException.Reason.HELD);
                } else {
                    waitInQueue();
                }
                return;
            }
            long pause = Refusals.passesIn(failure);
            if (pause >= 0 && Clock.now() + pause < by) {
                pause(pause, () -> ask(broken));
            } else if (Refusals.isBroken(failure) && !broken) {
                // The connection may have ended long ago: a new one is tried once.
                ask(true);
            } else if (Clock.now() >= by || Refusals.isLasting(failure)) {
                fail(failure);
            } else {
                awaitEndOf(failure);
                waitInQueue();
            }
        });
    }

    /** Remembers trouble, which is the failure if nothing else happens before the end of the wait. */
    private void awaitEndOf(Throwable failure) {
        trouble = failure;
        // The server may be just as silent on the idle connections.
        if (failure instanceof UnavailableException) {
            connections.destroyIdle();
        }
        LOGGER.log(System.Logger.Level.WARNING, "{0} cannot be asked for, and is waited for: {1}",
                Note.printable(wanted.key()), failure.getMessage());
    }

    private void waitInQueue() {
        long left = Math.min(by - Clock.now(), WAIT_MAX);
        if (left <= 0) {
            if (trouble != null) {
                fail(trouble);
            } else {
                refuse(NotAcquiredException.Reason.TIMED_OUT);
            }
            return;
        }
        long asked = Clock.now();
        connections.forWait().whenComplete((connection, thrown) -> {
            if (thrown != null) {
                troubled(Refusals.unwrap(thrown), asked);
            } else if (isDecided()) {
                connections.giveIdle(connection);
            } else {
                waitOn(connection, left, asked);
            }
        });
    }

    private void waitOn(Transport.Connection connection, long left, long asked) {
        Duration limit = Duration.ofNanos(left).plus(connections.answerWithin);
        send(connection, limit, List.of("WAIT", String.valueOf(Clock.toMillis(left))), (grant, failure) -> {
            connections.giveIdle(connection);
            if (failure != null) {
                troubled(failure, asked);
                return;
            }
            troubleSince = Clock.NEVER;
            trouble = null;
            if (grant == null) {
                waitInQueue();
            } else if (grant.validUntil() - Clock.now() >= wanted.ttl() / 2) {
                granted(grant);
            } else {
                // After a long wait the clocks may have drifted apart, and this program may have slept. So the lock is requested
                // again, since the new lease counts from now.
                synchronized (this) {
                    unsure = true;
                }
                ask(false);
            }
        });
    }

    /** Decides what follows a failure of a request that waits. */
    private void troubled(Throwable failure, long asked) {
        long pause = Refusals.passesIn(failure);
        if (pause < 0) {
            if (endsWait(failure)) {
                fail(failure);
                return;
            }
            long now = Clock.now();
            if (troubleSince == Clock.NEVER || now - asked > STOOD) {
                troubleSince = now;
            }
            if (by == Clock.NEVER && now - troubleSince > LOOKED_FOR) {
                fail(failure);
                return;
            }
            pause = LOOK_AGAIN;
        }
        trouble = failure;
        pause(Math.min(pause, by - Clock.now()), this::waitInQueue);
    }

    /**
     * Reports whether a failure ends the wait at once. An agent waits for nodes itself, so NOQUORUM is final; but it searches only
     * once for a grant that this owner may already have: if there may be one, the wait goes on.
     */
    private boolean endsWait(Throwable failure) {
        return Refusals.isLasting(failure) || failure instanceof NoQuorumException && !unsure;
    }

    /** Receives a grant, Null where the lock is not this owner's, or a failure. */
    private interface Then {

        void accept(Grant grant, Throwable failure);

    }

    private void send(Transport.Connection connection, Duration limit, List<String> more, Then then) {
        List<String> command = new ArrayList<>(List.of("LOCK.ACQUIRE", wanted.key(), wanted.owner(),
                String.valueOf(Clock.toMillis(wanted.ttl()))));
        command.addAll(words);
        command.addAll(more);
        command.add("RETRY");
        Releasing.UnderWay sent;
        // The lease is counted from before the request was sent.
        long sentAt = Clock.now();
        CompletableFuture<Object> came;
        synchronized (this) {
            if (decided) {
                if (connection != null) {
                    connections.giveIdle(connection);
                }
                return;
            }
            came = connection == null ? connections.transport.send(command, limit) : connection.send(command, limit);
            sent = new Releasing.UnderWay(connection, came);
            underWay = sent;
        }
        came.whenComplete((reply, thrown) -> {
            synchronized (this) {
                if (underWay != sent) {
                    // A cancellation has taken the request over.
                    return;
                }
                underWay = null;
                // Any reply but Null is a grant, as far as is known.
                mayRemain |= reply != null;
            }
            read(reply, thrown, sentAt, then);
        });
    }

    private void read(Object reply, Throwable thrown, long sentAt, Then then) {
        Grant grant = null;
        Throwable failure = thrown == null ? null : Refusals.unwrap(thrown);
        if (failure != null) {
            synchronized (this) {
                unsure |= failure instanceof UnavailableException;
                mayRemain |= !Refusals.isRefusal(failure);
            }
        } else if (reply != null) {
            try {
                Replies.Granted granted = Replies.toGranted(reply);
                grant = new Grant(granted.token(), granted.number(), Clock.validUntil(sentAt, granted.waited(), wanted.ttl()));
            } catch (UnexpectedReplyException e) {
                failure = e;
            }
        }
        then.accept(grant, failure);
    }

    private void pause(long nanos, Runnable then) {
        connections.after(Math.max(nanos, 1_000_000), () -> {
            if (!isDecided()) {
                then.run();
            }
        });
    }

    private void granted(Grant grant) {
        if (grant.validUntil() <= Clock.now()) {
            fail(new NotAcquiredException(NotAcquiredException.Reason.TOO_LATE, 0, null));
            return;
        }
        synchronized (this) {
            if (decided) {
                return;
            }
            decided = true;
        }
        result.complete(grant);
    }

    private void fail(Throwable failure) {
        cancel(failure);
    }

    /** Asks who has the lock, and fails with the exception that says so. */
    private void refuse(NotAcquiredException.Reason reason) {
        connections.send(List.of("LOCK.INFO", wanted.key())).whenComplete((reply, failure) -> {
            Holder holder = null;
            try {
                holder = failure == null ? Replies.toHolder(reply).orElse(null) : null;
            } catch (UnexpectedReplyException ignored) {
                // The refusal is sure without it.
            }
            fail(new NotAcquiredException(reason, wait, holder));
        });
    }

}
