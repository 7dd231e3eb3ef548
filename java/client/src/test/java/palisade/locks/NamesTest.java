package palisade.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** The names of locks in failures that have one cause. */
class NamesTest {

    private static final LockOptions NO_WAIT = LockOptions.defaults().waitUpTo(Duration.ZERO);

    @Test
    void eachFailureNamesItsOwnLock() throws Exception {
        Queue<String> reported = new ConcurrentLinkedQueue<>();
        LockListener listener = new LockListener() {

            @Override
            public void failed(Kind kind, Duration waited, Throwable failure) {
                reported.add(((UnavailableException) failure).key());
            }

        };
        List<String> keys = IntStream.range(0, 50).mapToObj(n -> "key:" + n).toList();
        Palisade locks = Palisade.builder("redis://127.0.0.1:" + Server.freePort()).listener(listener).build();
        List<CompletableFuture<LockHandle>> failing = keys.stream().map(key -> locks.lockAsync(key, NO_WAIT)).toList();
        assertEquals(keys, failing.stream().map(NamesTest::failureOf).map(PalisadeException::key).toList());
        locks.close();
        Server.eventually("all are reported", () -> Set.copyOf(reported).equals(Set.copyOf(keys)));
    }

    @Test
    void aNamedCopyIsTheSameFailure() {
        ServerException shared = new ServerException("OOM no memory", "OOM no memory");
        PalisadeException named = shared.of("orders");
        assertEquals("orders: OOM no memory", named.getMessage());
        assertEquals("OOM", ((ServerException) named).code());
        assertEquals(null, named.getCause());
        assertEquals(null, shared.key());
    }

    private static PalisadeException failureOf(CompletableFuture<?> failing) {
        return (PalisadeException) assertThrows(ExecutionException.class, () -> Server.soon(failing)).getCause();
    }

}
