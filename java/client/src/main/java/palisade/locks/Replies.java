package palisade.locks;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Reads answers of the server. */
final class Replies {

    /** The largest token of a server, so that programs in every language can hold it exactly. */
    static final long INTEGER_MAX = (1L << 53) - 1;

    private Replies() {
    }

    /**
     * An answer to LOCK.ACQUIRE.
     *
     * @param token the fencing token
     * @param waited the wait, in ns
     * @param number of a permit; 0 of other locks
     */
    record Granted(long token, long waited, int number) {
    }

    /** Returns an integer below 2^53: a program in another language could round a larger one to another token. */
    static long toInteger(Object reply) {
        if (reply instanceof Long value && value >= 0 && value <= INTEGER_MAX) {
            return value;
        }
        throw new UnexpectedReplyException(reply, "an integer below 2^53");
    }

    /** Reads a grant, which is a token, or a list of two or three integers. */
    static Granted toGranted(Object reply) {
        List<?> list = reply instanceof List<?> several ? several : List.of(reply);
        if (list.isEmpty() || list.size() > 3) {
            throw new UnexpectedReplyException(reply, "a grant");
        }
        long waited = list.size() > 1 ? toInteger(list.get(1)) : 0;
        long number = list.size() > 2 ? toInteger(list.get(2)) : 0;
        if (number > LockOptions.PERMITS_MAX) {
            throw new UnexpectedReplyException(reply, "the number of a permit");
        }
        return new Granted(toInteger(list.get(0)), Duration.ofMillis(waited).toNanos(), (int) number);
    }

    /** Returns the fields of a map, which is a flat list in RESP2; empty for Null. */
    static Map<String, Object> toFields(Object reply) {
        Map<String, Object> fields = new HashMap<>();
        if (reply == null) {
            return fields;
        }
        if (!(reply instanceof List<?> flat) || flat.size() % 2 != 0) {
            throw new UnexpectedReplyException(reply, "a map");
        }
        for (int at = 0; at < flat.size(); at += 2) {
            fields.put(String.valueOf(flat.get(at)), flat.get(at + 1));
        }
        return fields;
    }

    /** Reads the holder in an answer to LOCK.INFO; empty if there is none. */
    static Optional<Holder> toHolder(Object reply) {
        Map<String, Object> fields = toFields(reply);
        if (fields.isEmpty() || toInteger(fields.get("token")) == 0) {
            return Optional.empty();
        }
        if (!(fields.get("note") instanceof String note)) {
            throw new UnexpectedReplyException(fields.get("note"), "a note");
        }
        return Optional.of(new Holder(Note.withoutHolder(note), toInteger(fields.get("token")),
                Duration.ofMillis(toInteger(fields.get("held"))), Duration.ofMillis(toInteger(fields.get("ttl")))));
    }

}
