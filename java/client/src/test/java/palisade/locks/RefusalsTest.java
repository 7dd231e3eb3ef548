package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RefusalsTest {

    private static final LockOptions DEFAULTS = LockOptions.defaults();

    @Test
    void aTimeInAnotherUnitIsRefused() {
        String said = assertThrows(IllegalArgumentException.class, () -> DEFAULTS.ttl(Duration.ofMillis(10))).getMessage();
        assertTrue(said.contains("Duration.ofSeconds"), said);
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.ttl(Duration.ofDays(2)));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.ttl(Duration.ofNanos(1_000_000_001)));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.waitUpTo(Duration.ofMillis(-1)));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.note("n".repeat(1025)));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.holderId("no spaces"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"redis://a,redis://b", "redis://a redis://b", "redis://:secret@a,b", "redis+cluster://a",
        "redis-sentinel://:secret@a", "http://a", "secret", "me:secret@a:1,b:2"})
    void anAddressThatIsNotOfOneServerIsRefused(String address) {
        String said = assertThrows(IllegalArgumentException.class, () -> Palisade.open(address)).getMessage();
        assertFalse(said.contains("secret"), said);
        assertTrue(!address.contains(",") || said.contains("palisade agent"), said);
    }

    @Test
    void aServerWithoutTheModuleIsNamed() {
        try (Node bare = Node.withoutModule(); Palisade locks = Palisade.open(bare.url())) {
            MisconfiguredException refused = assertThrows(MisconfiguredException.class, () -> locks.lock("orders:42"));
            assertTrue(refused.getMessage().contains("load the Palisade module"), refused.getMessage());
        }
    }

    @Test
    void aServerThatIsAwayIsNamed() {
        try (Palisade locks = Palisade.open("redis://127.0.0.1:1")) {
            UnavailableException refused = assertThrows(UnavailableException.class,
                    () -> locks.lock("orders:42", DEFAULTS.waitUpTo(Duration.ofMillis(100))));
            assertTrue(refused.getMessage().startsWith("orders:42: redis://127.0.0.1:1 cannot be reached"), refused.getMessage());
        }
    }

    @Test
    void aTokenThatOthersWouldRoundIsRefused() {
        try (Palisade locks = Palisade.over(new Answering(1L << 53)).build()) {
            assertThrows(UnexpectedReplyException.class, () -> locks.lock("orders:42"));
        }
        try (Palisade locks = Palisade.over(new Answering(List.of("text"))).build()) {
            assertThrows(UnexpectedReplyException.class, () -> locks.tryLock("orders:42"));
        }
    }

    @Test
    void theFirstWordDecides() {
        Answering transport = new Answering(null);
        assertEquals(Duration.ofMillis(500), ((GuardedException) transport.refusal("GUARDED 500 and a text")).retryAfter());
        assertEquals(33, ((FencedException) transport.refusal("FENCED 33 and a text")).seen());
        assertEquals("OWNED", ((ServerException) transport.refusal("OWNED by you")).code());
        assertEquals(MisconfiguredException.class, transport.refusal("NOPERM this user").getClass());
        assertEquals(NoQuorumException.class, transport.refusal("NOQUORUM of nodes").getClass());
    }

    /** Gives one answer to all commands. */
    private record Answering(Object reply) implements Transport {

        @Override
        public String address() {
            return "test";
        }

        @Override
        public CompletableFuture<Object> send(List<String> words, Duration limit) {
            return CompletableFuture.completedFuture(reply);
        }

        @Override
        public CompletableFuture<Connection> connect() {
            return CompletableFuture.failedFuture(new UnavailableException("test", false, null));
        }

        @Override
        public void close() {
        }

    }

}
