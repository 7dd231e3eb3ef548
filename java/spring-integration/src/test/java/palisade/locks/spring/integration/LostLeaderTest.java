package palisade.locks.spring.integration;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import palisade.locks.LockOptions;
import palisade.locks.Server;
import palisade.locks.TwoPrograms;

/** A lock of a registry that is lost while its thread has it. */
class LostLeaderTest extends TwoPrograms {

    private static final String PREFIX = "lost:";

    /** The loss of a short lease is known soon. */
    private final PalisadeLockRegistry registry =
            new PalisadeLockRegistry(here, PREFIX, LockOptions.defaults().ttl(Duration.ofSeconds(1)));

    private final PalisadeLockRegistry other = new PalisadeLockRegistry(there, PREFIX);

    /** A leader of Spring acquires its lock again at each heartbeat, in case it was lost. */
    @Test
    void aLeaderOfSpringWhoseLockWasTakenAwayIsRevoked() throws Exception {
        BlockingQueue<String> ofFirst = new ArrayBlockingQueue<>(10);
        BlockingQueue<String> ofSecond = new ArrayBlockingQueue<>(10);
        LockRegistryLeaderInitiator first = candidate(registry, ofFirst);
        first.start();
        assertEquals("granted", next(ofFirst));
        LockRegistryLeaderInitiator second = candidate(other, ofSecond);
        second.start();
        node.awaitWaiters(PREFIX + name, 1);
        node.say("LOCK.BREAK", PREFIX + name);
        assertEquals("granted", next(ofSecond));
        assertEquals("revoked", next(ofFirst));
        second.destroy();
        assertEquals("granted", next(ofFirst));
        first.destroy();
        node.awaitFree(PREFIX + name);
        first.start();
        assertEquals("revoked", next(ofFirst));
        assertEquals("granted", next(ofFirst));
        first.destroy();
    }

    @Test
    void aThreadDoesNotAcquireALostLockThatAnotherHas() {
        RegistryLock lock = registry.obtain(name);
        lock.lock();
        node.say("LOCK.BREAK", PREFIX + name);
        RegistryLock theirs = other.obtain(name);
        theirs.lock();
        awaitLossOf(lock);
        assertFalse(lock.tryLock(), "the other program has it");
        assertThrows(IllegalStateException.class, lock::unlock);
        theirs.unlock();
    }

    @Test
    void aThreadAcquiresALostLockAnewAndIsToldAtTheEnd() {
        RegistryLock lock = registry.obtain(name);
        lock.lock();
        node.say("LOCK.BREAK", PREFIX + name);
        awaitLossOf(lock);
        assertTrue(lock.tryLock());
        assertTrue(lock.handle().orElseThrow().isValid());
        lock.unlock();
        assertTrue(node.isHeld(PREFIX + name));
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        node.awaitFree(PREFIX + name);
        lock.lock();
        lock.unlock();
    }

    @Test
    void anInterruptedThreadStillHasToUnlockALostLock() throws Exception {
        RegistryLock lock = registry.obtain(name);
        lock.lock();
        node.say("LOCK.BREAK", PREFIX + name);
        RegistryLock theirs = other.obtain(name);
        theirs.lock();
        awaitLossOf(lock);
        Thread self = Thread.currentThread();
        CompletableFuture<Void> interrupted = CompletableFuture.runAsync(() -> {
            node.awaitWaiters(PREFIX + name, 1);
            self.interrupt();
        });
        assertThrows(InterruptedException.class, lock::lockInterruptibly);
        Server.soon(interrupted);
        assertThrows(IllegalStateException.class, () -> registry.renewLock(name));
        theirs.unlock();
        lock.lock();
        lock.unlock();
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        node.awaitFree(PREFIX + name);
    }

    private static void awaitLossOf(RegistryLock lock) {
        Server.eventually("the loss is known", () -> !lock.handle().orElseThrow().isValid());
    }

    private static String next(BlockingQueue<String> events) throws InterruptedException {
        return events.poll(1, TimeUnit.MINUTES);
    }

    private LockRegistryLeaderInitiator candidate(PalisadeLockRegistry locks, BlockingQueue<String> events) {
        var initiator = new LockRegistryLeaderInitiator(locks, new DefaultCandidate("me", name) {

            @Override
            public void onGranted(Context context) {
                events.add("granted");
            }

            @Override
            public void onRevoked(Context context) {
                events.add("revoked");
            }

        });
        initiator.setHeartBeatMillis(100);
        return initiator;
    }

}
