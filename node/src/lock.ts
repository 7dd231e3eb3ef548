import { Closed, LockLost, named, naming, shown, UnexpectedReply, warn } from './errors.js';
import type { Held } from './held.js';
import { type Loss, lossOf, type Released } from './loss.js';
import { isLasting } from './refusals.js';

/**
 * A lock that is held, as long as it {@link Lock.isValid | is valid}.
 *
 * Look at that before each step that must not happen without the lock, and give the {@link Lock.token | token} to the resource,
 * which refuses a smaller one than it has seen: no check on this side can catch a process that is paused right after it.
 *
 * `await using lock = await locks.lock(key)` gives it back at the end of the block, and throws {@link LockLost} there if it was
 * lost meanwhile, and for no other reason. If the block throws as well, JavaScript makes a `SuppressedError` of both; `withLock` throws the block's alone.
 */
export class Lock implements AsyncDisposable {
  /** @internal */
  protected readonly held: Held;
  #releasing: Promise<Released> | undefined;

  /** @internal */
  constructor(held: Held) {
    this.held = held;
  }

  /** The key that is locked. */
  get key(): Buffer {
    return Buffer.from(this.held.acquisition.key);
  }

  /** The name under which the server knows this acquisition, new and random. Who knows it can release the lock. */
  get owner(): string {
    return this.held.acquisition.owner;
  }

  /**
   * The fencing token: larger than that of every earlier holder. It is below 2^53, so exact as a `number` and in JSON. Behind a
   * `palisade agent` it can rise while the lock is held, and never falls: ask for it at each use.
   */
  get token(): number {
    return this.held.token;
  }

  /**
   * For how many ms the lock may be relied on from now; 0: not any more. Counted on this machine's monotonic clock from before
   * the server was asked, less 1 % and 2 ms.
   */
  get validFor(): number {
    return this.#releasing ? 0 : this.held.validFor;
  }

  /** Whether the lock may be relied on, now. Decided by the clock at each look, not by timers. */
  get isValid(): boolean {
    return this.validFor > 0;
  }

  /**
   * Resolves with the reason if the lock is lost, at the latest when its validity ends and the event loop runs. Never rejects, never
   * keeps the process alive, and stays pending for ever if the lock is released first: use it beside the work, as in `Promise.race`.
   */
  get lost(): Promise<Loss> {
    return this.held.lost;
  }

  /** Aborts, with a {@link LockLost}, when the lock is lost; not when it is released. */
  get signal(): AbortSignal {
    return this.held.signal;
  }

  /**
   * Makes the lease last for the ttl of the lock from now on, or for `ttl` ms.
   *
   * @throws {@link LockLost}; {@link Unavailable}: the lock stays valid for as long as it was.
   */
  extend(ttl?: number): Promise<void> {
    return this.#naming(() => {
      this.#throwIfReleased();
      return this.held.extend(ttl);
    });
  }

  /**
   * One lock more of the same acquisition, for code that takes a lock which it may have already. It is free when all of them were
   * released.
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
   * Gives the lock back, and tells what that came to: it was `freed`, it was `not-held` any more, or that is `unknown`. A server that
   * does not answer is no error: the lock was valid until now, and is given back in the background. Once: later calls return what the
   * first one did. Of a lock that was re-entered it gives one hold back.
   *
   * @throws Misconfigured, ServerError: the server refuses to.
   */
  release(): Promise<Released> {
    this.#releasing ??= this.#naming(() => this.#release());
    return this.#releasing;
  }

  /** Releases, and throws {@link LockLost} if the lock was not held any more; nothing else. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#releasing) await this.releaseUnlessLost();
  }

  /** @internal Another lock of the same acquisition. */
  protected again(): this {
    return new Lock(this.held) as this;
  }

  /** @internal Leaves the lock as it is until its lease ends. */
  leave(): void {
    this.#releasing ??= Promise.resolve('freed');
    this.held.end();
  }

  /** @internal Releases, and fails if the lock was lost. Nothing else is a reason to: it was valid until now. */
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
      // Its loss is told, if no timer has run yet; it may still be held on the server.
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

  #throwIfReleased(): void {
    if (this.#releasing) throw new LockLost(lossOf('taken-away', 'it was released'));
  }
}

/** One of so many permits. */
export class Permit extends Lock {
  /** Its number, from 1 to the limit. Nobody else has it meanwhile. */
  get number(): number {
    return this.held.number;
  }

  /** @internal */
  protected override again(): this {
    return new Permit(this.held) as this;
  }
}
