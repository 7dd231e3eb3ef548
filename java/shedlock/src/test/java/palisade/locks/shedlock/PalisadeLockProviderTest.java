package palisade.locks.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockExtender;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.KeepAliveLockProvider;
import org.junit.jupiter.api.Test;
import palisade.locks.LockLostException;
import palisade.locks.Server;
import palisade.locks.TwoPrograms;

/** What ShedLock demands of each provider, on a real server. */
class PalisadeLockProviderTest extends TwoPrograms {

    private static final Duration LONG = Duration.ofMinutes(10);

    private static final String PREFIX = "job-lock:test:";

    private final PalisadeLockProvider provider = new PalisadeLockProvider(here, PREFIX);

    private final PalisadeLockProvider other = new PalisadeLockProvider(there, PREFIX);

    private LockConfiguration of(Duration most, Duration least) {
        return new LockConfiguration(Instant.now(), name, most, least);
    }

    private Optional<SimpleLock> tryIt(LockProvider by) {
        return by.lock(of(LONG, Duration.ZERO));
    }

    @Test
    void aLockIsHeldByOneHostUntilItsUnlock() {
        SimpleLock lock = tryIt(provider).orElseThrow();
        assertTrue(node.isHeld(PREFIX + name));
        assertEquals(Optional.empty(), tryIt(provider));
        assertEquals(Optional.empty(), tryIt(other));
        long token = ((TokenLock) lock).handle().token();
        lock.unlock();
        SimpleLock next = tryIt(other).orElseThrow();
        assertTrue(((TokenLock) next).handle().token() > token);
        next.unlock();
        assertThrows(IllegalStateException.class, next::unlock);
    }

    @Test
    void twoNamesAreTwoLocks() {
        SimpleLock one = tryIt(provider).orElseThrow();
        SimpleLock two = provider.lock(new LockConfiguration(Instant.now(), name + ":2", LONG, Duration.ZERO)).orElseThrow();
        one.unlock();
        two.unlock();
    }

    @Test
    void aLockEndsAfterItsLongestTime() {
        SimpleLock lock = provider.lock(of(Duration.ofMillis(200), Duration.ZERO)).orElseThrow();
        node.awaitFree(PREFIX + name);
        SimpleLock next = tryIt(other).orElseThrow();
        assertThrows(LockLostException.class, lock::unlock);
        assertEquals(Optional.empty(), tryIt(provider), "the late unlock took nothing away");
        next.unlock();
    }

    @Test
    void aLockStaysForItsLeastTime() {
        provider.lock(of(LONG, Duration.ofMillis(500))).orElseThrow().unlock();
        assertTrue(node.isHeld(PREFIX + name));
        assertEquals(Optional.empty(), tryIt(other));
        // Its lease is 10 s, and was left to run out.
        SimpleLock brief = provider.lock(new LockConfiguration(Instant.now(), name + ":2", Duration.ofMillis(800), Duration.ofMillis(800)))
                .orElseThrow();
        brief.unlock();
        assertTrue(node.isHeld(PREFIX + name + ":2"));
        node.awaitFree(PREFIX + name + ":2");
    }

    @Test
    void anExtendedLockLastsForTheNewTime() {
        SimpleLock lock = provider.lock(of(Duration.ofSeconds(1), Duration.ZERO)).orElseThrow();
        SimpleLock extended = lock.extend(LONG, Duration.ZERO).orElseThrow();
        assertThrows(IllegalStateException.class, lock::unlock);
        assertEquals(((TokenLock) lock).handle().token(), ((TokenLock) extended).handle().token());
        Server.passes(Duration.ofMillis(1200));
        assertEquals(Optional.empty(), tryIt(other));
        extended.unlock();
        assertFalse(node.isHeld(PREFIX + name));
    }

    @Test
    void aLockThatIsOverCannotBeExtended() {
        SimpleLock lock = provider.lock(of(Duration.ofMillis(150), Duration.ZERO)).orElseThrow();
        node.awaitFree(PREFIX + name);
        assertEquals(Optional.empty(), lock.extend(LONG, Duration.ZERO));
        SimpleLock released = tryIt(provider).orElseThrow();
        released.unlock();
        assertThrows(IllegalStateException.class, () -> released.extend(LONG, Duration.ZERO));
    }

    @Test
    void oneOfManyHostsRunsATask() {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger runs = new AtomicInteger();
        List<CompletableFuture<Void>> hosts = new ArrayList<>();
        for (int n = 0; n < 16; n++) {
            var executor = new DefaultLockingTaskExecutor(n % 2 == 0 ? provider : other);
            hosts.add(CompletableFuture.runAsync(() -> executor.executeWithLock((Runnable) () -> {
                assertEquals(1, inside.incrementAndGet());
                runs.incrementAndGet();
                LockExtender.extendActiveLock(LONG, Duration.ZERO);
                inside.decrementAndGet();
            }, of(LONG, Duration.ZERO))));
        }
        hosts.forEach(CompletableFuture::join);
        assertTrue(runs.get() >= 1);
        assertFalse(node.isHeld(PREFIX + name));
    }

    @Test
    void shedLocksOwnExtensionWorks() throws Exception {
        var timers = Executors.newSingleThreadScheduledExecutor();
        // It extends after a half of the longest time, which is 30 s at least.
        var keeping = new KeepAliveLockProvider(provider, timers);
        SimpleLock lock = keeping.lock(of(Duration.ofSeconds(30), Duration.ZERO)).orElseThrow();
        assertEquals(Optional.empty(), tryIt(other));
        lock.unlock();
        timers.shutdown();
        assertFalse(node.isHeld(PREFIX + name));
    }

}
