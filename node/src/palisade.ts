import { randomBytes } from 'node:crypto';
import { acquire } from './acquiring.js';
import { addressOf, type ExistingClient, optionsOf } from './address.js';
import type { Connecting } from './connection.js';
import { Connections } from './connections.js';
import { Election } from './election.js';
import { BadArgument, Closed, NotAcquired, naming } from './errors.js';
import { Held } from './held.js';
import { defaultNote, type Flow, flowFor, noted } from './holder.js';
import { Lock, Permit } from './lock.js';
import {
  type Checked,
  checked,
  checkedKey,
  checkedLimit,
  checkedMinHold,
  checkNames,
  type Key,
  type LockOptions,
  merged,
  milliseconds,
  unwaited,
} from './options.js';
import { Semaphore } from './semaphore.js';

/** What a `Palisade` does unless it is told otherwise. */
export interface PalisadeOptions extends Omit<LockOptions, 'signal'> {
  /** For how many ms the server is given to answer, 3000 unless set. Waiting for a lock is not counted. */
  answerWithin?: number | undefined;
}

const DEFAULT_OPTIONS = ['ttl', 'wait', 'note', 'holder', 'autoExtend', 'maxHold', 'onLost'];

/** What became of a function that runs at most once in a time. */
export type Once<T> = { readonly ran: true; readonly value: T } | { readonly ran: false };

/**
 * Locks on one server with the Palisade module, or on several by a `palisade agent`.
 *
 * It has connections of its own, made when they are needed: one for what is answered at once, and one for each wait and each watch. None of them
 * keeps the process alive while no answer is due, and neither does a held lock: a program that ends leaves its lease to run out. Call
 * {@link Palisade.close} at the end.
 */
export class Palisade implements AsyncDisposable {
  readonly #connections: Connections;
  readonly #defaults: LockOptions;
  readonly #held = new Set<Held>();
  #closing: Promise<void> | undefined;

  /**
   * @param address `redis://[user:password@]host:port`, `rediss://…`, `unix:///path`, options as of `createClient`, or a client.
   * @param defaults of every lock, unless it is told otherwise.
   */
  constructor(address: string | Connecting | ExistingClient, defaults: PalisadeOptions = {}) {
    checkNames(defaults, [...DEFAULT_OPTIONS, 'answerWithin']);
    const { answerWithin = 3_000, ...locks } = defaults;
    milliseconds('answerWithin', answerWithin, 1, 2 ** 31 - 1);
    checked(locks);
    this.#defaults = locks;
    const options = optionsOf(address);
    this.#connections = new Connections(options, addressOf(options), answerWithin);
  }

  /**
   * Takes a lock, waiting in turn if it is not free, and keeps it: its lease is extended until it is released.
   *
   * @throws {@link NotAcquired}: not in time. Guarded, NoQuorum, Unavailable, Misconfigured, ServerError: it could not be asked for.
   * The reason of `signal`, if that aborts.
   */
  async lock(key: Key, options?: LockOptions): Promise<Lock> {
    return new Lock(await this.#take(key, [], options));
  }

  /** The lock if it is free now, else `null`. */
  async tryLock(key: Key, options?: Omit<LockOptions, 'wait'>): Promise<Lock | null> {
    return unlessHeld(this.lock(key, unwaited(options)));
  }

  /** As {@link lock}, together with others who read: for those who do not change what the lock protects. */
  async readLock(key: Key, options?: LockOptions): Promise<Lock> {
    return new Lock(await this.#take(key, ['SHARED'], options));
  }

  /** As {@link lock}: alone. Neither readers nor writers pass one who waits longer. */
  writeLock(key: Key, options?: LockOptions): Promise<Lock> {
    return this.lock(key, options);
  }

  /** Permits of which at most `limit` are held at a time, 1 to 65 535. */
  semaphore(key: Key, limit: number): Semaphore {
    checkedLimit(limit);
    const name = checkedKey(key);
    const take = async (options: LockOptions | undefined) =>
      new Permit(await this.#take(name, ['LIMIT', String(limit)], options));
    return new Semaphore(take, unlessHeld);
  }

  /** The election of this name. */
  election(name: Key): Election {
    const key = checkedKey(name);
    // A leader is meant to stay.
    const take = (options: LockOptions | undefined) =>
      this.#take(key, [], {
        ...options,
        maxHold: options?.maxHold ?? this.#defaults.maxHold ?? Number.POSITIVE_INFINITY,
      });
    return new Election(this.#connections, key, take);
  }

  /**
   * Runs `work` under a lock, and gives the lock back. Pass on `lock.signal` to what takes long: it aborts when the lock is lost.
   *
   * What `work` returns is never lost to a server that cannot be told of the release: that becomes a warning of the process.
   *
   * @throws LockLost if the lock was lost before `work` had ended, and `work` did not fail itself; else as {@link lock}.
   */
  async withLock<T>(key: Key, options: LockOptions, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    if (typeof work !== 'function') throw new BadArgument('work must be a function: withLock(key, options, work)');
    const lock = await this.lock(key, options);
    let value: T;
    try {
      value = await work(lock);
    } catch (error) {
      await lock.release().catch(() => {});
      throw error;
    }
    await lock.releaseUnlessLost();
    return value;
  }

  /**
   * Runs `work` if the lock is free, and skips it otherwise. The lock stays held for at least `minHold` ms from its grant, also if
   * `work` takes less or fails: so hosts whose clocks differ by less than that do not run one cron job twice. Nobody waits for it;
   * its lease is left to run out. Longer work is done under a lock that is extended as usual, and the lock is free afterwards.
   *
   * `minHold` is in milliseconds, 100 at least. The lease is as long as that at first: it must not be longer than the server's `lock.max-ttl`.
   */
  async once<T>(
    name: Key,
    minHold: number,
    work: (lock: Lock) => T | Promise<T>,
    options?: Omit<LockOptions, 'wait'>,
  ): Promise<Once<T>> {
    checkedMinHold(minHold);
    const held = await unlessHeld(this.#take(name, [], unwaited(options), minHold));
    if (!held) return { ran: false };
    const lock = new Lock(held);
    const leave = async (): Promise<void> => {
      if (lock.isValid && held.heldFor < minHold) lock.leave();
      else await lock.releaseUnlessLost();
    };
    let value: T;
    try {
      value = await work(lock);
    } catch (error) {
      await leave().catch(() => {});
      throw error;
    }
    await leave();
    return { ran: true, value };
  }

  /**
   * Gives back all locks that are held (they are lost, `closed`), ends all waits (with {@link Closed}), and closes the connections
   * when the server has been told.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** As {@link close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    for (const held of [...this.#held]) {
      held.lose('closed');
      this.#connections.giveBack(held.acquisition);
    }
    await this.#connections.close();
  }

  async #take(key: Key, mode: string[], given: LockOptions | undefined, minHold = 0): Promise<Held> {
    const name = checkedKey(key);
    return naming(name, () => this.#takeBy(name, mode, checked(merged(this.#defaults, given)), minHold));
  }

  async #takeBy(key: Buffer, mode: string[], options: Checked, minHold: number): Promise<Held> {
    // Before anything is awaited: it is the caller's.
    const flow = options.holder === undefined ? flowFor(key) : undefined;
    const ttl = Math.max(options.ttl, minHold);
    // New for each acquisition, so that nobody takes another's grant for their own.
    const acquisition = { key, owner: randomBytes(16).toString('hex'), ttl };
    const note = noted(options.note ?? defaultNote(), options.holder ?? (flow as Flow).id);
    const { wait, signal } = options;
    const taking = acquire(this.#connections, { ...acquisition, mode, note, wait, signal });
    const grant = await (flow ? flow.waitFor(taking) : taking);
    if (this.#closing) {
      this.#connections.giveBack(acquisition);
      throw new Closed();
    }
    const letGo = flow?.hold(key);
    const held = new Held(this.#connections, acquisition, grant, options, () => {
      this.#held.delete(held);
      letGo?.();
    });
    this.#held.add(held);
    return held;
  }
}

async function unlessHeld<T>(taking: Promise<T>): Promise<T | null> {
  try {
    return await taking;
  } catch (error) {
    if (error instanceof NotAcquired && error.reason === 'held') return null;
    throw error;
  }
}
