package palisade.locks;

import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The leader of an election, as an observer knows it.
 *
 * @param term larger than that of every earlier leader
 * @param sequence the number of the proclamation within its term, from 1
 * @param value the proclaimed value, such as an address
 */
public record Leader(long term, long sequence, String value) {

    /** The note of a leader, as every client of an election writes it. */
    private static final Pattern TERM = Pattern.compile("^term ([1-9][0-9]{0,15}) ");

    /** The longest value of a leader, in bytes: a note, less its term. */
    private static final int VALUE_BYTES_MAX = 1002;

    static String checkValue(String value) {
        int bytes = Note.bytesOf(value);
        if (bytes > VALUE_BYTES_MAX) {
            throw new IllegalArgumentException("the value must be at most " + VALUE_BYTES_MAX + " bytes long, not " + bytes);
        }
        return value;
    }

    static String toNote(long term, String value) {
        return "term " + term + ' ' + value;
    }

    /**
     * The state of an election's lock.
     *
     * @param token the token of its grant; 0 if it is free
     * @param sequence the number of the proclamation; 0 before one
     * @param leader empty where nobody has proclaimed
     */
    record State(long token, long sequence, Optional<Leader> leader) {
    }

    /** Reads the answer to LOCK.INFO or LOCK.WATCH. */
    static State toState(Object reply) {
        Map<String, Object> fields = Replies.toFields(reply);
        long token = fields.isEmpty() ? 0 : Replies.toInteger(fields.get("token"));
        // A holder without a proclamation is about to proclaim, or is no candidate.
        long sequence = token == 0 ? 0 : Replies.toInteger(fields.get("seq"));
        if (sequence == 0) {
            return new State(token, 0, Optional.empty());
        }
        if (!(fields.get("note") instanceof String note)) {
            throw new UnexpectedReplyException(fields.get("note"), "a note");
        }
        Matcher found = TERM.matcher(note);
        boolean proclaimed = found.find() && Long.parseLong(found.group(1)) <= Replies.INTEGER_MAX;
        return new State(token, sequence, !proclaimed ? Optional.empty()
                : Optional.of(new Leader(Long.parseLong(found.group(1)), sequence, note.substring(found.end()))));
    }

}
