/**
 * The outcome of a release.
 *
 * - `freed`: the lock was held until then, and was released.
 * - `not-held`: the lock was no longer held. The last steps may have been done without it.
 * - `unknown`: no answer shows which of the two. The server, or too many of the nodes behind an agent, are away, or an
 *   answer was lost. The lock was valid until the release. It is released in the background, or ends with its lease.
 */
export type Released = 'freed' | 'not-held' | 'unknown';

/**
 * The reason why a lock is lost.
 *
 * - `taken-away`: the server reports that this owner does not hold the lock. An operator broke it, somebody deleted its
 *   key, or the server lost its memory.
 * - `not-extended-in-time`: the lease ended, because no extension was answered in time.
 * - `not-extended`: the lease ended, and `autoExtend` is off.
 * - `max-hold`: the lease ended, and `maxHold` forbids extending it further.
 * - `asleep`: the lease ended while this program could not run. It was suspended, or its event loop was busy.
 * - `closed`: the `Palisade` was closed, and released the lock.
 */
export type LossReason = 'taken-away' | 'not-extended-in-time' | 'not-extended' | 'max-hold' | 'asleep' | 'closed';

/** The loss of a lock, for programs and for people. */
export interface Loss {
  readonly reason: LossReason;
  readonly message: string;
}

const MESSAGES: Record<LossReason, string> = {
  'taken-away': 'somebody took it away, or the server forgot it',
  'not-extended-in-time': 'its lease ended before an extension was answered',
  'not-extended': 'its lease ended, and nobody extended it',
  'max-hold': 'it was held for as long as is allowed (maxHold)',
  asleep: 'its lease ended while this program could not run',
  closed: 'its Palisade was closed, and gave it back',
};

/** Returns a loss, with the detail `more`. */
export function lossOf(reason: LossReason, more?: string): Loss {
  return { reason, message: more === undefined ? MESSAGES[reason] : `${MESSAGES[reason]}: ${more}` };
}
