package palisade.locks.spring.integration;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import palisade.locks.LockHandle;
import palisade.locks.LockLostException;
import palisade.locks.Server;
import palisade.locks.TwoPrograms;

/** What Spring Integration demands of its registries, on a real server. */
class PalisadeLockRegistryTest extends TwoPrograms {

    private static final String PREFIX = "registry:";

    private final PalisadeLockRegistry registry = new PalisadeLockRegistry(here, PREFIX);

    private final PalisadeLockRegistry other = new PalisadeLockRegistry(there, PREFIX);

    @Test
    void aThreadAcquiresALockAgain() {
        RegistryLock lock = registry.obtain(name);
        assertSame(lock, registry.obtain(name));
        lock.lock();
        long token = lock.handle().map(LockHandle::token).orElseThrow();
        assertTrue(lock.tryLock());
        assertEquals(token, lock.handle().map(LockHandle::token).orElseThrow());
        lock.unlock();
        assertTrue(node.isHeld(PREFIX + name));
        lock.unlock();
        assertFalse(node.isHeld(PREFIX + name));
        assertEquals(Optional.empty(), lock.handle());
        assertThrows(IllegalStateException.class, lock::unlock);
    }

    @Test
    void aLockKeepsOtherThreadsAndOtherProgramsOut() throws Exception {
        RegistryLock lock = registry.obtain(name);
        lock.lock();
        assertFalse(CompletableFuture.supplyAsync(() -> registry.obtain(name).tryLock()).join());
        assertFalse(other.obtain(name).tryLock());
        assertFalse(other.obtain(name).tryLock(50, TimeUnit.MILLISECONDS));
        CompletableFuture<Boolean> foreign = CompletableFuture.supplyAsync(() -> {
            assertThrows(IllegalStateException.class, lock::unlock);
            return true;
        });
        assertTrue(Server.soon(foreign));
        CompletableFuture<Void> next = CompletableFuture.runAsync(() -> {
            RegistryLock theirs = other.obtain(name);
            theirs.lock();
            theirs.unlock();
        });
        node.awaitWaiters(PREFIX + name, 1);
        lock.unlock();
        Server.soon(next);
        node.awaitFree(PREFIX + name);
    }

    @Test
    void anInterruptedWaitLeavesNothing() throws Exception {
        registry.obtain(name).lock();
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                other.obtain(name).lockInterruptibly();
            } catch (InterruptedException e) {
                interrupted.complete(true);
            }
        });
        thread.start();
        node.awaitWaiters(PREFIX + name, 1);
        thread.interrupt();
        assertTrue(Server.soon(interrupted));
        node.awaitWaiters(PREFIX + name, 0);
        registry.obtain(name).unlock();
        assertTrue(other.obtain(name).tryLock());
        other.obtain(name).unlock();
    }

    @Test
    void theUnlockOfALostLockTells() {
        RegistryLock lock = registry.obtain(name);
        lock.lock();
        node.say("LOCK.BREAK", PREFIX + name);
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        lock.lock();
        lock.unlock();
        lock.lock(Duration.ofMillis(150));
        node.awaitFree(PREFIX + name);
        assertThrows(ConcurrentModificationException.class, lock::unlock);
    }

    @Test
    void aLockWithATtlOfItsOwnIsRenewed() throws Exception {
        assertThrows(IllegalStateException.class, () -> registry.renewLock(name));
        RegistryLock lock = registry.obtain(name);
        assertTrue(lock.tryLock(Duration.ofSeconds(1), Duration.ofSeconds(2)));
        registry.renewLock(name);
        registry.renewLock(name, Duration.ofSeconds(30));
        Server.passes(Duration.ofMillis(2200));
        assertTrue(node.isHeld(PREFIX + name));
        lock.unlock();
        lock.lock();
        node.say("LOCK.BREAK", PREFIX + name);
        assertThrows(LockLostException.class, () -> registry.renewLock(name));
        assertThrows(ConcurrentModificationException.class, lock::unlock);
    }

    @Test
    void unusedLocksAreForgotten() {
        RegistryLock unused = registry.obtain(name);
        RegistryLock used = registry.obtain(name + ":2");
        used.lock();
        registry.expireUnusedOlderThan(60_000);
        assertSame(unused, registry.obtain(name));
        registry.expireUnusedOlderThan(0);
        assertNotSame(unused, registry.obtain(name));
        assertSame(used, registry.obtain(name + ":2"));
        used.unlock();
        assertThrows(IllegalArgumentException.class, () -> registry.obtain(42));
        assertThrows(UnsupportedOperationException.class, used::newCondition);
    }

    @Test
    void workUnderALockIsAlone() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger done = new AtomicInteger();
        var all = IntStream.range(0, 20).mapToObj(n -> CompletableFuture.runAsync(() -> {
            try {
                (n % 2 == 0 ? registry : other).executeLocked(name, () -> {
                    assertEquals(1, inside.incrementAndGet());
                    done.incrementAndGet();
                    inside.decrementAndGet();
                });
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        })).toList();
        for (CompletableFuture<Void> one : all) {
            Server.soon(one);
        }
        assertEquals(20, done.get());
        registry.obtain(name).lock();
        assertThrows(TimeoutException.class, () -> other.executeLocked(name, Duration.ofMillis(50), () -> {
        }));
        registry.obtain(name).unlock();
    }

    @Test
    void oneOfTwoLeadersOfSpringLeads() throws Exception {
        CompletableFuture<Boolean> first = new CompletableFuture<>();
        CompletableFuture<Boolean> second = new CompletableFuture<>();
        LockRegistryLeaderInitiator leads = candidate(registry, first);
        leads.start();
        assertTrue(Server.soon(first));
        LockRegistryLeaderInitiator follows = candidate(other, second);
        follows.start();
        node.awaitWaiters(PREFIX + name, 1);
        assertFalse(second.isDone());
        leads.destroy();
        assertTrue(Server.soon(second));
        follows.destroy();
        node.awaitFree(PREFIX + name);
    }

    private LockRegistryLeaderInitiator candidate(PalisadeLockRegistry locks, CompletableFuture<Boolean> granted) {
        return new LockRegistryLeaderInitiator(locks, new DefaultCandidate("me", name) {

            @Override
            public void onGranted(Context context) {
                granted.complete(context.isLeader());
            }

        });
    }

}
