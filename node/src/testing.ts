import { OPENING } from './connection.js';
import { BadArgument } from './errors.js';
import { Memory } from './memory.js';
import { checkedKey, type Key } from './options.js';
import { Palisade, type PalisadeOptions } from './palisade.js';

const DAY_MS = 86_400_000;

/**
 * Locks in memory, for unit tests of programs that hold locks: no server is needed.
 *
 * The clients are those of the package, with the locks, the queue and the leases of one node. There is no guard, no
 * network that fails, and no observation of leaders.
 */
export class FakeServer {
  readonly #memory = new Memory();
  readonly #clients: Palisade[] = [];

  /** Returns a client. Close it as any other. */
  locks(defaults?: PalisadeOptions): Palisade {
    const address = { [OPENING]: async () => this.#memory.open() };
    const client = new Palisade(address as never, defaults);
    this.#clients.push(client);
    return client;
  }

  /**
   * Takes a lock away from all its holders, as an operator does with LOCK.BREAK. When this returns they have lost it
   * (`taken-away`), and the next in the queue has it.
   */
  takeAway(key: Key): void {
    const name = checkedKey(key);
    for (const client of this.#clients) client.loseAll(name);
    this.#memory.takeAway(name);
  }

  /** Holds a lock as another program does, and returns what releases it. The lock must be free. */
  holdElsewhere(key: Key): () => void {
    const name = checkedKey(key);
    const owner = 'another program';
    const request = { owner, ttl: DAY_MS, note: Buffer.from(owner), isShared: false, limit: 0 };
    if (this.isHeld(key) || !this.#memory.acquire(name, request)) throw new BadArgument(`${name} is held already`);
    return () => {
      this.#memory.release(name, owner);
    };
  }

  /** Returns how many wait for a lock. */
  waiting(key: Key): number {
    return this.#memory.waiting(checkedKey(key));
  }

  /** Returns whether somebody holds a lock. */
  isHeld(key: Key): boolean {
    return this.#memory.isHeld(checkedKey(key));
  }
}
