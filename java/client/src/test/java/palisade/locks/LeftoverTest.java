package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What stays behind of futures whose callers no longer wait for them. */
class LeftoverTest {

    private static final LockOptions MINUTE = LockOptions.defaults().ttl(Duration.ofMinutes(1));

    private static Node node;

    private static Palisade locks;

    private final String key = Node.newKey();

    private final String free = key + ":free";

    @BeforeEach
    void hold() {
        node.say("LOCK.ACQUIRE", key, "before", "60000");
    }

    @BeforeAll
    static void start() {
        node = Node.start();
        locks = Palisade.open(node.url());
    }

    @AfterAll
    static void end() {
        locks.close();
        node.close();
    }

    /** {@code orTimeout} completes the future itself, so nobody receives the lock that comes later. */
    @Test
    void aWaitWhoseFutureTimesOutLeavesNothing() {
        leavesNothing(locks.lockAsync(key, MINUTE));
    }

    @Test
    void aWaitForAPermitWhoseFutureTimesOutLeavesNothing() {
        leavesNothing(locks.semaphore(key, 1).acquireAsync(MINUTE));
    }

    @Test
    void aCampaignWhoseFutureTimesOutLeavesNothing() {
        leavesNothing(locks.election(key).campaignAsync("me", MINUTE));
    }

    private void leavesNothing(CompletableFuture<?> waiting) {
        node.awaitWaiters(key, 1);
        assertThrows(CompletionException.class, waiting.orTimeout(1, TimeUnit.MILLISECONDS)::join);
        node.awaitWaiters(key, 0);
        node.say("LOCK.BREAK", key);
        node.awaitFree(key);
    }

    /** The lock was granted, but its future is completed by somebody else before the executor does it. */
    @Test
    void aLockThatNobodyReceivesIsReleased() {
        BlockingQueue<Runnable> tasks = new LinkedBlockingQueue<>();
        try (Palisade late = Palisade.builder(node.url()).executor(tasks::add).build()) {
            CompletableFuture<LockHandle> granted = late.lockAsync(free, MINUTE);
            Node.eventually("the lock is granted", () -> !tasks.isEmpty());
            granted.complete(null);
            tasks.remove().run();
            node.awaitFree(free);
        }
    }

    @Test
    void aCancelledReentryLeavesNoHold() throws Exception {
        LockHandle lock = locks.lock(free, MINUTE);
        cancelled(lock::reenterAsync);
        assertTrue(lock.isValid());
        lock.release();
        node.awaitFree(free);
    }

    @Test
    void aCancelledAdoptionIsNotKept() throws Exception {
        LockOptions brief = LockOptions.defaults().ttl(Duration.ofMillis(500));
        HandOver given = locks.lock(free, brief).handOver();
        cancelled(() -> locks.adoptAsync(given, brief));
        // Nobody extends it.
        node.awaitFree(free);
    }

    /** Cancels a future while its answer waits in the server. */
    private static void cancelled(Supplier<CompletableFuture<LockHandle>> asking) {
        node.say("CLIENT", "PAUSE", "60000", "WRITE");
        CompletableFuture<LockHandle> asked = asking.get();
        assertTrue(asked.cancel(true));
        node.say("CLIENT", "UNPAUSE");
    }

}
