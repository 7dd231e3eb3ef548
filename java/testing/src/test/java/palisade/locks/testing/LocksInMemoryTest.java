package palisade.locks.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.function.ToLongFunction;
import org.junit.jupiter.api.Test;
import palisade.locks.HandOver;
import palisade.locks.Leadership;
import palisade.locks.LockHandle;
import palisade.locks.LockLostException;
import palisade.locks.LockOptions;
import palisade.locks.LossReason;
import palisade.locks.Node;
import palisade.locks.NotAcquiredException;
import palisade.locks.Observation;
import palisade.locks.Palisade;
import palisade.locks.Server;

class LocksInMemoryTest {

    private static final LockOptions NOW = LockOptions.defaults().waitUpTo(Duration.ZERO);

    /** A program's use of locks, and what comes of each step. */
    private static final class Story {

        final List<String> told = new ArrayList<>();

        private final Palisade locks;

        private final ToLongFunction<String> waiting;

        Story(Palisade locks, ToLongFunction<String> waiting) {
            this.locks = locks;
            this.waiting = waiting;
        }

        <T> T play(String step, Callable<T> work) {
            try {
                T result = work.call();
                told.add(step + ": " + (result instanceof LockHandle || result instanceof Leadership ? "held" : result));
                return result;
            } catch (Exception e) {
                told.add(step + ": " + e.getClass().getSimpleName());
                return null;
            }
        }

        void awaitWaiting(int number) {
            Server.eventually(number + " wait", () -> waiting.applyAsLong("k") == number);
        }

        void playLocks() throws Exception {
            LockHandle first = play("lock", () -> locks.lock("k", LockOptions.defaults().note("the first")));
            play("try", () -> locks.tryLock("k"));
            try {
                locks.lock("k", NOW);
            } catch (NotAcquiredException e) {
                told.add(e.holder().orElseThrow().note() + (e.holder().orElseThrow().token() == first.token()));
            }
            play("wait", () -> locks.lock("k", NOW.waitUpTo(Duration.ofMillis(20))));
            CompletableFuture<LockHandle> cancelled = locks.lockAsync("k", LockOptions.defaults());
            awaitWaiting(1);
            cancelled.cancel(true);
            awaitWaiting(0);
            LockHandle inner = play("reenter", first::reenter);
            play("outer", first::release);
            play("still held", () -> locks.tryLock("k"));
            CompletableFuture<LockHandle> next = locks.lockAsync("k", LockOptions.defaults());
            awaitWaiting(1);
            play("inner", inner::release);
            LockHandle second = play("next", () -> Server.soon(next));
            told.add("rises: " + (second.token() > first.token()));
            second.downgrade();
            LockHandle reader = play("read", () -> locks.readLock("k", NOW));
            assertThrows(NotAcquiredException.class, second::upgrade);
            play("release", reader::release);
            second.upgrade();
            play("read", () -> locks.readLock("k", NOW));
            play("release", second::release);
        }

        void playPermits() {
            LockHandle one = play("permit", () -> locks.semaphore("s", 2).acquire());
            LockHandle two = play("permit", () -> locks.semaphore("s", 2).acquire());
            told.add("numbers: " + (one.number() + two.number()));
            play("permit", () -> locks.semaphore("s", 2).tryAcquire());
            play("lock", () -> locks.tryLock("s"));
            play("release", one::release);
            play("more", () -> locks.semaphore("s", 3).tryAcquire().orElseThrow());
            play("short", () -> locks.lock("short", NOW.ttl(Duration.ofSeconds(1)).autoExtend(false)).lost().get().reason());
            play("free", () -> locks.lock("short"));
        }

        void playElection() throws Exception {
            try (Observation observation = locks.election("e").observe()) {
                play("nobody", () -> Server.soon(observation.nextAsync()));
                Leadership leader = play("campaign", () -> locks.election("e").campaign("10.0.0.1"));
                play("observed", () -> Server.soon(observation.nextAsync()).orElseThrow().value());
                leader.proclaim("10.0.0.2");
                play("observed", () -> Server.soon(observation.nextAsync()).orElseThrow().sequence());
                play("term", () -> locks.election("e").leader().orElseThrow().term() == leader.term());
                leader.resign();
                play("nobody", () -> Server.soon(observation.nextAsync()));
            }
            HandOver handed = locks.lock("h").handOver();
            play("adopt", () -> locks.adopt(handed)).close();
            play("adopt again", () -> locks.adopt(handed));
        }

        void playAll() throws Exception {
            playLocks();
            playPermits();
            playElection();
        }

    }

    @Test
    void theFakeAnswersAsAServerDoes() throws Exception {
        LocksInMemory memory = new LocksInMemory();
        try (Node node = Node.start(); Palisade real = Palisade.open(node.url()); Palisade fake = memory.open()) {
            Story onServer = new Story(real, key -> node.waiters(key));
            onServer.playAll();
            Story inMemory = new Story(fake, memory::waiting);
            inMemory.playAll();
            assertEquals(onServer.told, inMemory.told);
        }
    }

    /** A program under test: it stops when its lock is lost. */
    private static int importAll(Palisade locks, Runnable each) throws InterruptedException {
        try (LockHandle lock = locks.lock("import")) {
            for (int done = 0; done < 3; done++) {
                if (!lock.isValid()) {
                    return done;
                }
                each.run();
            }
        }
        return 3;
    }

    @Test
    void aProgramStopsWhenItsLockIsTakenAway() {
        LocksInMemory memory = new LocksInMemory();
        try (Palisade locks = memory.open()) {
            int[] done = {0};
            assertThrows(LockLostException.class, () -> importAll(locks, () -> {
                done[0]++;
                memory.takeAway("import");
            }));
            assertEquals(1, done[0]);
        }
    }

    @Test
    void aLockIsTakenAwayAtOnceAndTheNextHasIt() throws Exception {
        LocksInMemory memory = new LocksInMemory();
        try (Palisade one = memory.open(); Palisade other = memory.open()) {
            LockHandle lock = one.lock("k", LockOptions.defaults().ttl(Duration.ofHours(1)));
            CompletableFuture<LockHandle> next = other.lockAsync("k", LockOptions.defaults());
            Server.eventually("it waits", () -> memory.waiting("k") == 1);
            memory.takeAway("k");
            assertFalse(lock.isValid());
            assertEquals(LossReason.TAKEN_AWAY, Server.soon(lock.lost()).reason());
            assertTrue(Server.soon(next).isValid());
        }
        assertFalse(memory.isHeld("k"));
    }

    @Test
    void aLockIsHeldByAnotherProgram() throws Exception {
        LocksInMemory memory = new LocksInMemory();
        try (Palisade locks = memory.open()) {
            Runnable release = memory.holdElsewhere("k");
            assertEquals(Optional.empty(), locks.tryLock("k"));
            assertThrows(IllegalStateException.class, () -> memory.holdElsewhere("k"));
            release.run();
            locks.tryLock("k").orElseThrow().close();
        }
    }

}
