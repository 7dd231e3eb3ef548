package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static palisade.locks.Server.soon;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class AllLostTest {

    private static final LockOptions BRIEF = LockOptions.defaults().ttl(Duration.ofSeconds(2));

    @Test
    void aGroupOfWhichOneIsLostAlreadyIsNotAcquired() throws Exception {
        CompletableFuture<LossReason> lost = new CompletableFuture<>();
        LockListener listener = new LockListener() {

            @Override
            public void lost(Kind kind, Duration heldFor, LossReason reason) {
                lost.complete(reason);
            }

        };
        try (Node node = Node.start(); Palisade locks = Palisade.builder(node.url()).listener(listener).build()) {
            List<String> keys = List.of("a", "b", "c");
            node.say("LOCK.ACQUIRE", "c", "somebody", "60000");
            CompletableFuture<LockLostException> failed = CompletableFuture.supplyAsync(
                    () -> assertThrows(LockLostException.class, () -> locks.lockAll(keys, BRIEF), "all or none"));
            node.awaitWaiters("c", 1);
            node.say("LOCK.BREAK", "b");
            assertEquals(LossReason.TAKEN_AWAY, soon(lost));
            node.say("LOCK.RELEASE", "c", "somebody");
            assertEquals("b", soon(failed).key());
            keys.forEach(node::awaitFree);
        }
    }

}
