package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.api.sync.RedisCommands;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Programs do 500 jobs, while one of them is killed and one is stopped, and two of five nodes are killed. */
class WorkerPoolTest {

    private static final String KILLED = "of the killed one";

    private static final String STOPPED = "of the stopped one";

    private static final int JOBS = 500;

    /** The exit status of a process that SIGKILL ended. */
    private static final int KILLED_STATUS = 128 + 9;

    private final Agent agent = Agent.start();

    private final Node table = Node.start();

    private final RedisCommands<String, String> data = table.outside().sync();

    private final List<Process> workers = new ArrayList<>();

    @AfterEach
    void end() {
        workers.forEach(Process::destroyForcibly);
        table.close();
        agent.close();
    }

    /** Starts a program that needs little of a processor. */
    private Process start(String... firstJob) throws IOException {
        Stream<String> command = Stream.of(System.getProperty("java.home") + "/bin/java", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
                "-XX:+UseSerialGC", "-Xmx64m", "-cp", System.getProperty("java.class.path"), Worker.class.getName(), agent.url(), table.url());
        Process worker = new ProcessBuilder(Stream.concat(command, Stream.of(firstJob)).toList()).redirectErrorStream(true).start();
        Runtime.getRuntime().addShutdownHook(new Thread(worker::destroyForcibly));
        workers.add(worker);
        return worker;
    }

    private static void signal(String signal, Process worker) throws Exception {
        assertEquals(0, new ProcessBuilder("kill", "-" + signal, String.valueOf(worker.pid())).start().waitFor());
    }

    /** Waits as long as jobs are being done. */
    private void awaitOpen(long number) {
        for (long open = data.scard(Worker.OPEN); open > number; open = data.scard(Worker.OPEN)) {
            long before = open;
            Server.eventually("one of " + before + " jobs is done", () -> {
                for (Process worker : workers) {
                    assertTrue(worker.isAlive() || worker.exitValue() == 0 || worker.exitValue() == KILLED_STATUS, () -> output(worker));
                }
                return data.scard(Worker.OPEN) < before;
            });
        }
    }

    private static String output(Process worker) {
        return worker.inputReader().lines().collect(Collectors.joining("\n"));
    }

    private static void awaitEnd(Process worker) throws Exception {
        assertTrue(worker.waitFor(Server.PATIENCE.toSeconds(), TimeUnit.SECONDS), "a worker does not end");
        assertEquals(0, worker.exitValue(), () -> output(worker));
    }

    @Test
    void noJobIsDoneTwiceThoughWorkersAndNodesFail() throws Exception {
        String[] plain = IntStream.range(2, JOBS).mapToObj(n -> "job " + n).toArray(String[]::new);
        data.sadd(Worker.OPEN, plain);
        Process killed = start(KILLED);
        Process stopped = start(STOPPED);
        Server.eventually("both have begun", () -> !data.smismember(Worker.OPEN, KILLED, STOPPED).contains(false));
        signal("KILL", killed);
        Process third = start();
        signal("STOP", stopped);
        awaitOpen(JOBS / 2);
        agent.nodes().subList(0, 2).forEach(Node::kill);
        Process fourth = start();
        awaitOpen(0);
        signal("CONT", stopped);
        for (Process worker : List.of(stopped, third, fourth)) {
            awaitEnd(worker);
        }

        assertTrue(data.sismember(Worker.REFUSED, STOPPED), "its late write passed");
        for (String job : Stream.concat(Stream.of(plain), Stream.of(KILLED, STOPPED)).toList()) {
            List<String> row = data.lrange(Worker.row(job), 0, -1);
            List<Long> tokens = row.stream().map(line -> Long.valueOf(line.split(" ")[0])).distinct().sorted().toList();
            Stream<String> done = Stream.of(tokens.get(tokens.size() - 1) + " done");
            assertEquals(Stream.concat(tokens.stream().map(token -> token + " begun"), done).toList(), row, job);
        }
    }

}
