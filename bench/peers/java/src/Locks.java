import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** The locks of a client, as one process of an application has it; and the end and the version of that client. */
record Locks(Function<String, Mutex> of, Runnable close, String version) {
    /** What many clients of Redisson in one process share; each would have as many threads of its own. */
    private static final EventLoopGroup EVENTS = new NioEventLoopGroup();

    private static final ExecutorService EXECUTOR = Executors.newFixedThreadPool(16);

    /** How long a try may take, where the client takes such a limit. */
    private static final long TRY_MAX_S = 2;

    interface Action {
        void run() throws Exception;
    }

    /** A lock, as one thread sees it: waits for it, takes it if it is free, gives it back. */
    record Mutex(Action acquire, Callable<Boolean> tryAcquire, Action release) {}

    /** Connects a client: one that many threads share, or one of many in this process. */
    static Locks of(String client, int[] ports, int ttlMs, boolean isShared) {
        return client.equals("curator") ? ofCurator(ports, ttlMs) : ofRedisson(client, ports[0], ttlMs, isShared);
    }

    private static Locks ofRedisson(String client, int port, int ttlMs, boolean isShared) {
        Config config = new Config();
        config.setLockWatchdogTimeout(ttlMs);
        SingleServerConfig server = config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        if (!isShared) {
            config.setEventLoopGroup(EVENTS).setExecutor(EXECUTOR);
            server.setConnectionMinimumIdleSize(1).setConnectionPoolSize(2);
        }
        RedissonClient redisson = Redisson.create(config);
        Function<String, Mutex> of = switch (client) {
            case "RLock" -> name -> of(redisson.getLock(name));
            case "RFairLock" -> name -> of(redisson.getFairLock(name));
            case "RFencedLock" -> name -> of(redisson.getFencedLock(name));
            case "RReadWriteLock" -> name -> of(redisson.getReadWriteLock(name).writeLock());
            case "RSemaphore" -> name -> of(redisson.getSemaphore(name));
            default -> throw new IllegalArgumentException(client);
        };
        return new Locks(of, () -> redisson.shutdown(0, 2, TimeUnit.SECONDS), version(Redisson.class));
    }

    /** Without a lease in the call, the watchdog renews. */
    private static Mutex of(RLock lock) {
        return new Mutex(lock::lockInterruptibly, lock::tryLock, lock::unlock);
    }

    private static Mutex of(RSemaphore semaphore) {
        semaphore.trySetPermits(1);
        return new Mutex(semaphore::acquire, semaphore::tryAcquire, semaphore::release);
    }

    private static Locks ofCurator(int[] ports, int ttlMs) {
        String nodes = IntStream.of(ports).mapToObj(port -> "127.0.0.1:" + port).collect(Collectors.joining(","));
        // The retries of Curator's documentation.
        CuratorFramework curator = CuratorFrameworkFactory.builder()
                .connectString(nodes)
                .sessionTimeoutMs(ttlMs)
                .retryPolicy(new ExponentialBackoffRetry(1_000, 3))
                .build();
        curator.start();
        try {
            curator.blockUntilConnected();
        } catch (InterruptedException why) {
            throw new IllegalStateException(why);
        }
        Function<String, Mutex> of = name -> {
            InterProcessMutex mutex = new InterProcessMutex(curator, "/" + name);
            return new Mutex(mutex::acquire, () -> mutex.acquire(TRY_MAX_S, TimeUnit.SECONDS), mutex::release);
        };
        return new Locks(of, curator::close, version(InterProcessMutex.class));
    }

    /** Returns the name and the version of the library of a class, which its file has. */
    private static String version(Class<?> found) {
        String path = found.getProtectionDomain().getCodeSource().getLocation().getPath();
        return path.replaceAll(".*/(.*)-([0-9].*)\\.jar", "$1 $2");
    }
}
