package palisade.locks;

import java.util.List;
import java.util.Locale;
import java.util.Optional;

/** Decides with which words the commands of a lock pass a gate, and what its refusals mean. */
record Passing(LockHandle lock, Held held, Gate gate) {

    /** Returns the arguments before the command. Throws why nothing may be sent. */
    List<String> words() {
        try {
            if (lock.isReleased()) {
                throw new ReleasedException();
            }
            held.check();
        } catch (PalisadeException e) {
            throw e.of(lock.key());
        }
        return gate.words(lock.key(), held.token(), held.mode());
    }

    /** Converts an error reply to a refusal of the gate; empty if it is an error of the command. */
    Optional<PalisadeException> refusal(String reply) {
        PalisadeException refused = switch (ServerException.codeOf(reply)) {
            case "FENCED" -> new FencedException(reply);
            case "NOTHELD" -> new LockLostException(Loss.of(LossReason.TAKEN_AWAY));
            default -> reply.toLowerCase(Locale.ROOT).startsWith("err unknown command") ? new MisconfiguredException(reply,
                    "the server of the data does not know LOCK.GATE: load the Palisade module there (docs/install.md)") : null;
        };
        if (refused == null) {
            return Optional.empty();
        }
        if (!(refused instanceof MisconfiguredException)) {
            // The lock asks at once whether it is held.
            held.wake(true);
        }
        return Optional.of(refused.of(lock.key()));
    }

}
