package palisade.locks;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * A gate on the server of the data, which lets no older token pass than it has seen: LOCK.GATE. It needs a name of its own. Use
 * one gate for all that a lock protects.
 */
public final class Gate {

    /** The lock itself in place of a gate, where the data is on the lock's own server: the lock must be held. */
    public static final Gate HELD = new Gate(null, List.of("HELD"));

    private static final Duration KEEP_MOST = Duration.ofDays(366);

    /** {@code null} for the lock itself. */
    private final String name;

    private final List<String> words;

    private Gate(String name, List<String> words) {
        this.name = name;
        this.words = words;
    }

    /**
     * Returns a gate that remembers tokens until somebody deletes it.
     *
     * @param name its key
     * @return the gate
     */
    public static Gate named(String name) {
        return new Gate(Objects.requireNonNull(name, "name"), List.of());
    }

    /**
     * Returns the same gate, forgotten this long after its last passing: longer than a late holder can sleep.
     *
     * @param keep from 1 ms to 366 days
     * @return the gate
     */
    public Gate keep(Duration keep) {
        if (name == null) {
            throw new IllegalArgumentException("the lock itself remembers nothing: keep is of a gate with a name");
        }
        Duration checked = LockOptions.within("keep", keep, Duration.ofMillis(1), KEEP_MOST);
        return new Gate(name, List.of("KEEP", String.valueOf(checked.toMillis())));
    }

    /** Returns the arguments of LOCK.GATE before the command. */
    List<String> words(String key, long token, List<String> mode) {
        List<String> all = new ArrayList<>(List.of(Optional.ofNullable(name).orElse(key), String.valueOf(token)));
        all.addAll(mode);
        all.addAll(words);
        all.add("COMMAND");
        return all;
    }

}
