package palisade.locks;

import java.util.Locale;
import java.util.Set;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Decides what an error reply means. Its first word decides, apart from two errors of servers that have none of their own. */
final class Refusals {

    private static final long MILLISECOND = 1_000_000;

    /** Pauses before a request is sent again that a server refused for now. */
    private static final long NOT_YET_PAUSE = 10 * MILLISECOND;

    private static final long BUSY_PAUSE = 100 * MILLISECOND;

    /** Returned by {@link #passesIn} where a retry makes no sense. */
    static final long NEVER_PASSES = -1;

    private static final Set<String> LASTING = Set.of("ERR", "WRONGTYPE", "OWNED", "LOCKPANIC");

    private Refusals() {
    }

    static PalisadeException of(String reply, String address) {
        return switch (ServerException.codeOf(reply)) {
            case "GUARDED" -> new GuardedException(reply);
            case "NOQUORUM" -> new NoQuorumException(reply);
            case "FENCED", "NOTHELD" -> new FencedException(reply);
            case "MOVED", "ASK" -> new MisconfiguredException(reply,
                    address + " is one node of a cluster: reach it through a `palisade agent`, docs/agent.md");
            case "NOAUTH" -> new MisconfiguredException(reply,
                    address + " wants a password: put it into the address, redis://user:password@host");
            case "WRONGPASS" -> new MisconfiguredException(reply, address + " refuses the user or the password of the address");
            case "NOPERM" -> new MisconfiguredException(reply,
                    "the user may not do that on " + address + ": docs/acl.md has the rules that locks need");
            case "ERR" -> ofGeneral(reply, address);
            default -> new ServerException(reply, reply);
        };
    }

    private static PalisadeException ofGeneral(String reply, String address) {
        if (reply.startsWith("ERR max number of clients reached")) {
            return new UnavailableException(address + ": " + reply, false, null);
        }
        if (reply.toLowerCase(Locale.ROOT).startsWith("err unknown command")) {
            return new MisconfiguredException(reply, address + " does not know the commands of locks: load the Palisade module "
                    + "there (docs/install.md), or use the address of a `palisade agent`");
        }
        return new ServerException(reply, reply);
    }

    /** Returns the number after the first word of a reply, or 0. */
    static long number(String reply) {
        String[] words = reply.split(" ", 3);
        return words.length > 1 && words[1].matches("[0-9]{1,18}") ? Long.parseLong(words[1]) : 0;
    }

    /** Returns the time before a request that failed so is sent again, in ns, or {@link #NEVER_PASSES}. */
    static long passesIn(Throwable failure) {
        if (!(failure instanceof ServerException refused)) {
            return NEVER_PASSES;
        }
        return switch (refused.code()) {
            case "NOTYET" -> Math.max(number(refused.reply()) * MILLISECOND, NOT_YET_PAUSE);
            case "LOADING", "TRYAGAIN", "BUSY" -> BUSY_PAUSE;
            default -> NEVER_PASSES;
        };
    }

    /** Reports whether a failure does not pass by itself, so that somebody has to act. */
    static boolean isLasting(Throwable failure) {
        if (failure instanceof UnavailableException || failure instanceof NoQuorumException || failure instanceof GuardedException) {
            return false;
        }
        return failure instanceof MisconfiguredException || !(failure instanceof ServerException refused)
                || LASTING.contains(refused.code());
    }

    /**
     * Reports whether the failure proves that the server has done nothing. NOQUORUM proves nothing: an agent may have asked
     * nodes that answer later.
     */
    static boolean isRefusal(Throwable failure) {
        return failure instanceof ServerException && !(failure instanceof NoQuorumException);
    }

    static boolean isBroken(Throwable failure) {
        return failure instanceof UnavailableException unavailable && unavailable.isBroken();
    }

    /** Returns the failure below what futures put around it. */
    static Throwable unwrap(Throwable failure) {
        boolean wrapped = failure instanceof CompletionException || failure instanceof ExecutionException;
        return wrapped && failure.getCause() != null ? unwrap(failure.getCause()) : failure;
    }

}
