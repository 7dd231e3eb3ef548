package palisade.locks;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;

/**
 * One leader among many candidates. The leader holds the lock of this name, and has proclaimed that. Its term is larger than that
 * of every earlier leader. A leader sends its term with each write to a shared resource, which refuses a term smaller than the
 * largest it has seen: a paused leader does not know yet that another one leads.
 */
public final class Election {

    private final Locking locks;

    private final String name;

    Election(Locking locks, String name) {
        this.locks = locks;
        this.name = Palisade.checkKey(name);
    }

    /**
     * Waits in turn until this candidate leads, and proclaims {@code value}.
     *
     * @param value of the leader, such as its address; at most 1002 bytes
     * @return the leadership
     * @throws InterruptedException if the thread is interrupted: the campaign is given up, and nothing stays behind
     * @see #campaign(String, LockOptions)
     */
    public Leadership campaign(String value) throws InterruptedException {
        return campaign(value, locks.defaults);
    }

    /**
     * Waits in turn until this candidate leads, and proclaims {@code value}. Every observer that asks afterwards sees this leader
     * or a later one.
     *
     * @param value of the leader, such as its address; at most 1002 bytes
     * @param options how to wait, and how to lead: without a limit, unless {@link LockOptions#maxHold} is set; their note does
     *        not count
     * @return the leadership
     * @throws InterruptedException if the thread is interrupted: the campaign is given up, and nothing stays behind
     */
    public Leadership campaign(String value, LockOptions options) throws InterruptedException {
        Campaign campaign = new Campaign(locks, name, value, options.ofLeader(), Note.flowOfThread());
        return Waits.get(Waits.named(name, campaign.run()), campaign::giveUp);
    }

    /**
     * Waits in turn until this candidate leads, and proclaims {@code value}.
     *
     * @param value of the leader, such as its address; at most 1002 bytes
     * @param options as of {@link #campaign(String, LockOptions)}
     * @return the leadership; cancelling it, or completing it otherwise, gives the campaign up
     */
    public CompletableFuture<Leadership> campaignAsync(String value, LockOptions options) {
        Campaign campaign = new Campaign(locks, name, value, options.ofLeader(), Note.newFlow());
        return Waits.forCaller(Waits.named(name, campaign.run()), locks.connections.callers,
                () -> campaign.giveUp(new CancellationException("the campaign was given up")));
    }

    /**
     * Returns the leader that the server reports now. It may have gone by the time this returns: send it nothing that must not be
     * done twice, unless with its term.
     *
     * @return the leader; empty if nobody leads
     * @throws GuardedException if the server may have forgotten who leads
     */
    public Optional<Leader> leader() {
        return Waits.join(asking());
    }

    /**
     * Returns the leader that the server reports now.
     *
     * @return the leader; empty if nobody leads
     * @see #leader()
     */
    public CompletableFuture<Optional<Leader>> leaderAsync() {
        return Waits.forCaller(asking(), locks.connections.callers);
    }

    private CompletableFuture<Optional<Leader>> asking() {
        Connections connections = locks.connections;
        long limit = connections.answerWithin.toNanos();
        return connections.inBackground(Waits.named(name, connections.ask(limit, List.of("LOCK.INFO", name))
                .thenCompose(answer -> remembered(connections, Leader.toState(answer.reply()))).thenApply(Leader.State::leader)));
    }

    /** Fails if the server has forgotten its grants, and so cannot report that nobody leads. */
    static CompletableFuture<Leader.State> remembered(Connections connections, Leader.State state) {
        if (state.token() > 0) {
            return CompletableFuture.completedFuture(state);
        }
        return connections.ask(connections.answerWithin.toNanos(), List.of("LOCK.NODE")).thenApply(answer -> {
            Object guard = Replies.toFields(answer.reply()).get("guard_ms");
            if (guard instanceof Long left && left > 0) {
                throw new GuardedException("GUARDED " + left + " the server may have forgotten who leads");
            }
            return state;
        });
    }

    /**
     * Begins to observe who leads. It takes one connection until it is closed, and does not poll.
     *
     * @return the observation
     */
    public Observation observe() {
        return new Observation(locks.connections, name);
    }

    /** Returns the options, limited to what is left of the wait. */
    static LockOptions until(LockOptions options, long by) {
        if (by == Clock.NEVER) {
            return options;
        }
        long left = Math.max(0, Clock.toMillis(by - Clock.now()));
        return options.waitUpTo(Duration.ofMillis(left));
    }

}
