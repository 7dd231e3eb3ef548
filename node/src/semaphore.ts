import type { Permit } from './lock.js';
import { type LockOptions, unwaited } from './options.js';

/** Acquires a permit of a semaphore. @internal */
export type TakePermit = (options: LockOptions | undefined) => Promise<Permit>;

/**
 * A limited number of permits, created by `Palisade.semaphore`.
 *
 * Each permit has a number, from 1 to the limit, that no other holder has at the time: it can be a worker's id, a shard
 * or a port. Its token is larger than that of every earlier permit with its number, so a resource remembers one largest
 * token per number.
 */
export class Semaphore {
  readonly #take: TakePermit;
  readonly #unlessHeld: <T>(taking: Promise<T>) => Promise<T | null>;

  /** @internal */
  constructor(take: TakePermit, unlessHeld: <T>(taking: Promise<T>) => Promise<T | null>) {
    this.#take = take;
    this.#unlessHeld = unlessHeld;
  }

  /** Waits in turn until a permit is free. @throws NotAcquired, as `Palisade.lock`. */
  acquire(options?: LockOptions): Promise<Permit> {
    return this.#take(options);
  }

  /** Acquires a permit if one is free now; returns `null` otherwise. */
  async tryAcquire(options?: Omit<LockOptions, 'wait'>): Promise<Permit | null> {
    return this.#unlessHeld(this.#take(unwaited(options)));
  }
}
