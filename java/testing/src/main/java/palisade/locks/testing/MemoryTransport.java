package palisade.locks.testing;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import palisade.locks.Transport;

/** Performs the commands of a program on locks in memory. */
final class MemoryTransport implements Transport {

    private final Book book;

    private final List<Consumer<String>> listeners;

    private Consumer<String> listener = key -> {
    };

    MemoryTransport(Book book, List<Consumer<String>> listeners) {
        this.book = book;
        this.listeners = listeners;
    }

    @Override
    public String address() {
        return "memory";
    }

    @Override
    public void onTakenAway(Consumer<String> toCall) {
        listener = toCall;
        listeners.add(toCall);
    }

    @Override
    public CompletableFuture<Object> send(List<String> words, Duration limit) {
        String key = words.size() > 1 ? words.get(1) : "";
        return switch (words.get(0)) {
            case "PING" -> done("PONG");
            case "LOCK.NODE" -> done(List.of("state", "serving", "guard_ms", 0L));
            case "LOCK.INFO" -> done(info(book.oldest(key)));
            case "LOCK.WATCH" -> book.watch(key, number(words, "TOKEN"), number(words, "SEQ"), Long.parseLong(words.get(2)))
                    .thenApply(now -> now == null ? null : now.isEmpty() ? List.of("token", 0L) : info(now));
            case "LOCK.ACQUIRE" -> acquire(words);
            default -> done(change(words.get(0), key, words.get(2), words.subList(3, words.size())).orElse(null));
        };
    }

    private static CompletableFuture<Object> done(Object reply) {
        return CompletableFuture.completedFuture(reply);
    }

    /** Performs a command of an owner; empty for Null. */
    private Optional<Long> change(String command, String key, String owner, List<String> more) {
        return switch (command) {
            case "LOCK.EXTEND" -> book.extend(key, owner, Long.parseLong(more.get(0)));
            case "LOCK.REENTER" -> book.reenter(key, owner, Integer.parseInt(more.get(1)));
            case "LOCK.NOTE" -> book.note(key, owner, more.get(0), Long.parseLong(more.get(2)));
            case "LOCK.CONVERT" -> book.convert(key, owner, more.get(0).equals("SHARED"));
            case "LOCK.RELEASE" -> book.release(key, owner, Integer.parseInt(more.get(1)));
            default -> throw new IllegalArgumentException(command + " is not for locks in memory");
        };
    }

    private CompletableFuture<Object> acquire(List<String> words) {
        boolean shared = false;
        int limit = 0;
        String note = "";
        long wait = -1;
        for (int at = 4; at < words.size(); at++) {
            switch (words.get(at)) {
                case "SHARED" -> shared = true;
                case "LIMIT" -> limit = Integer.parseInt(words.get(++at));
                case "NOTE" -> note = words.get(++at);
                case "WAIT" -> wait = Long.parseLong(words.get(++at));
                default -> {
                    // RETRY is how this book answers anyway.
                }
            }
        }
        Book.Request wanted = new Book.Request(words.get(2), Long.parseLong(words.get(3)), shared, limit, note);
        long began = System.nanoTime();
        CompletableFuture<Optional<Book.Grant>> granted = wait < 0
                ? CompletableFuture.completedFuture(book.acquire(words.get(1), wanted)) : book.await(words.get(1), wanted, wait);
        return granted.thenApply(grant -> grant.<Object>map(one -> List.of(one.token, millisSince(began), (long) one.number))
                .orElse(null));
    }

    private static long millisSince(long began) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
    }

    /** Returns the number after an option, behind the key and a time; 0 without it. */
    private static long number(List<String> words, String option) {
        int at = words.subList(3, words.size()).indexOf(option);
        return at < 0 ? 0 : Long.parseLong(words.get(at + 4));
    }

    private static Object info(Optional<Book.Grant> grant) {
        return grant.<Object>map(one -> List.of("token", one.token, "held", millisSince(one.since), "ttl", one.left(), "note",
                one.note, "seq", one.sequence)).orElse(null);
    }

    @Override
    public CompletableFuture<Connection> connect() {
        return CompletableFuture.completedFuture(new OwnConnection());
    }

    @Override
    public void close() {
        listeners.remove(listener);
    }

    /** A connection for commands that wait. A place in the queue ends by a release, as a client sends one. */
    private final class OwnConnection implements Connection {

        private volatile boolean open = true;

        @Override
        public CompletableFuture<Object> send(List<String> words, Duration limit) {
            return MemoryTransport.this.send(words, limit);
        }

        @Override
        public boolean isOpen() {
            return open;
        }

        @Override
        public void close() {
            open = false;
        }

    }

}
