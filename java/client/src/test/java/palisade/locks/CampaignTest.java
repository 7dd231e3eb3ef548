package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static palisade.locks.Server.soon;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class CampaignTest {

    /** What an agent answers while too few nodes can be reached. */
    private static final String NO_QUORUM = "NOQUORUM 1 of 3 nodes answered, and 2 are needed";

    private static final LockOptions MINUTE = LockOptions.defaults().ttl(Duration.ofMinutes(1));

    private static Node node;

    private final String name = Server.newKey();

    private final Refusing way = new Refusing(node);

    private final Palisade locks = Palisade.over(way).build();

    @BeforeAll
    static void start() {
        node = Node.start();
    }

    @AfterAll
    static void end() {
        node.close();
    }

    @AfterEach
    void close() {
        locks.close();
    }

    /** Begins a campaign, and returns once two of its proclamations were refused. */
    private CompletableFuture<Leadership> campaignRefused(String refusal, LockOptions options) {
        way.refusal = refusal;
        CompletableFuture<Leadership> campaign = locks.election(name).campaignAsync("me", options);
        Server.eventually("two proclamations are refused", () -> {
            assertFalse(campaign.isDone(), () -> "the campaign has ended: " + campaign);
            return way.sent("LOCK.NOTE") > 1;
        });
        return campaign;
    }

    private static Throwable failureOf(CompletableFuture<Leadership> campaign) {
        return assertThrows(ExecutionException.class, () -> soon(campaign)).getCause();
    }

    private void winsOnceNodesReturn(String refusal, LockOptions options) throws Exception {
        CompletableFuture<Leadership> campaign = campaignRefused(refusal, options);
        way.refusal = null;
        Leadership leader = soon(campaign);
        assertEquals(Optional.of("me"), locks.election(name).leader().map(Leader::value));
        assertEquals(1, way.sent("LOCK.ACQUIRE"), "it keeps the lock");
        assertEquals(Release.HELD, leader.resign());
    }

    @ParameterizedTest
    // The second server cannot be reached for now.
    @ValueSource(strings = {NO_QUORUM, "ERR max number of clients reached"})
    void aWinnerProclaimsAgainOnceNodesReturn(String refusal) throws Exception {
        winsOnceNodesReturn(refusal, MINUTE.waitUpTo(Duration.ofMinutes(1)));
    }

    @Test
    void aWinnerWithoutALimitProclaimsAgain() throws Exception {
        winsOnceNodesReturn(NO_QUORUM, MINUTE);
    }

    @Test
    void aWinnerWhoIsRefusedGivesTheLockBackAtTheEndOfTheWait() {
        Duration wait = Duration.ofSeconds(2);
        long began = System.nanoTime();
        assertInstanceOf(NoQuorumException.class, failureOf(campaignRefused(NO_QUORUM, MINUTE.waitUpTo(wait))));
        assertTrue(System.nanoTime() - began >= wait.toNanos(), "the wait ended early");
        node.awaitFree(name);
    }

    @Test
    void aWinnerWhoLosesTheLockBeforeItsProclamationCampaignsAgain() throws Exception {
        CompletableFuture<Leadership> campaign = campaignRefused(NO_QUORUM, MINUTE);
        long first = node.info(name, "token");
        node.say("LOCK.BREAK", name);
        way.refusal = null;
        Leadership leader = soon(campaign);
        assertTrue(leader.term() > first);
        leader.close();
    }

    @Test
    void aCampaignIsGivenUpWhileItsProclamationIsRefused() {
        campaignRefused(NO_QUORUM, MINUTE).cancel(true);
        node.awaitFree(name);
        assertEquals(1, way.sent("LOCK.ACQUIRE"));
    }

    @Test
    void closingEndsAProclamationThatIsRefused() {
        CompletableFuture<Leadership> campaign = campaignRefused(NO_QUORUM, MINUTE);
        locks.close();
        LockLostException lost = assertInstanceOf(LockLostException.class, failureOf(campaign));
        assertEquals(LossReason.CLOSED, lost.loss().reason());
        node.awaitFree(name);
    }

    @Test
    void aLastingFailureEndsACampaign() {
        way.refusal = "NOPERM this user may not";
        LockOptions options = MINUTE.waitUpTo(Duration.ofMinutes(1));
        assertThrows(MisconfiguredException.class, () -> locks.election(name).campaign("me", options));
        assertEquals(1, way.sent("LOCK.NOTE"));
        node.awaitFree(name);
    }

    /** Refuses proclamations for as long as it has a refusal, and counts requests. */
    private static final class Refusing implements Transport {

        private final Transport below;

        private final Map<String, Integer> sent = new ConcurrentHashMap<>();

        private volatile String refusal;

        Refusing(Node node) {
            below = new LettuceTransport(RedisURI.create(node.url()), null, ClientOptions.create(), Server.PATIENCE);
        }

        int sent(String command) {
            return sent.getOrDefault(command, 0);
        }

        @Override
        public String address() {
            return below.address();
        }

        @Override
        public CompletableFuture<Object> send(List<String> words, Duration limit) {
            sent.merge(words.get(0), 1, Integer::sum);
            String refused = refusal;
            return refused == null || !words.get(0).equals("LOCK.NOTE") ? below.send(words, limit)
                    : CompletableFuture.failedFuture(refusal(refused));
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
