package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.api.sync.RedisCommands;
import java.util.HashSet;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** A pool of processes does 500 jobs, while some of them are killed and stopped, and two of five nodes are killed. */
class WorkerPoolTest {

    private static final String KILLED = Worker.SLOW + "killed";

    private static final String STOPPED = Worker.SLOW + "stopped";

    private static final int JOBS = 500;

    @Test
    void noJobIsDoneTwiceThoughWorkersAndNodesFail() throws Exception {
        List<String> jobs = Stream.concat(IntStream.range(0, JOBS - 2).mapToObj(n -> "job:" + n), Stream.of(KILLED, STOPPED)).toList();
        List<String> plain = jobs.subList(0, JOBS - 2);
        try (Agent agent = Agent.start(); Node data = Node.start(); Pool pool = new Pool(agent, data)) {
            RedisCommands<String, String> table = data.outside().sync();
            table.sadd(Worker.TODO, plain.subList(0, 150).toArray(String[]::new));
            pool.start(4);
            table.sadd(Worker.TODO, KILLED);
            Pool.signal("KILL", pool.await("has " + KILLED));
            pool.start(1);
            table.sadd(Worker.TODO, plain.subList(150, 300).toArray(String[]::new));
            table.sadd(Worker.TODO, STOPPED);
            Process stopped = pool.await("has " + STOPPED);
            Pool.signal("STOP", stopped);
            agent.nodes().subList(0, 2).forEach(Node::kill);
            table.sadd(Worker.TODO, plain.subList(300, JOBS - 2).toArray(String[]::new));
            // Past the lease of the stopped worker others do what it had begun.
            Server.eventually("all jobs are done", () -> table.scard(Worker.TODO) == 0);
            Pool.signal("CONT", stopped);
            assertEquals(stopped, pool.await("fenced " + STOPPED));
            table.set(Worker.END, "");
            assertEquals(4, pool.awaitEnd(), pool::toString);

            for (String job : jobs) {
                assertEquals(1, table.llen(Worker.fenced(job)), job);
                List<String> tokens = table.lrange(Worker.plain(job), 0, -1);
                assertEquals(tokens.size(), new HashSet<>(tokens).size(), () -> job + " twice under one token: " + tokens);
            }
            // Without the gate the late write has landed, after that of the newer holder.
            List<String> written = table.lrange(Worker.plain(STOPPED), 0, -1);
            assertEquals(2, written.size(), written::toString);
            assertTrue(Long.parseLong(written.get(0)) > Long.parseLong(written.get(1)), written::toString);
        }
    }

}
