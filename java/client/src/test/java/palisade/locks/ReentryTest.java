package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Re-entries and adoptions that their callers have given up. */
class ReentryTest {

    private static final LockOptions MINUTE = LockOptions.defaults().ttl(Duration.ofMinutes(1));

    private static Node node;

    private static Palisade locks;

    private final String key = Node.newKey();

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

    @Test
    void aCancelledReentryLeavesNoHold() throws Exception {
        LockHandle lock = locks.lock(key, MINUTE);
        cancelled(lock::reenterAsync);
        assertTrue(lock.isValid());
        lock.release();
        node.awaitFree(key);
    }

    @Test
    void aCancelledAdoptionIsNotKept() throws Exception {
        LockOptions brief = LockOptions.defaults().ttl(Duration.ofMillis(500));
        HandOver given = locks.lock(key, brief).handOver();
        cancelled(() -> locks.adoptAsync(given, brief));
        // Nobody extends it.
        node.awaitFree(key);
    }

    /** Cancels a future while its answer waits in the server. */
    private static void cancelled(Supplier<CompletableFuture<LockHandle>> asking) {
        node.say("CLIENT", "PAUSE", "60000", "WRITE");
        CompletableFuture<LockHandle> asked = asking.get();
        assertTrue(asked.cancel(true));
        node.say("CLIENT", "UNPAUSE");
    }

}
