package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.api.Test;

class DualLockTest {

    private static final LockOptions NOW = LockOptions.defaults().waitUpTo(Duration.ZERO);

    private static Node node;

    private static Palisade locks;

    private final String key = Server.newKey();

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

    /** A lock of another library on one node, which tries once. */
    private record OldLock(RedisCommands<String, String> data, String key, String value) implements Lock {

        private static final String RELEASE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

        @Override
        public boolean tryLock() {
            return data.set(key, value, SetArgs.Builder.nx().ex(60)) != null;
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) {
            return tryLock();
        }

        @Override
        public void lockInterruptibly() {
            if (!tryLock()) {
                throw new IllegalStateException("it would wait");
            }
        }

        @Override
        public void lock() {
            lockInterruptibly();
        }

        @Override
        public void unlock() {
            if (data.<Long>eval(RELEASE, ScriptOutputType.INTEGER, new String[] {key}, value) == 0) {
                throw new IllegalMonitorStateException("the old lock was no longer held");
            }
        }

        @Override
        public Condition newCondition() {
            throw new UnsupportedOperationException();
        }

    }

    private OldLock old(String value) {
        return new OldLock(node.outside().sync(), key, value);
    }

    /** Tries to acquire what programs of a step of the roll-out hold. */
    private Optional<Runnable> acquire(String step, String value) throws InterruptedException {
        OldLock old = old(value);
        try {
            return switch (step) {
                case "old" -> old.tryLock() ? Optional.of(old::unlock) : Optional.empty();
                case "both" -> Optional.of(locks.lockBoth(old, key + ":new", NOW)::close);
                default -> locks.tryLock(key + ":new").map(lock -> lock::close);
            };
        } catch (NotAcquiredException e) {
            return Optional.empty();
        }
    }

    /** Plays each pair of versions. The last two are what a skipped step does. */
    @ParameterizedTest
    @CsvSource({"old, both, true", "both, old, true", "both, both, true", "both, new, true", "new, both, true", "old, new, false",
        "new, old, false"})
    void oneStepOfTheRollOutBesideTheNextKeepsExclusion(String first, String second, boolean excludes) throws Exception {
        Runnable unlock = acquire(first, "first").orElseThrow();
        Optional<Runnable> other = acquire(second, "second");
        assertEquals(excludes, other.isEmpty());
        other.ifPresent(Runnable::run);
        unlock.run();
        // Who was refused has left nothing behind, in either lock.
        acquire("both", "third").orElseThrow().run();
    }

    @Test
    void theLossOfEitherLockIsReported() throws Exception {
        DualLock lost = locks.lockBoth(old("me"), key + ":new", LockOptions.defaults());
        node.say("DEL", key);
        assertThrows(IllegalMonitorStateException.class, lost::close);
        DualLock broken = locks.lockBoth(old("me"), key + ":new", LockOptions.defaults());
        node.say("LOCK.BREAK", key + ":new");
        assertThrows(LockLostException.class, broken::close);
        assertEquals(0L, node.say("EXISTS", key));
        DualLock both = locks.lockBoth(old("me"), key + ":new", LockOptions.defaults());
        node.say("DEL", key);
        node.say("LOCK.BREAK", key + ":new");
        Throwable[] also = assertThrows(LockLostException.class, both::close).getSuppressed();
        assertEquals(IllegalMonitorStateException.class, also[0].getClass());
    }

}
