package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class LostFuturesTest {

    /** A leader asks before each step, for weeks. */
    @Test
    void askingAgainWhetherALockIsLostTakesNoMemory() throws Exception {
        try (Node node = Node.start(); Palisade locks = Palisade.open(node.url())) {
            LockHandle lock = locks.lock(Node.newKey(), LockOptions.defaults().ttl(Duration.ofSeconds(3)));
            CompletableFuture<Loss> first = lock.lost();
            assertSame(first, lock.lost());
            assertNotSame(first, lock.reenter().lost());
            first.cancel(true);
            CompletableFuture<Loss> second = lock.lost();
            node.say("LOCK.BREAK", lock.key());
            assertEquals(LossReason.TAKEN_AWAY, Server.soon(second).reason());
            assertEquals(LossReason.TAKEN_AWAY, Server.soon(lock.lost()).reason());
        }
    }

}
