import { now } from './clock.js';
import type { Connections } from './connections.js';
import { LockLost, naming } from './errors.js';
import type { Held } from './held.js';
import { Lock } from './lock.js';
import type { Released } from './loss.js';
import { leaderNow, observing } from './observing.js';
import { checkedText, checkNames, type LockOptions, merged } from './options.js';
import { type Leader, noteOf, VALUE_BYTES_MAX } from './proclamation.js';
import { toInteger } from './replies.js';

/** How an election takes its lock. @internal */
export type Campaign = (options: LockOptions | undefined) => Promise<Held>;

/**
 * An election; of `Palisade.election`.
 *
 * The leader is whoever holds the lock of this name and has proclaimed that: its *term* is larger than that of every earlier
 * leader. What a leader does to something that others can write to goes there with the term, and a smaller one than was seen is
 * refused: a leader that was paused does not know yet that there is another one.
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
   * Waits in turn until this candidate leads, and proclaims `value`, at most 1002 bytes. Every observer that asks from then on sees
   * this leader or a later one.
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
        await leadership.proclaim(bytes);
        return leadership;
      } catch (error) {
        await leadership.release().catch(() => {});
        // It had won and lost again, and nobody has heard of it.
        if (!(error instanceof LockLost) || error.loss.reason === 'closed') throw error;
      }
    }
  }

  /**
   * Who leads, as the server says now; `null`: nobody. A leader that was seen may have gone by the time this returns: nobody is sent
   * anything that must not be done twice without its term.
   *
   * @throws Guarded: the server may have forgotten who leads.
   */
  leader(): Promise<Leader | null> {
    return naming(this.#key, () => leaderNow(this.#connections, this.#key));
  }

  /**
   * Tells each change of who leads from now on, the present state first; `null`: nobody leads. Terms grow, and within one the
   * sequence. As long as the server cannot be asked or is guarded nothing is told: what was told last is the best that is known.
   *
   * One connection is taken meanwhile, and nobody polls. The iteration ends when it is left, when the `Palisade` is closed, or, with
   * the reason of `signal`, when that aborts.
   */
  observe(options: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<Leader | null, void, undefined> {
    checkNames(options, ['signal']);
    return observing(this.#connections, this.#key, options.signal);
  }
}

/** Leads until it {@link Leadership.resign | resigns} or is {@link Lock.lost | lost}; with all that a {@link Lock} tells. */
export class Leadership extends Lock {
  readonly #term: number;
  /** The number of what was proclaimed last, by this or by one that was re-entered. */
  readonly #last: { sequence: number };

  /** @internal */
  constructor(held: Held, term = held.token, last = { sequence: 0 }) {
    super(held);
    this.#term = term;
    this.#last = last;
  }

  /**
   * Larger than that of every earlier leader, and the same as long as this one leads. It is a fencing token, as `token` is, which can
   * rise meanwhile: give a resource always the one or always the other.
   */
  get term(): number {
    return this.#term;
  }

  /** The number of what was proclaimed last: 1 at first. */
  get sequence(): number {
    return this.#last.sequence;
  }

  /** Proclaims another value, at most 1002 bytes. @throws {@link LockLost}: it does not lead any more. */
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
      // A later one is there already, so this one was not taken: it goes behind that.
      this.#last.sequence = Math.max(this.#last.sequence, current);
    }
  }

  /** Stops leading: the next candidate leads at once. As {@link Lock.release}. */
  resign(): Promise<Released> {
    return this.release();
  }

  /** @internal */
  protected override again(): this {
    return new Leadership(this.held, this.#term, this.#last) as this;
  }
}
