package palisade.locks;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;

/** What others see of a holder: its note for people, with the id of its flow of control at the end. */
final class Note {

    /** The longest note that servers accept. */
    static final int BYTES_MAX = 1024;

    static final Pattern HOLDER = Pattern.compile("[A-Za-z0-9._:/@+-]{1,64}");

    private static final Pattern HOLDER_AT_END = Pattern.compile("(?:^| )\\[holder=[A-Za-z0-9._:/@+-]{1,64}]$");

    private static final int HOST_CHARS_MAX = 32;

    private static final int PRINTED_CHARS_MAX = 100;

    private static final int PROGRAM_CHARS_MAX = 100;

    private static final SecureRandom RANDOM = new SecureRandom();

    private static final String HOST = host();

    /** Process ids repeat: in a restarted container, each time. Hence the random digits. */
    private static final String PROCESS = cut(HOST.replaceAll("[^A-Za-z0-9._:/@+-]", ""), HOST_CHARS_MAX) + '/'
            + ProcessHandle.current().pid() + '/' + randomHex(4);

    private static final AtomicLong FLOWS = new AtomicLong();

    private static final ThreadLocal<String> OF_THREAD = ThreadLocal.withInitial(Note::newFlow);

    static final String DEFAULT = HOST + " pid " + ProcessHandle.current().pid() + ": " + program();

    private Note() {
    }

    private static String host() {
        try {
            return cut(InetAddress.getLocalHost().getHostName(), HOST_CHARS_MAX * 2);
        } catch (UnknownHostException e) {
            return "unknown";
        }
    }

    private static String program() {
        String[] command = System.getProperty("sun.java.command", "java").split(" ", 2);
        return cut(command[0], PROGRAM_CHARS_MAX);
    }

    private static String cut(String text, int most) {
        return text.substring(0, Math.min(text.length(), most));
    }

    /** Returns the holder id of the calling thread: what it holds and waits for has the same one. */
    static String flowOfThread() {
        return OF_THREAD.get();
    }

    /** Returns a holder id that nothing else has. */
    static String newFlow() {
        return PROCESS + '/' + FLOWS.incrementAndGet();
    }

    static String randomHex(int bytes) {
        byte[] random = new byte[bytes];
        RANDOM.nextBytes(random);
        return HexFormat.of().formatHex(random);
    }

    static int bytesOf(String note) {
        return note.getBytes(StandardCharsets.UTF_8).length;
    }

    /** Returns the note with the holder id at its end, if there is room. */
    static String withHolder(String note, String holder) {
        String said = (note.isEmpty() ? "" : note + ' ') + "[holder=" + holder + ']';
        return bytesOf(said) > BYTES_MAX ? note : said;
    }

    static String withoutHolder(String note) {
        return HOLDER_AT_END.matcher(note).replaceFirst("");
    }

    /** Returns a text that moves no cursor, and is not too long for a line. */
    static String printable(String text) {
        StringBuilder printed = new StringBuilder();
        cut(text, PRINTED_CHARS_MAX).chars().forEach(c -> {
            if (Character.isISOControl(c)) {
                printed.append(String.format("\\u%04x", c));
            } else {
                printed.append((char) c);
            }
        });
        return text.length() > PRINTED_CHARS_MAX ? printed.append('…').toString() : printed.toString();
    }

}
