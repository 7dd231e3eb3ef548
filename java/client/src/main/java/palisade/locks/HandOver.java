package palisade.locks;

import java.util.Objects;

/**
 * What one program gives to another with a lock: {@link LockHandle#handOver()}.
 *
 * @param key the name of the lock
 * @param owner the name of the acquisition; anyone who knows it can release the lock
 * @param token the fencing token
 */
public record HandOver(String key, String owner, long token) {

    /**
     * Creates a hand-over from what another program has sent.
     *
     * @param key the name of the lock
     * @param owner the name of the acquisition; not empty
     * @param token the fencing token, from 1 to 2^53 - 1
     */
    public HandOver {
        Palisade.checkKey(key);
        if (Objects.requireNonNull(owner, "owner").isEmpty()) {
            throw new IllegalArgumentException("the owner must not be empty: it is that of LockHandle.handOver");
        }
        if (token < 1 || token > Replies.INTEGER_MAX) {
            throw new IllegalArgumentException("the token must be from 1 to 2^53 - 1, not " + token);
        }
    }

}
