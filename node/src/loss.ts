/**
 * The outcomes of a release.
 *
 * - `freed`: it was held until then, and was given back.
 * - `not-held`: it was not held any more. What was done last may have been done without it.
 * - `unknown`: no answer tells. The server, or too many of the nodes behind an agent, are away, or an answer was lost. The lock was valid until the release; it is given back in the background, and ends with its lease otherwise.
 */
export type Released = 'freed' | 'not-held' | 'unknown';

/**
 * Why a lock is lost.
 *
 * - `taken-away`: the server says that this owner does not hold it. An operator broke it, somebody deleted its key, or the server lost its memory.
 * - `not-extended-in-time`: its lease ended, since no extension was answered in time.
 * - `not-extended`: its lease ended, and nobody extended it (`autoExtend` is off).
 * - `max-hold`: its lease ended, and it is not extended for longer than `maxHold`.
 * - `asleep`: its lease ended while this program could not run. It was stopped, or its event loop was busy.
 * - `closed`: its `Palisade` was closed, and gave it back.
 */
export type LossReason = 'taken-away' | 'not-extended-in-time' | 'not-extended' | 'max-hold' | 'asleep' | 'closed';

/** Why a lock is lost, for programs and for people. */
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

/** A loss, with `more` that is known of it. */
export function lossOf(reason: LossReason, more?: string): Loss {
  return { reason, message: more === undefined ? MESSAGES[reason] : `${MESSAGES[reason]}: ${more}` };
}
