package palisade.locks;

import java.time.Duration;

/**
 * The holder of a lock, as the server reports it.
 *
 * @param note its note for people; empty if there is none
 * @param token the fencing token of its grant
 * @param heldFor the time since the grant
 * @param leaseLeft the remaining time of the lease, unless it is extended
 */
public record Holder(String note, long token, Duration heldFor, Duration leaseLeft) {
}
