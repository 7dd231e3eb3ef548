package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class LockTest {

    private static final LockOptions MINUTE = LockOptions.defaults().ttl(Duration.ofMinutes(1));

    private static final LockOptions NO_WAIT = MINUTE.waitUpTo(Duration.ZERO);

    private static Node node;

    private static Palisade locks;

    private final String key = Node.newKey();

    @BeforeAll
    static void start() {
        node = Node.start();
        locks = Palisade.open(node.url());
    }

    @AfterAll
    static void end() {
        locks.close();
        node.close();
    }

    private static <T> T soon(CompletableFuture<T> future) throws Exception {
        return future.get(20, TimeUnit.SECONDS);
    }

    @Test
    void aLaterHolderHasALargerToken() throws Exception {
        long first;
        try (LockHandle lock = locks.lock(key)) {
            first = lock.token();
            assertTrue(lock.isValid());
            assertTrue(lock.validFor().compareTo(Duration.ofSeconds(10)) < 0);
            assertTrue(node.isHeld(key));
        }
        assertFalse(node.isHeld(key));
        try (LockHandle lock = locks.lock(key)) {
            assertTrue(lock.token() > first);
        }
    }

    @Test
    void aHeldLockNamesItsHolder() throws Exception {
        try (LockHandle lock = locks.lock(key, MINUTE.note("nightly"))) {
            assertEquals(Optional.empty(), locks.tryLock(key));
            NotAcquiredException refused = assertThrows(NotAcquiredException.class, () -> locks.lock(key, NO_WAIT));
            assertEquals(NotAcquiredException.Reason.HELD, refused.reason());
            assertEquals("nightly", refused.holder().orElseThrow().note());
            assertEquals(lock.token(), refused.holder().orElseThrow().token());
            assertEquals(key, refused.key());
        }
    }

    @Test
    void aWaitEndsWithTheReleaseByAnotherThread() throws Exception {
        LockHandle first = locks.lock(key);
        CompletableFuture<LockHandle> second = locks.lockAsync(key, MINUTE);
        node.awaitWaiters(key, 1);
        assertEquals(Release.HELD, soon(CompletableFuture.supplyAsync(first::release)));
        assertTrue(soon(second).token() > first.token());
        assertEquals(Release.HELD, soon(second).release());
        assertEquals(Release.HELD, soon(second).release(), "it has one outcome");
    }

    @Test
    void aWaitThatIsOverTimeLeavesNothing() throws Exception {
        try (LockHandle lock = locks.lock(key)) {
            NotAcquiredException refused = assertThrows(NotAcquiredException.class,
                    () -> locks.lock(key, MINUTE.waitUpTo(Duration.ofMillis(100))));
            assertEquals(NotAcquiredException.Reason.TIMED_OUT, refused.reason());
            node.awaitWaiters(key, 0);
            assertTrue(lock.isValid());
        }
        node.awaitFree(key);
    }

    @Test
    void aCancelledWaitLeavesNothing() throws Exception {
        LockHandle lock = locks.lock(key);
        CompletableFuture<LockHandle> waiting = locks.lockAsync(key, MINUTE);
        node.awaitWaiters(key, 1);
        waiting.cancel(true);
        assertThrows(CancellationException.class, waiting::join);
        node.awaitWaiters(key, 0);
        lock.close();
        node.awaitFree(key);
    }

    @Test
    void anInterruptedWaitLeavesNothing() throws Exception {
        LockHandle lock = locks.lock(key);
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                locks.lock(key);
                interrupted.complete(false);
            } catch (InterruptedException e) {
                interrupted.complete(true);
            }
        });
        thread.start();
        node.awaitWaiters(key, 1);
        thread.interrupt();
        assertTrue(soon(interrupted));
        node.awaitWaiters(key, 0);
        lock.close();
        node.awaitFree(key);
    }

    @Test
    void aLockThatIsBrokenIsLost() throws Exception {
        LockHandle lock = locks.lock(key, LockOptions.defaults().ttl(Duration.ofSeconds(3)));
        CompletableFuture<Loss> lost = lock.lost();
        node.say("LOCK.BREAK", key);
        assertEquals(LossReason.TAKEN_AWAY, soon(lost).reason());
        assertFalse(lock.isValid());
        LockLostException thrown = assertThrows(LockLostException.class, lock::close);
        assertEquals(LossReason.TAKEN_AWAY, thrown.loss().reason());
        assertEquals(Release.LOST, lock.release());
    }

    @Test
    void aLockThatNobodyExtendsIsLost() throws Exception {
        LockHandle lock = locks.lock(key, LockOptions.defaults().ttl(Duration.ofMillis(200)).autoExtend(false));
        assertEquals(LossReason.NOT_EXTENDED, soon(lock.lost()).reason());
        assertThrows(LockLostException.class, lock::extend);
    }

    @Test
    void aLockIsExtendedUntilItsRelease() throws Exception {
        LockHandle lock = locks.lock(key, LockOptions.defaults().ttl(Duration.ofSeconds(1)));
        long until = System.nanoTime() + Duration.ofMillis(2500).toNanos();
        Node.eventually("two leases pass", () -> {
            assertTrue(lock.isValid());
            return System.nanoTime() > until;
        });
        CompletableFuture<Loss> lost = lock.lost();
        assertEquals(Release.HELD, lock.release());
        assertThrows(CancellationException.class, () -> soon(lost));
    }

    @Test
    void aLockGoesOnOverABrokenConnection() throws Exception {
        // A client of its own: the others' connections break too, and their tests run beside this one.
        try (Node other = Node.start(); Palisade own = Palisade.open(other.url())) {
            LockHandle lock = own.lock(key, MINUTE);
            CompletableFuture<LockHandle> waiting = own.lockAsync(key, MINUTE);
            other.awaitWaiters(key, 1);
            other.disconnect();
            lock.extend();
            assertEquals(Release.HELD, lock.release());
            assertTrue(soon(waiting).isValid());
        }
    }

    @Test
    void readersShareALock() throws Exception {
        try (LockHandle one = locks.readLock(key); LockHandle other = locks.readLock(key)) {
            assertEquals(Optional.empty(), locks.tryLock(key));
            assertTrue(one.isValid() && other.isValid());
            assertThrows(NotAcquiredException.class, one::upgrade);
        }
        try (LockHandle writer = locks.lock(key)) {
            writer.downgrade();
            locks.readLock(key).close();
            writer.upgrade();
            assertEquals(Optional.empty(), locks.tryLock(key));
        }
    }

    @Test
    void permitsHaveNumbers() throws Exception {
        Semaphore permits = locks.semaphore(key, 2);
        try (LockHandle one = permits.acquire(); LockHandle two = permits.acquire()) {
            assertEquals(3, one.number() + two.number());
            assertEquals(Optional.empty(), permits.tryAcquire());
        }
        permits.tryAcquire().orElseThrow().close();
    }

    @Test
    void aReenteredLockIsFreeOnceAllAreReleased() throws Exception {
        LockHandle outer = locks.lock(key);
        LockHandle inner = outer.reenter();
        assertEquals(outer.token(), inner.token());
        inner.close();
        assertTrue(outer.isValid());
        assertTrue(node.isHeld(key));
        outer.close();
        node.awaitFree(key);
    }

    @Test
    void aJobRunsOnceWithinItsLeastTime() throws Exception {
        Duration least = Duration.ofSeconds(30);
        assertEquals(Optional.of("done"), locks.once(key, least, lock -> "done"));
        assertEquals(Optional.empty(), locks.once(key, least, lock -> "again"));
        assertTrue(node.isHeld(key));
    }

    @Test
    void aClosedPalisadeReleasesAll() throws Exception {
        Palisade own = Palisade.open(node.url());
        LockHandle lock = own.lock(key);
        CompletableFuture<LockHandle> waiting = own.lockAsync(key, MINUTE);
        node.awaitWaiters(key, 1);
        own.close();
        assertEquals(LossReason.CLOSED, soon(lock.lost()).reason());
        assertTrue(assertThrows(Exception.class, () -> soon(waiting)).getCause() instanceof ClosedException);
        node.awaitFree(key);
        assertThrows(ClosedException.class, () -> own.lock(key));
    }

    @org.junit.jupiter.api.RepeatedTest(30)
    void aClosedPalisadeLeavesNothingOfItsWaits() throws Exception {
        Palisade own = Palisade.open(node.url());
        own.lock(key, MINUTE);
        List<CompletableFuture<LockHandle>> waiting = waitFor(own, 50);
        own.close();
        assertFalse(node.isHeld(key));
        assertEquals(0, node.waiters(key));
        for (CompletableFuture<LockHandle> one : waiting) {
            assertTrue(assertThrows(Exception.class, () -> soon(one)).getCause() instanceof ClosedException);
        }
    }

    @org.junit.jupiter.api.RepeatedTest(30)
    void aClosedPalisadeLeavesNothingOfAGrantOnTheWay() throws Exception {
        for (int round = 0; round < 20; round++) {
            LockHandle holder = locks.lock(key, MINUTE);
            Palisade own = Palisade.open(node.url());
            List<CompletableFuture<LockHandle>> waiting = waitFor(own, 5);
            CompletableFuture<Release> released = holder.releaseAsync();
            Server.passes(Duration.ofNanos(50_000L * round));
            own.close();
            soon(released);
            assertFalse(node.isHeld(key));
            assertEquals(0, node.waiters(key));
            // One of them may have had the lock before.
            CompletableFuture.allOf(waiting.toArray(new CompletableFuture<?>[0])).handle((all, failure) -> null).get();
        }
    }

    private List<CompletableFuture<LockHandle>> waitFor(Palisade own, int number) {
        List<CompletableFuture<LockHandle>> waiting = Stream.generate(() -> own.lockAsync(key, MINUTE)).limit(number).toList();
        node.awaitWaiters(key, number);
        return waiting;
    }

    @Test
    void whatDependsOnAFutureMayBlock() throws Exception {
        CompletableFuture<Release> released = locks.lockAsync(key, MINUTE).thenApply(LockHandle::release);
        assertEquals(Release.HELD, soon(released));
    }

}
