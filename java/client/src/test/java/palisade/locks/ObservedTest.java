package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static palisade.locks.Server.soon;

import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Changes that come while nobody awaits one. */
class ObservedTest {

    private static Node node;

    private static Palisade locks;

    private final String name = Node.newKey();

    private final Election election = locks.election(name);

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

    private static Optional<Leader> next(Observation observation) throws Exception {
        return soon(CompletableFuture.supplyAsync(() -> {
            try {
                return observation.next();
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }));
    }

    @Test
    void aChangeAfterAnInterruptionIsReportedByTheNextCall() throws Exception {
        try (Observation observed = election.observe(); Observation witness = election.observe()) {
            assertEquals(Optional.empty(), next(observed));
            assertEquals(Optional.empty(), next(witness));
            CompletableFuture<Void> interrupted = CompletableFuture.runAsync(() -> {
                Thread.currentThread().interrupt();
                assertThrows(InterruptedException.class, observed::next);
            });
            soon(interrupted);
            try (Leadership leads = election.campaign("me")) {
                assertEquals(leads.term(), next(witness).orElseThrow().term());
                assertEquals(leads.term(), next(observed).orElseThrow().term());
            }
        }
    }

    @Test
    void aCallWhoseNodeIsGoneEndsWithTheClient() throws Exception {
        CompletableFuture<Optional<Leader>> asked;
        Node gone = Node.start();
        try (Palisade own = Palisade.open(gone.url())) {
            gone.close();
            asked = own.election(name).observe().nextAsync();
            // Long enough that the call pauses before it connects again.
            Thread.sleep(50);
        }
        ExecutionException ended = assertThrows(ExecutionException.class, () -> soon(asked));
        assertTrue(ended.getCause() instanceof ClosedException, ended.toString());
    }

    @Test
    void aCancelledCallTakesNothingFromAnother() throws Exception {
        try (Observation observed = election.observe()) {
            assertEquals(Optional.empty(), next(observed));
            CompletableFuture<Optional<Leader>> given = observed.nextAsync();
            CompletableFuture<Optional<Leader>> other = observed.nextAsync();
            assertTrue(given.cancel(true));
            Leadership leads = election.campaign("me");
            assertEquals(leads.term(), soon(other).orElseThrow().term());
            leads.close();
            assertEquals(Optional.empty(), next(observed));
        }
    }

    @Test
    void theLastChangeAfterACancelledCallIsReportedByTheNextOne() throws Exception {
        BlockingQueue<Runnable> handed = new LinkedBlockingQueue<>();
        try (Palisade own = Palisade.builder(node.url()).executor(handed::add).build();
                Observation observed = own.election(name).observe()) {
            assertEquals(Optional.empty(), next(observed));
            assertTrue(observed.nextAsync().cancel(true));
            try (Leadership first = election.campaign("first")) {
                // The change has come, and nobody receives it.
                handed.poll(1, TimeUnit.MINUTES).run();
                assertEquals(first.term(), next(observed).orElseThrow().term());
            }
            assertEquals(Optional.empty(), next(observed));
            assertTrue(observed.nextAsync().cancel(true));
            try (Leadership second = election.campaign("second")) {
                handed.poll(1, TimeUnit.MINUTES).run();
            }
            try (Leadership third = election.campaign("third")) {
                assertEquals(third.term(), next(observed).orElseThrow().term(), "the second one is outdated");
            }
        }
    }

}
