package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The caller's executor ends before the locks do. */
class ExecutorTest {

    private static final LockOptions MINUTE = LockOptions.defaults().ttl(Duration.ofMinutes(1));

    private static Node node;

    private final ExecutorService executor = Executors.newSingleThreadExecutor();

    private final Palisade locks = Palisade.builder(node.url()).executor(executor).build();

    private final String key = Node.newKey();

    @BeforeAll
    static void start() {
        node = Node.start();
    }

    @AfterAll
    static void end() {
        node.close();
    }

    @Test
    void aLockIsReleasedThoughTheExecutorHasEnded() throws Exception {
        LockHandle lock = locks.lock(key, MINUTE);
        CompletableFuture<Loss> lost = lock.lost();
        executor.shutdown();
        assertEquals(Release.HELD, lock.release());
        assertThrows(CancellationException.class, () -> Server.soon(lost));
        Server.soon(locks.lockAsync(key, MINUTE)).close();
        locks.close();
    }

    @Test
    void allLocksAreGivenBackThoughTheExecutorHasEnded() throws Exception {
        LockHandle lock = locks.lock(key, MINUTE);
        locks.lock(key + ":2", MINUTE);
        executor.shutdown();
        locks.close();
        assertEquals(LossReason.CLOSED, Server.soon(lock.lost()).reason());
        node.awaitFree(key);
        node.awaitFree(key + ":2");
    }

}
