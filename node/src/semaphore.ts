import type { Permit } from './lock.js';
import { type LockOptions, unwaited } from './options.js';

/** How a semaphore takes a permit. @internal */
export type TakePermit = (options: LockOptions | undefined) => Promise<Permit>;

/**
 * Permits, of which there are so many; of `Palisade.semaphore`.
 *
 * Each has a number, from 1 to the limit, that nobody else has at the time: it can be a worker's id, a shard, a port. Its token is
 * larger than that of every earlier permit with its number, so a resource remembers one largest token a number.
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

  /** A permit if one is free now, else `null`. */
  async tryAcquire(options?: Omit<LockOptions, 'wait'>): Promise<Permit | null> {
    return this.#unlessHeld(this.#take(unwaited(options)));
  }
}
