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
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

/** A server of tests, which ends with them. */
public abstract class Server implements AutoCloseable {

    static final Duration PATIENCE = Duration.ofMinutes(1);

    private static final AtomicInteger KEYS = new AtomicInteger();

    private final int port;

    private final Path folder;

    private final Process process;

    private final RedisClient client;

    private StatefulRedisConnection<String, String> outside;

    Server(int port, Path folder, List<String> command) {
        this.port = port;
        this.folder = folder;
        try {
            process = new ProcessBuilder(command).directory(folder.toFile()).redirectErrorStream(true)
                    .redirectOutput(folder.resolve("log").toFile()).start();
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

    static Path newFolder() {
        try {
            return Files.createTempDirectory("palisade-java-");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static int freePort() {
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return free.getLocalPort();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Returns a path of the environment, or one of the build. */
    static String built(String variable, String otherwise) {
        Path root = Path.of("").toAbsolutePath();
        while (!Files.exists(root.resolve("Cargo.lock"))) {
            root = root.getParent();
        }
        return fromEnvironment(variable, root.resolve(otherwise).toString());
    }

    static String fromEnvironment(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }

    /** Returns a key that no other test uses. */
    public static String newKey() {
        return "key:" + KEYS.incrementAndGet();
    }

    /** Waits until a condition holds. */
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

    /** Waits until this much time has passed. */
    public static void passes(Duration time) {
        long until = System.nanoTime() + time.toNanos();
        eventually(time + " passes", () -> System.nanoTime() > until);
    }

    /** Returns the result of a future that comes soon. */
    public static <T> T soon(CompletableFuture<T> future) throws Exception {
        return future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    public String url() {
        return "redis://127.0.0.1:" + port;
    }

    Path folder() {
        return folder;
    }

    /** Returns a connection of another client to the server. */
    public StatefulRedisConnection<String, String> outside() {
        return outside;
    }

    /** Sends a command of another client. */
    public Object say(String name, String... arguments) {
        CommandArgs<String, String> words = new CommandArgs<>(StringCodec.UTF8);
        for (String argument : arguments) {
            words.add(argument);
        }
        return outside.sync().dispatch(new LettuceTransport.Name(name), new ReplyOutput(), words);
    }

    long info(String key, String field) {
        Map<String, Object> fields = Replies.toFields(say("LOCK.INFO", key));
        return fields.get(field) instanceof Long number ? number : 0;
    }

    /** Returns how many wait for a lock. */
    public long waiters(String key) {
        return info(key, "waiters");
    }

    /** Waits until this many wait for a lock. */
    public void awaitWaiters(String key, int number) {
        eventually(number + " wait for " + key, () -> waiters(key) == number);
    }

    /** Waits until nobody has a lock or waits for it. */
    public void awaitFree(String key) {
        eventually(key + " is free", () -> info(key, "holders") == 0 && waiters(key) == 0);
    }

    /** Reports whether somebody has a lock. */
    public boolean isHeld(String key) {
        return info(key, "holders") > 0;
    }

    /** Ends all connections of others. */
    void disconnect() {
        say("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    }

    /** Ends the server as {@code kill -9} does. */
    void kill() {
        process.destroyForcibly();
        try {
            process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Override
    public void close() {
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        kill();
        try {
            try (var files = Files.list(folder)) {
                for (Path file : files.toList()) {
                    Files.deleteIfExists(file);
                }
            }
            Files.deleteIfExists(folder);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

}
