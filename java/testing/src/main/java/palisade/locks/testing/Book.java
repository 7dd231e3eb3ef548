package palisade.locks.testing;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * The locks of one node, in memory: grants, their leases, and queues. Its futures complete on threads of their own,
 * since what follows may wait for another thread that is about to enter here.
 */
final class Book {

    /** The first token, which has the length of a server's. */
    private static final long FIRST_TOKEN = 1_700_000_000_000_000L;

    /**
     * What an acquisition requests.
     *
     * @param owner the name of the acquisition
     * @param ttl the length of the lease, in ms
     * @param shared whether it is a reader's
     * @param limit the number of permits; 0 of other locks
     * @param note the note for people
     */
    record Request(String owner, long ttl, boolean shared, int limit, String note) {
    }

    /** What an owner has of a lock. */
    static final class Grant {

        final Request request;

        final int number;

        final long since = System.nanoTime();

        long until = since;

        long token;

        int holds = 1;

        boolean shared;

        String note;

        long sequence;

        Grant(Request request, int number, long token) {
            this.request = request;
            this.number = number;
            this.token = token;
            this.shared = request.shared;
            this.note = request.note;
        }

        long left() {
            return Math.max(0, TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime()));
        }

    }

    /** A request in the queue of a lock. */
    private record Waiter(Request request, CompletableFuture<Optional<Grant>> granted) {
    }

    /** An observer, and what it waits for. */
    private record Watcher(long token, long sequence, CompletableFuture<Optional<Grant>> changed) {
    }

    private static final class Lock {

        final List<Grant> grants = new ArrayList<>();

        final Deque<Waiter> queue = new ArrayDeque<>();

        final List<Watcher> watchers = new ArrayList<>();

        void dropExpired() {
            long now = System.nanoTime();
            grants.removeIf(grant -> grant.until - now <= 0);
        }

        Optional<Grant> of(String owner) {
            return grants.stream().filter(grant -> grant.request.owner.equals(owner)).findFirst();
        }

        /** Returns the number of a permit that is compatible with all grants; 0 for other locks, and empty for none. */
        Optional<Integer> numberFor(Request wanted) {
            int most = wanted.limit;
            for (Grant grant : grants) {
                boolean permits = wanted.limit > 0 && grant.request.limit > 0;
                if (!permits && !(wanted.shared && grant.shared) || permits && grant.number > wanted.limit) {
                    return Optional.empty();
                }
                most = Math.min(most, grant.request.limit);
            }
            if (wanted.limit == 0) {
                return Optional.of(0);
            }
            int number = 1;
            while (isTaken(number)) {
                number++;
            }
            return number <= most ? Optional.of(number) : Optional.empty();
        }

        private boolean isTaken(int number) {
            return grants.stream().anyMatch(grant -> grant.number == number);
        }

    }

    private final Map<String, Lock> locks = new HashMap<>();

    private long lastToken = FIRST_TOKEN;

    private Lock of(String key) {
        Lock lock = locks.computeIfAbsent(key, name -> new Lock());
        lock.dropExpired();
        return lock;
    }

    /** Grants the request if nothing is in its way. An owner that has the lock gets its grant again. */
    synchronized Optional<Grant> acquire(String key, Request wanted) {
        Lock lock = of(key);
        Optional<Grant> again = lock.of(wanted.owner);
        if (again.isPresent()) {
            extend(key, again.get(), wanted.ttl);
            return again;
        }
        return lock.queue.isEmpty() ? grant(key, lock, wanted) : Optional.empty();
    }

    private Optional<Grant> grant(String key, Lock lock, Request wanted) {
        Optional<Grant> granted = lock.numberFor(wanted).map(number -> new Grant(wanted, number, ++lastToken));
        granted.ifPresent(grant -> {
            lock.grants.add(grant);
            extend(key, grant, wanted.ttl);
            watched(lock);
        });
        return granted;
    }

    /** Grants the request in turn; empty once {@code ms} have passed, or its owner has left the queue. */
    synchronized CompletableFuture<Optional<Grant>> await(String key, Request wanted, long ms) {
        Optional<Grant> now = acquire(key, wanted);
        if (now.isPresent()) {
            return CompletableFuture.completedFuture(now);
        }
        CompletableFuture<Optional<Grant>> granted = new CompletableFuture<>();
        of(key).queue.add(new Waiter(wanted, granted));
        later(ms, () -> leave(key, wanted.owner));
        return granted;
    }

    /** Takes the requests of an owner out of the queue. */
    private void leave(String key, String owner) {
        Lock lock = of(key);
        lock.queue.removeIf(waiter -> {
            boolean leaves = waiter.request.owner.equals(owner);
            if (leaves) {
                waiter.granted.completeAsync(Optional::empty);
            }
            return leaves;
        });
        serve(key);
    }

    /** Grants to the first in the queue, in turn, and tells observers. */
    private void serve(String key) {
        Lock lock = of(key);
        while (!lock.queue.isEmpty()) {
            Optional<Grant> next = grant(key, lock, lock.queue.peek().request);
            if (next.isEmpty()) {
                break;
            }
            lock.queue.poll().granted.completeAsync(() -> next);
        }
        watched(lock);
    }

    private void later(long ms, Runnable task) {
        CompletableFuture.delayedExecutor(ms, TimeUnit.MILLISECONDS).execute(() -> {
            synchronized (this) {
                task.run();
            }
        });
    }

    /** Gives a grant a lease from now, which is not shorter than the one it has. */
    private void extend(String key, Grant grant, long ttl) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ttl);
        if (until - grant.until > 0) {
            grant.until = until;
            later(ttl, () -> serve(key));
        }
    }

    private synchronized Optional<Long> with(String key, String owner, Function<Grant, Long> change) {
        return of(key).of(owner).map(change);
    }

    Optional<Long> extend(String key, String owner, long ttl) {
        return with(key, owner, grant -> {
            extend(key, grant, ttl);
            return grant.token;
        });
    }

    Optional<Long> reenter(String key, String owner, int level) {
        return with(key, owner, grant -> (long) (grant.holds = Math.max(grant.holds, level)));
    }

    Optional<Long> note(String key, String owner, String note, long sequence) {
        return with(key, owner, grant -> {
            if (sequence > grant.sequence) {
                grant.sequence = sequence;
                grant.note = note;
                watched(of(key));
            }
            return grant.sequence;
        });
    }

    Optional<Long> convert(String key, String owner, boolean toShared) {
        return with(key, owner, grant -> {
            if (grant.request.limit > 0 || !toShared && of(key).grants.size() > 1) {
                return null;
            }
            if (grant.shared && !toShared) {
                grant.token = ++lastToken;
            }
            grant.shared = toShared;
            serve(key);
            return grant.token;
        });
    }

    /** Releases holds down to below the level, and takes the owner's requests out of the queue. */
    synchronized Optional<Long> release(String key, String owner, int level) {
        Optional<Long> left = with(key, owner, grant -> {
            grant.holds = Math.min(grant.holds, level - 1);
            if (grant.holds == 0) {
                of(key).grants.remove(grant);
            }
            return (long) grant.holds;
        });
        leave(key, owner);
        return left;
    }

    synchronized void takeAway(String key) {
        of(key).grants.clear();
        serve(key);
    }

    /** Returns the grant that has been held longest; empty for a free lock. */
    synchronized Optional<Grant> oldest(String key) {
        return of(key).grants.stream().findFirst();
    }

    synchronized int waiting(String key) {
        return of(key).queue.size();
    }

    /**
     * Returns the oldest grant once that is not the one of this token and sequence. The answer is {@code null} at the
     * timeout.
     */
    synchronized CompletableFuture<Optional<Grant>> watch(String key, long token, long sequence, long ms) {
        CompletableFuture<Optional<Grant>> changed = new CompletableFuture<>();
        Lock lock = of(key);
        lock.watchers.add(new Watcher(token, sequence, changed));
        watched(lock);
        later(ms, () -> {
            changed.completeAsync(() -> null);
            lock.watchers.removeIf(watcher -> watcher.changed == changed);
        });
        return changed;
    }

    private static void watched(Lock lock) {
        Optional<Grant> now = lock.grants.stream().findFirst();
        long token = now.map(grant -> grant.token).orElse(0L);
        long sequence = now.map(grant -> grant.sequence).orElse(0L);
        lock.watchers.removeIf(watcher -> {
            boolean isNews = token != watcher.token || sequence > watcher.sequence;
            if (isNews) {
                watcher.changed.completeAsync(() -> now);
            }
            return isNews;
        });
    }

}
