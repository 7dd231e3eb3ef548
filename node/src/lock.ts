import { BadArgument, Closed, LockLost, named, naming, shown, UnexpectedReply, warn } from './errors.js';
import { type FencedClient, fenced, type GateOptions, type SendingClient } from './gated.js';
import type { Held } from './held.js';
import { type Loss, lossOf, type Released } from './loss.js';
import { isLasting } from './refusals.js';

/**
 * A held lock, for as long as it {@link Lock.isValid | is valid}.
 *
 * Check that before each step that must not happen without the lock. Give the {@link Lock.token | token} to the
 * resource, which refuses a token smaller than the largest it has seen: no check on this side can catch a process that
 * is paused right after it.
 *
 * `await using lock = await locks.lock(key)` releases the lock at the end of the block. It throws {@link LockLost}
 * there if the lock was lost meanwhile, and for no other reason. If the block throws as well, JavaScript wraps both in
 * a `SuppressedError`; `withLock` throws the block's error alone.
 */
export class Lock implements AsyncDisposable {
  /** @internal */
  protected readonly held: Held;
  #releasing: Promise<Released> | undefined;

  /** @internal */
  constructor(held: Held) {
    this.held = held;
  }

  /** The key of the lock. */
  get key(): Buffer {
    return Buffer.from(this.held.acquisition.key);
  }

  /**
   * The owner, which names this acquisition on the server: new and random. Anyone who knows it can release the lock.
   */
  get owner(): string {
    return this.held.acquisition.owner;
  }

  /**
   * The fencing token: larger than that of every earlier holder, and below 2^53, so exact as a `number` and in JSON. It
   * never falls, but behind a `palisade agent` it can rise while the lock is held: read it at each use.
   */
  get token(): number {
    return this.held.token;
  }

  /**
   * Milliseconds for which the lock may be relied on from now; 0 once it may not. Counted on this machine's monotonic
   * clock from before the server was asked, less 1 % and 2 ms.
   */
  get validFor(): number {
    return this.#releasing ? 0 : this.held.validFor;
  }

  /** True if the lock may be relied on now. The clock decides at each read, not timers. */
  get isValid(): boolean {
    return this.validFor > 0;
  }

  /**
   * Resolves with the reason if the lock is lost, at the latest when its validity ends and the event loop runs. Never
   * rejects, never keeps the process alive, and stays pending for ever if the lock is released first: use it beside the
   * work, as in `Promise.race`.
   */
  get lost(): Promise<Loss> {
    return this.held.lost;
  }

  /** Aborts with a {@link LockLost} when the lock is lost; not when it is released. */
  get signal(): AbortSignal {
    return this.held.signal;
  }

  /**
   * Extends the lease from now to the ttl of the lock, or to `ttl` ms.
   *
   * @throws {@link LockLost}; {@link Unavailable}: the lock stays valid until its previous end.
   */
  extend(ttl?: number): Promise<void> {
    return this.#naming(() => {
      this.#throwIfReleased();
      return this.held.extend(ttl);
    });
  }

  /**
   * Returns `client` with all its commands sent through a gate: no server that has seen a newer holder runs them.
   *
   * The client, of node-redis, reaches the data on any server with the module. Commands reject with {@link Fenced} and
   * {@link LockLost}: nothing was done, so stop. docs/commands/gate.md
   */
  fenced<C extends SendingClient>(client: C, options: GateOptions): FencedClient<C> {
    return fenced(client, this.held, options, () => this.check());
  }

  /**
   * Makes an exclusive lock a read lock: waiting readers get in, and the token stays. It is a reader's from the call on,
   * also if the server does not answer: the holder must not write any more.
   */
  downgrade(): Promise<void> {
    return this.#naming(() => {
      this.#checkConvertible();
      this.held.mode = ['SHARED'];
      return this.held.convert('SHARED');
    });
  }

  /**
   * Makes a read lock exclusive, with a new token, if nobody shares it. It never waits, since two readers that both
   * waited to write would wait for ever. An agent refuses it.
   *
   * @throws NotAcquired: others read too. The lock stays as it was.
   */
  upgrade(): Promise<void> {
    return this.#naming(async () => {
      this.#checkConvertible();
      await this.held.convert('EXCLUSIVE');
      this.held.mode = [];
    });
  }

  /**
   * Leaves the lock to another program: the lease gets its full length once more, and then is neither extended nor
   * released. That program takes over by `Palisade.adopt` with the owner and the token, before the lease ends.
   */
  handOver(): Promise<{ owner: string; token: number }> {
    return this.#naming(async () => {
      if (this.held.mode.length > 0) throw new BadArgument('only an exclusive lock can be handed over');
      this.#throwIfReleased();
      await this.held.extend();
      this.#throwIfReleased();
      this.leave();
      return { owner: this.owner, token: this.token };
    });
  }

  /**
   * Returns another lock of this acquisition, for code that acquires a lock it may already hold. The lock is free once
   * all are released.
   */
  reenter(): Promise<this> {
    return this.#naming(() => this.#reenter());
  }

  async #reenter(): Promise<this> {
    this.#throwIfReleased();
    this.held.throwIfLost();
    const { connections, acquisition } = this.held;
    const level = ++this.held.holds;
    const inner = this.again();
    try {
      const reply = await connections.ask(['LOCK.REENTER', acquisition.key, acquisition.owner, 'LEVEL', String(level)]);
      if (reply === null) this.held.lose('taken-away');
      this.held.throwIfLost();
      return inner;
    } catch (error) {
      await inner.release().catch(() => {});
      throw error;
    }
  }

  /**
   * Releases the lock, and returns the outcome: `freed`, `not-held` (it was no longer held) or `unknown`. A server that
   * does not answer is no error: the lock was valid until now, and is released in the background. Later calls return
   * the first outcome. A re-entered lock releases one hold.
   *
   * @throws Misconfigured, ServerError: the server refuses the release.
   */
  release(): Promise<Released> {
    this.#releasing ??= this.#naming(() => this.#release());
    return this.#releasing;
  }

  /** Releases the lock, and throws only {@link LockLost}, if it was no longer held. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#releasing) await this.releaseUnlessLost();
  }

  /** Returns another lock of the same acquisition. @internal */
  protected again(): this {
    return new Lock(this.held) as this;
  }

  /** Throws unless the lock may be relied on. @internal */
  check(): void {
    if (this.isValid) return;
    try {
      this.#throwIfReleased();
      this.held.throwIfLost();
    } catch (error) {
      throw named(error, this.key);
    }
  }

  /** Leaves the lock to the end of its lease. @internal */
  leave(): void {
    this.#releasing ??= Promise.resolve('freed');
    this.held.end();
  }

  /** Releases, and throws only if the lock was lost: otherwise it was valid until now. @internal */
  async releaseUnlessLost(): Promise<void> {
    const released = await this.release().catch((error: Error): Released => {
      warn(`${error.message} (the work under the lock was done)`);
      return 'unknown';
    });
    if (released === 'not-held') throw named(new LockLost(this.held.loss ?? lossOf('taken-away')), this.key);
  }

  async #release(): Promise<Released> {
    const { connections, acquisition } = this.held;
    const wasValid = this.held.validFor > 0;
    const level = this.held.holds--;
    const isLast = level === 1;
    if (isLast && !wasValid) {
      // The loss is reported even if no timer has run yet; the server may still hold the lock.
      this.held.loseIfOver();
      connections.giveBack(acquisition);
      return 'not-held';
    }
    if (isLast) this.held.end();
    let released: Released = 'unknown';
    try {
      released = await connections.release(acquisition, level);
    } catch (error) {
      if (isLast && !(error instanceof UnexpectedReply)) connections.giveBack(acquisition);
      if (isLasting(error) && !(error instanceof Closed)) throw error;
      warn(`${shown(acquisition.key)}: whether the lock was given back is not known: ${(error as Error).message}`);
    }
    return wasValid ? released : 'not-held';
  }

  #naming<T>(work: () => T | Promise<T>): Promise<T> {
    return naming(this.held.acquisition.key, work);
  }

  #checkConvertible(): void {
    this.#throwIfReleased();
    if (this.held.number > 0) {
      throw new BadArgument('a permit has no readers and writers: release it, and acquire the lock');
    }
  }

  #throwIfReleased(): void {
    if (this.#releasing) throw new LockLost(lossOf('taken-away', 'it was released'));
  }
}

/** A permit of a semaphore. */
export class Permit extends Lock {
  /** The number of the permit, from 1 to the limit. No other holder has it meanwhile. */
  get number(): number {
    return this.held.number;
  }

  /** @internal */
  protected override again(): this {
    return new Permit(this.held) as this;
  }
}
