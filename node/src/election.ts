import { now, pause } from './clock.js';
import type { Connections } from './connections.js';
import { LockLost, naming } from './errors.js';
import type { Held } from './held.js';
import { Lock } from './lock.js';
import type { Released } from './loss.js';
import { leaderNow, observing } from './observing.js';
import { checkedText, checkNames, type LockOptions, merged } from './options.js';
import { type Leader, noteOf, VALUE_BYTES_MAX } from './proclamation.js';
import { isLasting } from './refusals.js';
import { toInteger } from './replies.js';

/** Pause in milliseconds before a leader proclaims again: nodes may be away for a moment. */
const AGAIN = 100;

/** Acquires the lock of an election. @internal */
export type Campaign = (options: LockOptions | undefined) => Promise<Held>;

/**
 * An election, created by `Palisade.election`.
 *
 * The leader holds the lock of this name and has proclaimed that. Its *term* is larger than that of every earlier
 * leader. A leader sends its term with each write to a shared resource, which refuses a term smaller than the largest
 * it has seen: a paused leader does not know yet that another one leads.
 */
export class Election {
  readonly #connections: Connections;
  readonly #key: Buffer;
  readonly #take: Campaign;

  /** @internal */
  constructor(connections: Connections, key: Buffer, take: Campaign) {
    this.#connections = connections;
    this.#key = key;
    this.#take = take;
  }

  /**
   * Waits in turn until this candidate leads, and proclaims `value`, at most 1002 bytes. Every observer that asks
   * afterwards sees this leader or a later one.
   *
   * @throws NotAcquired, as `Palisade.lock`.
   */
  campaign(value: string | Uint8Array, options?: LockOptions): Promise<Leadership> {
    return naming(this.#key, () => this.#campaign(value, options));
  }

  async #campaign(value: string | Uint8Array, given: LockOptions | undefined): Promise<Leadership> {
    const bytes = checkedText('value', value, VALUE_BYTES_MAX);
    const options = merged({}, given);
    const by = options.wait === undefined ? undefined : now() + options.wait;
    for (;;) {
      const wait = by === undefined ? {} : { wait: Math.max(0, Math.floor(by - now())) };
      const leadership = new Leadership(await this.#take({ ...options, ...wait }));
      try {
        await proclaimFirst(leadership, bytes, by, options.signal);
        return leadership;
      } catch (error) {
        await leadership.release().catch(() => {});
        // The candidate had won, but observers may not have seen it.
        if (!(error instanceof LockLost) || error.loss.reason === 'closed') throw error;
      }
    }
  }

  /**
   * Returns the leader that the server reports now, or `null` if nobody leads. The leader may have gone by the time
   * this returns: send it nothing that must not be done twice, unless with its term.
   *
   * @throws Guarded: the server may have forgotten who leads.
   */
  leader(): Promise<Leader | null> {
    return naming(this.#key, () => leaderNow(this.#connections, this.#key));
  }

  /**
   * Yields each change of the leader from now on, beginning with the present state; `null` if nobody leads. Terms grow,
   * and within one term the sequence. While the server is unreachable or guarded, nothing is reported, and the last
   * report is the best knowledge there is.
   *
   * The iteration holds one connection, and does not poll. It ends when it is left, when the `Palisade` is closed, or,
   * with the reason of `signal`, when that aborts.
   */
  observe(options: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<Leader | null, void, undefined> {
    checkNames(options, ['signal']);
    return observing(this.#connections, this.#key, options.signal);
  }
}

/** Proclaims `value`: again after an error that passes, until the lock is lost or the wait has ended at `by`. */
async function proclaimFirst(
  leadership: Leadership,
  value: string | Uint8Array,
  by: number | undefined,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (;;) {
    try {
      return await leadership.proclaim(value);
    } catch (error) {
      if (isLasting(error) || signal?.aborted || (by !== undefined && now() >= by)) throw error;
    }
    await pause(AGAIN, { signal });
  }
}

/**
 * A leadership, until it {@link Leadership.resign | resigns} or is {@link Lock.lost | lost}. Has all members of a
 * {@link Lock}.
 */
export class Leadership extends Lock {
  readonly #term: number;
  /** The number of the last proclamation, shared by all re-entered leaderships. */
  readonly #last: { sequence: number };

  /** @internal */
  constructor(held: Held, term = held.token, last = { sequence: 0 }) {
    super(held);
    this.#term = term;
    this.#last = last;
  }

  /**
   * The term: larger than that of every earlier leader, and constant while this one leads. It is a fencing token, as is
   * `token`, which can rise meanwhile: use only one of the two with a resource.
   */
  get term(): number {
    return this.#term;
  }

  /** The number of the last proclamation, from 1. */
  get sequence(): number {
    return this.#last.sequence;
  }

  /** Proclaims another value, at most 1002 bytes. @throws {@link LockLost}: the leadership is over. */
  proclaim(value: string | Uint8Array): Promise<void> {
    return naming(this.held.acquisition.key, () => this.#proclaim(value));
  }

  async #proclaim(value: string | Uint8Array): Promise<void> {
    const note = noteOf(this.#term, checkedText('value', value, VALUE_BYTES_MAX));
    this.held.throwIfLost();
    const { key, owner } = this.held.acquisition;
    for (;;) {
      const sequence = ++this.#last.sequence;
      const reply = await this.held.connections.ask(['LOCK.NOTE', key, owner, note, 'SEQ', String(sequence)]);
      if (reply === null) this.held.lose('taken-away');
      this.held.throwIfLost();
      const current = toInteger(reply);
      if (current === sequence) return;
      // A later proclamation is already there, so the server ignored this one: the next one has a larger number.
      this.#last.sequence = Math.max(this.#last.sequence, current);
    }
  }

  /** Stops leading; the next candidate leads at once. See {@link Lock.release}. */
  resign(): Promise<Released> {
    return this.release();
  }

  /** @internal */
  protected override again(): this {
    return new Leadership(this.held, this.#term, this.#last) as this;
  }
}
