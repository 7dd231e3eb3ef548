package palisade.locks.testing;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import palisade.locks.Palisade;

/**
 * Locks in memory, for unit tests of programs that hold locks: no server is needed. {@link #open()} returns locks with the same
 * methods, and a test takes a lock away at a moment of its choice, to see what the program does.
 * <p>
 * It has the locks, the queue, the leases and the elections of one node, and no guard, no gates and no network that fails.
 */
public final class LocksInMemory {

    private static final String ELSEWHERE = "another program";

    private final Book book = new Book();

    private final List<Consumer<String>> listeners = new CopyOnWriteArrayList<>();

    /** Creates a place without locks. */
    public LocksInMemory() {
    }

    /**
     * Opens the locks, as a program of its own would. Close them at the end of the test.
     *
     * @return the locks
     */
    public Palisade open() {
        return builder().build();
    }

    /**
     * Begins to open the locks, with other settings.
     *
     * @return the builder
     */
    public Palisade.Builder builder() {
        return Palisade.over(new MemoryTransport(book, listeners));
    }

    /**
     * Takes a lock away from all its holders, as an operator does with LOCK.BREAK. When it returns, their locks are not valid any
     * longer, and the next in the queue has it.
     *
     * @param key the name of the lock
     */
    public void takeAway(String key) {
        listeners.forEach(listener -> listener.accept(key));
        book.takeAway(key);
    }

    /**
     * Holds a lock as another program does.
     *
     * @param key the name of the lock, which must be free
     * @return releases it
     */
    public Runnable holdElsewhere(String key) {
        Book.Request wanted = new Book.Request(ELSEWHERE, TimeUnit.DAYS.toMillis(1), false, 0, ELSEWHERE);
        if (book.oldest(key).isPresent() || book.acquire(key, wanted).isEmpty()) {
            throw new IllegalStateException(key + " is held already");
        }
        return () -> book.release(key, ELSEWHERE, 1);
    }

    /**
     * Returns how many wait for a lock.
     *
     * @param key the name of the lock
     * @return the number
     */
    public int waiting(String key) {
        return book.waiting(key);
    }

    /**
     * Reports whether somebody holds a lock.
     *
     * @param key the name of the lock
     * @return whether it is held
     */
    public boolean isHeld(String key) {
        return book.oldest(key).isPresent();
    }

}
