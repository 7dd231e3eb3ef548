package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class TurnTest {

    private static final Duration TTL = Duration.ofSeconds(2);

    /** A server whose lock is free after a wait, and whose answer to that arrives once most of the lease is over. */
    private static final class Late implements Transport, Transport.Connection {

        private final List<List<String>> requests = Collections.synchronizedList(new ArrayList<>());

        private boolean isGranted;

        @Override
        public String address() {
            return "a late server";
        }

        @Override
        public CompletableFuture<Object> send(List<String> words, Duration limit) {
            if (words.get(0).equals("LOCK.ACQUIRE")) {
                requests.add(words);
            }
            if (words.contains("WAIT")) {
                isGranted = true;
                Server.passes(TTL.multipliedBy(3).dividedBy(5));
            }
            return CompletableFuture.completedFuture(isGranted ? 7L : null);
        }

        @Override
        public CompletableFuture<Connection> connect() {
            return CompletableFuture.completedFuture(this);
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {
        }

    }

    @Test
    void aGrantThatArrivesLateIsAskedForAgainByTheSameOwner() throws Exception {
        Late server = new Late();
        try (Palisade locks = Palisade.over(server).build()) {
            locks.lock("late", LockOptions.defaults().ttl(TTL));
            assertEquals(3, server.requests.size(), "asked, waited, and asked again");
            assertEquals(1, server.requests.stream().map(words -> words.get(2)).distinct().count(), "it keeps its turn");
        }
    }

}
