package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static palisade.locks.Server.soon;

import java.time.Duration;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ElectionTest {

    private static final LockOptions OPTIONS = LockOptions.defaults().ttl(Duration.ofMinutes(1));

    private enum At {

        NODE, AGENT

    }

    private static final Map<At, Server> SERVERS = new EnumMap<>(At.class);

    private final String name = Server.newKey();

    @BeforeAll
    static void start() {
        SERVERS.put(At.NODE, Node.start());
        SERVERS.put(At.AGENT, Agent.start());
    }

    @AfterAll
    static void end() {
        SERVERS.values().forEach(Server::close);
    }

    private static Palisade open(At at) {
        return Palisade.builder(SERVERS.get(at).url()).answerWithin(Duration.ofSeconds(10)).build();
    }

    private static Optional<String> next(Observation observation) throws Exception {
        return soon(observation.nextAsync()).map(Leader::value);
    }

    @ParameterizedTest
    @EnumSource
    void anElectionHasOneLeaderWhoProclaimsAndResigns(At at) throws Exception {
        try (Palisade locks = open(at); Palisade others = open(at); Observation observation = locks.election(name).observe()) {
            Election election = locks.election(name);
            assertEquals(Optional.empty(), election.leader());
            assertEquals(Optional.empty(), next(observation));
            Leadership first = election.campaign("10.0.0.1");
            assertEquals(Optional.of("10.0.0.1"), next(observation));
            first.proclaim("10.0.0.1:80");
            assertEquals(Optional.of("10.0.0.1:80"), next(observation));
            assertEquals(Optional.of(new Leader(first.term(), 2, "10.0.0.1:80")), election.leader());
            CompletableFuture<Leadership> waiting = others.election(name).campaignAsync("10.0.0.2", OPTIONS);
            SERVERS.get(at).awaitWaiters(name, 1);
            assertEquals(Release.HELD, first.resign());
            Leadership second = soon(waiting);
            assertTrue(second.term() > first.term());
            assertThrows(ReleasedException.class, () -> first.proclaim("late"));
            second.close();
            for (Optional<String> seen = Optional.of(""); seen.isPresent(); seen = next(observation)) {
                // The end of the second one is reported last.
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void severalLocksAreAcquiredInTheOrderOfTheirBytes(At at) throws Exception {
        // In UTF-16 the second is smaller than the first.
        String one = name + ":\uFF5E";
        String other = name + ":\uD83D\uDE00";
        try (Palisade locks = open(at)) {
            LockGroup both = locks.lockAll(List.of(other, one, other));
            assertEquals(List.of(one, other), both.locks().stream().map(LockHandle::key).toList());
            both.locks().get(0).release();
            assertFalse(both.isValid());
            LockOptions brief = OPTIONS.waitUpTo(Duration.ofMillis(50));
            assertThrows(NotAcquiredException.class, () -> locks.lockAll(List.of(one, other), brief));
            SERVERS.get(at).awaitFree(one);
            both.locks().get(1).release();
            assertThrows(IllegalArgumentException.class, () -> locks.lockAll(List.of()));
        }
    }

    @ParameterizedTest
    @EnumSource
    void aLockIsHandedOverToAWorker(At at) throws Exception {
        Palisade enqueuer = open(at);
        try (Palisade worker = open(at)) {
            LockHandle lock = enqueuer.lock(name, LockOptions.defaults().ttl(Duration.ofSeconds(2)));
            HandOver handed = lock.handOver();
            assertThrows(ReleasedException.class, lock::extend);
            try (LockHandle reader = worker.readLock(name + ":read")) {
                assertThrows(IllegalStateException.class, reader::handOver);
            }
            // The end of the one who enqueues leaves the lock to the worker, which extends it.
            enqueuer.close();
            LockHandle adopted = worker.adopt(handed, LockOptions.defaults().ttl(Duration.ofMillis(600)));
            assertTrue(adopted.token() >= handed.token());
            Server.passes(Duration.ofMillis(900));
            assertTrue(adopted.isValid());
            adopted.close();
            SERVERS.get(at).awaitFree(name);
            assertThrows(LockLostException.class, () -> worker.adopt(handed));
            try (LockHandle later = worker.lock(name)) {
                HandOver wrong = new HandOver(name, later.owner(), later.token() + 1_000_000_000);
                assertThrows(LockLostException.class, () -> worker.adopt(wrong));
                assertTrue(later.isValid());
            }
            assertThrows(IllegalArgumentException.class, () -> new HandOver(name, "", 1));
            assertThrows(IllegalArgumentException.class, () -> new HandOver(name, "owner", 1L << 53));
        }
    }

    @Test
    void whoOnlyHoldsTheLockIsNoLeader() throws Exception {
        try (Palisade locks = open(At.NODE); LockHandle lock = locks.lock(name, OPTIONS.note("term 5 me"))) {
            assertEquals(Optional.empty(), locks.election(name).leader());
            assertTrue(lock.isValid());
        }
    }

    @Test
    void aLeaderThatWasBrokenProclaimsNothing() throws Exception {
        try (Palisade locks = open(At.NODE)) {
            Leadership leader = locks.election(name).campaign("a", OPTIONS);
            SERVERS.get(At.NODE).say("LOCK.BREAK", name);
            assertThrows(LockLostException.class, () -> leader.proclaim("b"));
            assertThrows(LockLostException.class, leader::close);
        }
    }

    @Test
    void proclamationsGoBehindLaterOnes() throws Exception {
        try (Palisade locks = open(At.NODE); Leadership leader = locks.election(name).campaign("1")) {
            SERVERS.get(At.NODE).say("LOCK.NOTE", name, leader.lock().owner(), "another text", "SEQ", "7");
            leader.proclaim("8");
            assertEquals(Optional.of(new Leader(leader.term(), 8, "8")), locks.election(name).leader());
            assertThrows(IllegalArgumentException.class, () -> leader.proclaim("v".repeat(1003)));
        }
    }

    @Test
    void aGuardedServerDoesNotKnowWhoLeads() throws Exception {
        try (Node own = Node.start(); Palisade locks = Palisade.open(own.url());
                Observation observation = locks.election(name).observe()) {
            assertEquals(Optional.empty(), next(observation));
            own.say("LOCK.GUARD", "ARM", "60000");
            assertThrows(GuardedException.class, () -> locks.election(name).leader());
            CompletableFuture<Optional<Leader>> change = observation.nextAsync();
            own.lift();
            locks.election(name).campaign("after", OPTIONS);
            assertEquals("after", soon(change).orElseThrow().value());
        }
    }

    @Test
    void anObservationGoesOnOverABrokenConnection() throws Exception {
        try (Node own = Node.start(); Palisade locks = Palisade.open(own.url());
                Observation observation = locks.election(name).observe()) {
            assertEquals(Optional.empty(), next(observation));
            CompletableFuture<Optional<Leader>> change = observation.nextAsync();
            own.disconnect();
            locks.election(name).campaign("after", OPTIONS);
            assertEquals("after", soon(change).orElseThrow().value());
        }
    }

    @Test
    void anObservationEndsWithItsCloseAndWithThePalisade() throws Exception {
        Palisade locks = open(At.NODE);
        Observation one = locks.election(name).observe();
        Observation other = locks.election(name).observe();
        assertEquals(Optional.empty(), next(one));
        assertEquals(Optional.empty(), next(other));
        CompletableFuture<Optional<Leader>> change = one.nextAsync();
        one.close();
        assertThrows(CancellationException.class, () -> soon(change));
        CompletableFuture<Optional<Leader>> last = other.nextAsync();
        locks.close();
        assertEquals(ClosedException.class, assertThrows(Exception.class, () -> soon(last)).getCause().getClass());
    }

    @Test
    void aCampaignThatIsGivenUpLeavesNothing() throws Exception {
        try (Palisade locks = open(At.NODE)) {
            Leadership leader = locks.election(name).campaign("a");
            CompletableFuture<Leadership> waiting = locks.election(name).campaignAsync("b", OPTIONS);
            SERVERS.get(At.NODE).awaitWaiters(name, 1);
            waiting.cancel(true);
            SERVERS.get(At.NODE).awaitWaiters(name, 0);
            LockOptions brief = OPTIONS.waitUpTo(Duration.ofMillis(50));
            assertThrows(NotAcquiredException.class, () -> locks.election(name).campaign("c", brief));
            leader.close();
            SERVERS.get(At.NODE).awaitFree(name);
        }
    }

}
