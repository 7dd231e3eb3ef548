import type { Lock } from './lock.js';

/** A held lock of another library. */
export interface OldLock {
  release(): Promise<unknown>;
}

/**
 * Both locks of a resource, while programs move from an old lock to this one: docs/migrate.md.
 *
 * In every program, the old lock is acquired first and released last. It is extended, or not, as its library does it.
 * The new lock needs a name of its own if it is on the same server.
 */
export class DualLock<O extends OldLock = OldLock> implements AsyncDisposable {
  private constructor(
    readonly old: O,
    readonly lock: Lock,
  ) {}

  /**
   * Acquires both: `DualLock.acquire(() => redlock.acquire([key], 30_000), () => locks.lock(name))`.
   *
   * @throws what `acquireOld` throws, then what `take` throws. Then neither is held.
   */
  static async acquire<O extends OldLock>(
    acquireOld: () => Promise<O>,
    take: () => Promise<Lock>,
  ): Promise<DualLock<O>> {
    const old = await acquireOld();
    try {
      return new DualLock(old, await take());
    } catch (error) {
      await old.release();
      throw error;
    }
  }

  /** Releases both. @throws LockLost, or the old library's error, if one was lost. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.lock[Symbol.asyncDispose]();
    } finally {
      await this.old.release();
    }
  }

  /** Releases both: see {@link DualLock.acquire}. */
  release(): Promise<void> {
    return this[Symbol.asyncDispose]();
  }
}
