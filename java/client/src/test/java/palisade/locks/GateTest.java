package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Commands that a lock sends through a gate: what passes, and that nothing lands of what does not. */
class GateTest {

    private static final LockOptions MINUTE = LockOptions.defaults().ttl(Duration.ofMinutes(1));

    private static Node node;

    private static Palisade locks;

    private static StatefulRedisConnection<String, String> data;

    private final String key = Server.newKey();

    private final String record = key + ":record";

    private final Gate gate = Gate.named(key + ":gate");

    @BeforeAll
    static void start() {
        node = Node.start();
        locks = Palisade.open(node.url());
        data = node.outside();
    }

    @AfterAll
    static void end() {
        locks.close();
        node.close();
    }

    @Test
    void commandsPassUntilANewerHolderHasCome() throws Exception {
        try (LockHandle late = locks.lock(key)) {
            var fenced = late.fenced(data, gate);
            assertEquals(2, fenced.sync().hset(record, Map.of("state", "open", "price", "3")));
            assertEquals(Map.of("state", "open", "price", "3"), fenced.sync().hgetall(record));
            assertNull(fenced.sync().get(key + ":missing"));
            assertEquals("listpack", fenced.async().objectEncoding(record).get());
            String wrong = assertThrows(RedisCommandExecutionException.class, () -> fenced.sync().get(record)).getMessage();
            assertTrue(wrong.startsWith("WRONGTYPE"), wrong);
            node.say("LOCK.GATE", key + ":gate", String.valueOf(late.token() + 5));
            FencedException refused = assertThrows(FencedException.class, () -> fenced.sync().hset(record, "state", "late"));
            assertEquals(late.token() + 5, refused.seen());
            assertEquals(key, refused.key());
            Throwable later = assertThrows(ExecutionException.class, () -> fenced.async().del(record).get()).getCause();
            assertSame(FencedException.class, later.getClass());
            assertEquals("open", data.sync().hget(record, "state"));
            fenced.close();
            assertTrue(data.isOpen());
        }
    }

    @Test
    void aReleasedLockSendsNothing() throws Exception {
        LockHandle lock = locks.lock(key);
        var fenced = lock.fenced(data, gate);
        lock.close();
        assertThrows(ReleasedException.class, () -> fenced.sync().set(record, "late"));
        assertEquals(0, data.sync().exists(record, key + ":gate"));
    }

    @Test
    void aRefusalMakesTheLockAskWhetherItIsHeld() throws Exception {
        LockHandle lock = locks.lock(key, MINUTE);
        node.say("LOCK.BREAK", key);
        node.say("LOCK.GATE", key + ":gate", String.valueOf(lock.token() + 1));
        assertThrows(FencedException.class, () -> lock.fenced(data, gate).sync().set(record, "late"));
        assertEquals(LossReason.TAKEN_AWAY, Server.soon(lock.lost()).reason());
    }

    @Test
    void heldAsksTheLockItself() throws Exception {
        LockHandle lock = locks.lock(key, MINUTE);
        var fenced = lock.fenced(data, Gate.HELD);
        assertEquals("OK", fenced.sync().set(record, "open"));
        node.say("LOCK.BREAK", key);
        LockLostException lost = assertThrows(LockLostException.class, () -> fenced.sync().set(record, "late"));
        assertEquals(LossReason.TAKEN_AWAY, lost.loss().reason());
        assertEquals("open", data.sync().get(record));
        assertThrows(IllegalArgumentException.class, () -> Gate.HELD.keep(Duration.ofDays(1)));
    }

    @Test
    void readersAndPermitsComeAsSuch() throws Exception {
        try (LockHandle reader = locks.readLock(key); LockHandle other = locks.readLock(key)) {
            assertNull(other.fenced(data, gate).sync().get(record));
            assertNull(reader.fenced(data, gate).sync().get(record));
            assertEquals(other.token(), node.info(key + ":gate", "shared"));
        }
        Semaphore seats = locks.semaphore(key + ":seats", 2);
        try (LockHandle first = seats.acquire(); LockHandle second = seats.acquire()) {
            assertEquals(1, second.fenced(data, Gate.named(key + ":2")).sync().incr(record));
            assertEquals(2, first.fenced(data, Gate.named(key + ":2")).sync().incr(record));
        }
        try (LockHandle only = locks.semaphore(key + ":only", 1).acquire()) {
            assertEquals(3, only.fenced(data, Gate.HELD).sync().incr(record));
        }
    }

    @Test
    void aWriterWhoseDowngradeIsNotAnsweredPassesAsAReader() throws Exception {
        try (Palisade own = Palisade.over(new Unanswering("LOCK.CONVERT", node)).build(); LockHandle lock = own.lock(key, MINUTE)) {
            assertEquals("OK", lock.fenced(data, gate).sync().set(record, "written"));
            assertThrows(UnavailableException.class, lock::downgrade);
            try (LockHandle reader = locks.readLock(key)) {
                assertEquals("written", reader.fenced(data, gate).sync().get(record));
            }
            assertEquals("written", lock.fenced(data, gate).sync().get(record));
        }
    }

    @Test
    void aWriterWhoseDowngradeIsRefusedPassesAsAReader() throws Exception {
        node.say("ACL", "SETUSER", "writing", "on", ">secret", "+@all", "-lock.convert", "~*", "&*");
        try (Palisade own = Palisade.open(node.url().replace("://", "://writing:secret@")); LockHandle lock = own.lock(key, MINUTE)) {
            assertThrows(MisconfiguredException.class, lock::downgrade);
            assertNull(lock.fenced(data, gate).sync().get(record));
            assertEquals(lock.token(), node.info(key + ":gate", "shared"));
        }
    }

    @Test
    void keepBoundsTheLifeOfAGate() throws Exception {
        try (LockHandle lock = locks.lock(key)) {
            lock.fenced(data, gate.keep(Duration.ofSeconds(90))).sync().set(record, "open");
        }
        long kept = node.info(key + ":gate", "keep");
        assertTrue(kept > 60_000 && kept < 102_000, () -> "keep " + kept);
    }

    @Test
    void aServerWithoutTheModuleIsNamed() throws Exception {
        try (Node bare = Node.withoutModule(); LockHandle lock = locks.lock(key)) {
            var fenced = lock.fenced(bare.outside(), gate);
            String said = assertThrows(MisconfiguredException.class, () -> fenced.sync().set(record, "open")).getMessage();
            assertTrue(said.contains("load the Palisade module there"), said);
            assertEquals(0, bare.outside().sync().exists(record));
        }
    }

    @Test
    void aUserWithLockGateAloneWritesThroughItAndNotAroundIt() throws Exception {
        node.say("ACL", "SETUSER", "writer", "on", ">secret", "-@all", "+lock.gate", "~invoice:*");
        RedisClient client = RedisClient.create(node.url().replace("://", "://writer:secret@"));
        try (var writer = client.connect(); LockHandle lock = locks.lock(key)) {
            assertEquals("OK", lock.fenced(writer, Gate.named("invoice:gate")).sync().set("invoice:43", "paid"));
            assertThrows(RedisCommandExecutionException.class, () -> writer.sync().set("invoice:43", "around"));
        }
        client.shutdown();
        assertEquals("paid", data.sync().get("invoice:43"));
    }

    /** Loses the answers to one command. */
    private record Unanswering(String command, Transport below) implements Transport {

        Unanswering(String command, Node node) {
            this(command, new LettuceTransport(RedisURI.create(node.url()), null, ClientOptions.create(), Server.PATIENCE));
        }

        @Override
        public String address() {
            return below.address();
        }

        @Override
        public CompletableFuture<Object> send(List<String> words, Duration limit) {
            CompletableFuture<Object> answer = below.send(words, limit);
            return words.get(0).equals(command) ? answer.thenApply(reply -> {
                throw new UnavailableException("the answer was lost", false, null);
            }) : answer;
        }

        @Override
        public CompletableFuture<Connection> connect() {
            return below.connect();
        }

        @Override
        public void close() {
            below.close();
        }

    }

}
