package palisade.locks;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/** Processes of {@link Worker}, and what they have printed. */
final class Pool implements AutoCloseable {

    /** A line that a worker has printed. */
    record Line(Process by, String text) {
    }

    private final List<Process> workers = new CopyOnWriteArrayList<>();

    private final List<Line> lines = new CopyOnWriteArrayList<>();

    private final List<String> command;

    Pool(Server locks, Server data) {
        command = List.of(System.getProperty("java.home") + "/bin/java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
                System.getProperty("java.class.path"), Worker.class.getName(), locks.url(), data.url());
    }

    void start(int number) {
        for (int n = 0; n < number; n++) {
            try {
                Process worker = new ProcessBuilder(command).redirectErrorStream(true).start();
                workers.add(worker);
                new Thread(() -> read(worker)).start();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    private void read(Process worker) {
        BufferedReader from = new BufferedReader(new InputStreamReader(worker.getInputStream(), StandardCharsets.UTF_8));
        from.lines().forEach(text -> lines.add(new Line(worker, text)));
    }

    /** Returns the worker that has printed this first, once one has. */
    Process await(String text) {
        try {
            Server.eventually("a worker prints " + text, () -> find(text).isPresent());
        } catch (AssertionError e) {
            throw new AssertionError(e.getMessage() + ", beside " + this, e);
        }
        return find(text).orElseThrow().by();
    }

    private Optional<Line> find(String text) {
        return lines.stream().filter(line -> line.text().equals(text)).findFirst();
    }

    static void signal(String signal, Process worker) throws Exception {
        new ProcessBuilder("kill", "-" + signal, String.valueOf(worker.pid())).start().waitFor();
    }

    /** Waits until all workers have ended, and returns how many ended by themselves. */
    long awaitEnd() throws InterruptedException {
        long number = 0;
        for (Process worker : workers) {
            if (!worker.waitFor(Server.PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
                throw new AssertionError("a worker does not end");
            }
            number += worker.exitValue() == 0 ? 1 : 0;
        }
        return number;
    }

    /** Describes what the workers had to say beside their jobs. */
    @Override
    public String toString() {
        return lines.stream().map(Line::text).filter(text -> !text.startsWith("has ") && !text.startsWith("did ")).limit(20).toList() + " and "
                + lines.size() + " lines";
    }

    @Override
    public void close() {
        workers.forEach(Process::destroyForcibly);
    }

}
