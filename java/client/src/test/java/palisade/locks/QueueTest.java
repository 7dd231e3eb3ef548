package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class QueueTest {

    private static final Duration ANSWER_WITHIN = Duration.ofMillis(200);

    /** The time for an answer does not count for a request that waits. */
    @Test
    void aWaitThatIsLongerThanAnAnswerKeepsItsPlace() throws Exception {
        try (Node node = Node.start(); Palisade locks = Palisade.builder(node.url()).answerWithin(ANSWER_WITHIN).build()) {
            String key = Node.newKey();
            node.say("LOCK.ACQUIRE", key, "before", "60000");
            CompletableFuture<LockHandle> waiting = locks.lockAsync(key, LockOptions.defaults());
            node.awaitWaiters(key, 1);
            long before = connections(node);
            Server.passes(ANSWER_WITHIN.multipliedBy(5));
            assertEquals(before, connections(node), "it waits on the same connection");
            node.say("LOCK.RELEASE", key, "before");
            Server.soon(waiting).close();
        }
    }

    private static long connections(Node node) {
        String stats = (String) node.say("INFO", "stats");
        return stats.lines().filter(line -> line.startsWith("total_connections_received:")).findFirst()
                .map(line -> Long.parseLong(line.substring(line.indexOf(':') + 1))).orElseThrow();
    }

}
