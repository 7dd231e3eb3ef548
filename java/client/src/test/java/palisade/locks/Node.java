package palisade.locks;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.protocol.CommandArgs;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

/** A real server for tests, with the module or without, which ends with the test. */
public final class Node implements AutoCloseable {

    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private static final AtomicInteger KEYS = new AtomicInteger();

    private final Path folder;

    private final int port;

    private Process process;

    private RedisClient client;

    private StatefulRedisConnection<String, String> outside;

    private Node(List<String> more) {
        try {
            folder = Files.createTempDirectory("palisade-java-");
            try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                port = free.getLocalPort();
            }
            List<String> command = new ArrayList<>(List.of(fromEnvironment("PALISADE_SERVER", "redis-server"), "--port",
                    String.valueOf(port), "--save", "", "--dir", folder.toString(), "--unixsocket", socket().toString()));
            command.addAll(more);
            process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(folder.resolve("log").toFile()).start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
        client = RedisClient.create(url());
        eventually("the server listens", () -> {
            try {
                outside = client.connect();
                outside.setTimeout(PATIENCE);
                return true;
            } catch (RedisException e) {
                if (!process.isAlive()) {
                    throw new IllegalStateException("the server has ended: see " + folder.resolve("log"));
                }
                return false;
            }
        });
    }

    /** Starts a server with the module and no guard: nobody holds a lock of a new server. */
    public static Node start() {
        Path built = Path.of("").toAbsolutePath();
        while (!Files.exists(built.resolve("Cargo.lock"))) {
            built = built.getParent();
        }
        Node node = new Node(List.of("--loadmodule", fromEnvironment("PALISADE_MODULE", built + "/target/debug/libpalisade.so")));
        eventually("the guard is lifted", () -> node.say("LOCK.GUARD", "LIFT").equals(0L));
        return node;
    }

    static Node withoutModule() {
        return new Node(List.of());
    }

    private static String fromEnvironment(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }

    /** Returns a key that no other test uses. */
    public static String newKey() {
        return "key:" + KEYS.incrementAndGet();
    }

    public static void eventually(String what, BooleanSupplier condition) {
        long until = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > until) {
                throw new AssertionError("not within " + PATIENCE + ": " + what);
            }
            try {
                Thread.sleep(5);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }
    }

    public String url() {
        return "redis://127.0.0.1:" + port;
    }

    Path socket() {
        return folder.resolve("node.sock");
    }

    public RedisClient client() {
        return client;
    }

    /** Sends a command of another client. */
    public Object say(String name, String... arguments) {
        CommandArgs<String, String> words = new CommandArgs<>(StringCodec.UTF8);
        for (String argument : arguments) {
            words.add(argument);
        }
        return outside.sync().dispatch(new LettuceTransport.Name(name), new ReplyOutput(), words);
    }

    private long info(String key, String field) {
        Map<String, Object> fields = Replies.toFields(say("LOCK.INFO", key));
        return fields.get(field) instanceof Long number ? number : 0;
    }

    public void awaitWaiters(String key, int number) {
        eventually(number + " wait for " + key, () -> info(key, "waiters") == number);
    }

    public void awaitFree(String key) {
        eventually(key + " is free", () -> info(key, "holders") == 0 && info(key, "waiters") == 0);
    }

    public boolean isHeld(String key) {
        return info(key, "holders") > 0;
    }

    /** Ends all connections of others. */
    void disconnect() {
        say("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    }

    @Override
    public void close() {
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        process.destroyForcibly();
        try {
            process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS);
            try (var files = Files.list(folder)) {
                for (Path file : files.toList()) {
                    Files.deleteIfExists(file);
                }
            }
            Files.deleteIfExists(folder);
        } catch (IOException | InterruptedException e) {
            throw new AssertionError(e);
        }
    }

}
