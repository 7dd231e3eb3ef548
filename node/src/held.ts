import { setMaxListeners } from 'node:events';
import type { Grant } from './acquiring.js';
import { backgroundTimer, now, validUntil } from './clock.js';
import type { Acquisition, Connections } from './connections.js';
import { LockLost, NotAcquired, named, type PalisadeError, shown, Unavailable, warn } from './errors.js';
import type { Report } from './listening.js';
import { type Loss, type LossReason, lossOf } from './loss.js';
import { type Checked, checkedTtl } from './options.js';
import { toInteger } from './replies.js';
import { watch } from './watching.js';

/** Maximum time to answer an extension; never more than a third of the ttl. */
const EXTEND_WITHIN_MS = 1_000;

/** Bounds of the pause after a failed extension, which is a part of the ttl. */
const AGAIN_LEAST_MS = 20;
const AGAIN_MOST_MS = 1_000;

/** The options of keeping a lock. */
export type Keeping = Pick<Checked, 'ttl' | 'autoExtend' | 'maxHold' | 'onLost'>;

/**
 * A held acquisition, shared by all re-entered locks. One timer extends it, and ends it in time; neither the timer nor
 * a promise keeps the process alive.
 */
export class Held {
  readonly connections: Connections;
  readonly acquisition: Acquisition;
  /** The words of its mode; a conversion changes them. */
  mode: readonly string[];
  readonly number: number;
  readonly lost: Promise<Loss>;
  holds = 1;
  #token: number;
  #validUntil: number;
  #loss: Loss | undefined;
  #isEnded = false;
  readonly #ended = new AbortController();
  readonly #keeping: Keeping;
  readonly #since = now();
  readonly #controller = new AbortController();
  #resolveLost: (loss: Loss) => void = () => {};
  #timer: NodeJS.Timeout | undefined;
  #wakeAt = 0;
  #extendAt: number;
  #isExtending = false;
  #lastFailure: PalisadeError | undefined;
  readonly #onEnd: (held: Held) => void;
  readonly #report: Report;

  constructor(
    connections: Connections,
    acquisition: Acquisition,
    mode: readonly string[],
    grant: Grant,
    keeping: Keeping,
    onEnd: (held: Held) => void,
    report: Report,
  ) {
    this.connections = connections;
    this.acquisition = acquisition;
    this.mode = mode;
    this.number = grant.number;
    this.#token = grant.token;
    this.#validUntil = grant.validUntil;
    this.#keeping = keeping;
    this.#onEnd = onEnd;
    this.#report = report;
    this.lost = new Promise((resolve) => {
      this.#resolveLost = resolve;
    });
    setMaxListeners(0, this.signal);
    this.#extendAt = this.#whenToExtend();
    this.#schedule();
    const watched = { key: acquisition.key, token: () => this.#token, check: () => this.checkSoon() };
    connections.inBackground(watch(connections, watched, this.#ended.signal));
  }

  get token(): number {
    return this.#token;
  }

  /** The words that name its mode to a gate. A semaphore with one permit is an exclusive lock. */
  get gateMode(): readonly string[] {
    if (this.mode[0] === 'SHARED') return ['SHARED'];
    return this.mode[0] === 'LIMIT' && this.mode[1] !== '1' ? ['PERMIT', String(this.number)] : [];
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get loss(): Loss | undefined {
    return this.#loss;
  }

  /** Milliseconds for which the lock may be relied on. The clock alone decides, not whether a timer has run. */
  get validFor(): number {
    return this.#isEnded ? 0 : Math.max(0, this.#validUntil - now());
  }

  /** Milliseconds since the grant. */
  get heldFor(): number {
    return now() - this.#since;
  }

  /** Requests a lease of `ttl` ms from now. */
  async extend(ttl: number = this.#keeping.ttl): Promise<void> {
    this.throwIfLost();
    await this.#ask(checkedTtl(ttl), false);
  }

  /** Makes the lock shared, or exclusive. */
  async convert(mode: 'SHARED' | 'EXCLUSIVE'): Promise<void> {
    this.throwIfLost();
    const reply = await this.connections.ask(['LOCK.CONVERT', this.acquisition.key, this.acquisition.owner, mode]);
    if (reply === null && mode === 'EXCLUSIVE') {
      // Null is also the answer if the lock is no longer held: an extension shows which of the two it is.
      await this.extend();
      throw new NotAcquired('others hold the lock for reading too', 'held');
    }
    if (reply === null) this.lose('taken-away');
    this.throwIfLost();
    this.#token = Math.max(this.#token, toInteger(reply));
  }

  /** Ends the extensions, without reporting a loss. */
  end(): void {
    if (this.#isEnded) return;
    this.#end();
    this.#report((to, kind) => to.released?.(kind, this.heldFor));
  }

  #end(): void {
    this.#isEnded = true;
    this.#ended.abort();
    clearTimeout(this.#timer);
    this.#onEnd(this);
  }

  /** Marks the lock as lost, and notifies those who rely on it. */
  lose(reason: LossReason, more?: string): void {
    if (this.#isEnded) return;
    this.#end();
    const loss = lossOf(reason, more);
    this.#report((to, kind) => to.lost?.(kind, this.heldFor, loss));
    this.#loss = loss;
    this.#resolveLost(loss);
    this.#controller.abort(named(new LockLost(loss), this.acquisition.key));
    this.#tell(loss);
  }

  /** Marks the lock as lost if its lease is over, even if no timer has run yet. */
  loseIfOver(): void {
    if (!this.#isEnded && this.validFor === 0) this.#leaseIsOver();
  }

  /** Throws if the lock is no longer valid. */
  throwIfLost(): void {
    this.loseIfOver();
    if (this.#loss) throw new LockLost(this.#loss);
    if (this.#isEnded) throw new LockLost(lossOf('taken-away', 'it was released'));
  }

  #tell(loss: Loss): void {
    const failed = (error: unknown) =>
      warn(`onLost of the lock ${shown(this.acquisition.key)} failed: ${String(error)}`);
    try {
      Promise.resolve(this.#keeping.onLost?.(loss)).catch(failed);
    } catch (error) {
      failed(error);
    }
  }

  /** Returns when to extend the lease: two thirds of the ttl before its end, so a longer first lease later. */
  #whenToExtend(): number {
    return this.#validUntil - (this.#keeping.ttl * 2) / 3;
  }

  get #mayExtend(): boolean {
    return this.#keeping.autoExtend && this.heldFor < this.#keeping.maxHold;
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    if (this.#isEnded) return;
    const isDue = this.#mayExtend && !this.#isExtending;
    this.#wakeAt = isDue ? Math.min(this.#extendAt, this.#validUntil) : this.#validUntil;
    this.#timer = backgroundTimer(() => this.#wake(), Math.ceil(this.#wakeAt - now()));
  }

  #wake(): void {
    const at = now();
    if (at >= this.#validUntil) this.#leaseIsOver();
    else if (at >= this.#extendAt && this.#mayExtend && !this.#isExtending) this.checkSoon();
    else this.#schedule();
  }

  /** Extends the lock in the background, or finds that it is lost. */
  checkSoon(): void {
    if (this.#isEnded || this.#isExtending) return;
    // A lock that is not to be extended keeps its lease: this requests what is left of it, which also shows whether it
    // is held.
    const ttl = this.#mayExtend ? this.#keeping.ttl : Math.ceil(this.validFor);
    // The request itself handles its outcome.
    this.#ask(ttl, true).catch(() => {});
  }

  #leaseIsOver(): void {
    const late = now() - this.#wakeAt;
    if (late > Math.max(50, this.#keeping.ttl / 3)) this.lose('asleep');
    else if (!this.#keeping.autoExtend) this.lose('not-extended');
    else if (!this.#mayExtend) this.lose('max-hold');
    else this.lose('not-extended-in-time', this.#lastFailure?.message);
  }

  async #ask(ttl: number, background: boolean): Promise<void> {
    const { key, owner } = this.acquisition;
    const within = Math.max(1, Math.min(EXTEND_WITHIN_MS, this.#keeping.ttl / 3));
    if (background) {
      this.#isExtending = true;
      this.#schedule();
    }
    const sent = now();
    try {
      const sending = background ? { background, within } : {};
      const reply = await this.connections.ask(['LOCK.EXTEND', key, owner, String(ttl)], sending);
      // An answer that arrives after the end of the lease does not revive a lock that was not valid meanwhile.
      this.throwIfLost();
      if (reply === null) {
        this.lose('taken-away');
        this.throwIfLost();
      }
      this.#token = Math.max(this.#token, toInteger(reply));
      this.#validUntil = Math.max(this.#validUntil, validUntil(sent, 0, ttl));
      this.#extendAt = this.#whenToExtend();
      this.#lastFailure = undefined;
      if (background) this.#report((to, kind) => to.extended?.(kind, true));
    } catch (error) {
      if (background) {
        if (!this.#isEnded) this.#report((to, kind) => to.extended?.(kind, false));
        this.#lastFailure = error as PalisadeError;
        const again = Math.min(Math.max(this.#keeping.ttl / 20, AGAIN_LEAST_MS), AGAIN_MOST_MS);
        this.#extendAt = now() + again;
      }
      if (error instanceof Unavailable) {
        throw new Unavailable(
          `the lock was not extended, and stays valid for ${Math.floor(this.validFor)} ms: ${error.message}`,
          {
            cause: error,
          },
        );
      }
      throw error;
    } finally {
      if (background) this.#isExtending = false;
      this.#schedule();
    }
  }
}
