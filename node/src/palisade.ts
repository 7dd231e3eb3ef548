import { acquireInTime, type Grant } from './acquiring.js';
import { addressOf, type ExistingClient, optionsOf } from './address.js';
import { now, validUntil } from './clock.js';
import { type Connecting, Connection, OPENING, type Opening } from './connection.js';
import { type Acquisition, Connections } from './connections.js';
import { Election } from './election.js';
import { BadArgument, Closed, LockLost, NotAcquired, naming } from './errors.js';
import { Held } from './held.js';
import { defaultNote, type Flow, flowFor, noted } from './holder.js';
import { type Report, reporting } from './listening.js';
import { Lock, Permit } from './lock.js';
import { lossOf } from './loss.js';
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
import { toInteger } from './replies.js';
import { Semaphore } from './semaphore.js';

/** Default options of a `Palisade`. */
export interface PalisadeOptions extends Omit<LockOptions, 'signal'> {
  /** The server's time to answer in milliseconds, 3000 by default. Waiting for a lock does not count. */
  answerWithin?: number | undefined;
}

/** Options of a lock that is adopted: it keeps its note, and nobody waits for it. */
export type AdoptOptions = Pick<
  LockOptions,
  'ttl' | 'holder' | 'autoExtend' | 'maxHold' | 'onLost' | 'listener' | 'lockClass'
>;

const ADOPT_OPTIONS = ['ttl', 'holder', 'autoExtend', 'maxHold', 'onLost', 'listener', 'lockClass'];
const DEFAULT_OPTIONS = [...ADOPT_OPTIONS, 'wait', 'note'];

/** The outcome of a function that runs at most once per period. */
export type Once<T> = { readonly ran: true; readonly value: T } | { readonly ran: false };

/**
 * Locks on one server with the Palisade module, or on several through a `palisade agent`.
 *
 * It opens connections of its own when they are needed: one for commands that are answered at once, and one for each
 * wait and each watch. Neither an idle connection nor a held lock keeps the process alive: a program that ends leaves
 * its lease to run out. Call {@link Palisade.close} at the end.
 */
export class Palisade implements AsyncDisposable {
  readonly #connections: Connections;
  readonly #defaults: LockOptions;
  readonly #held = new Set<Held>();
  #closing: Promise<void> | undefined;

  /**
   * @param address `redis://[user:password@]host:port`, `rediss://…`, `unix:///path`, options as of `createClient`, or
   * a client.
   * @param defaults default options of every lock.
   */
  constructor(address: string | Connecting | ExistingClient, defaults: PalisadeOptions = {}) {
    checkNames(defaults, [...DEFAULT_OPTIONS, 'answerWithin']);
    const { answerWithin = 3_000, ...locks } = defaults;
    milliseconds('answerWithin', answerWithin, 1, 2 ** 31 - 1);
    checked(locks);
    this.#defaults = locks;
    const inMemory = (address as { [OPENING]?: Opening })?.[OPENING];
    if (inMemory) {
      this.#connections = new Connections(inMemory, 'memory', answerWithin);
    } else {
      const options = optionsOf(address);
      const name = addressOf(options);
      this.#connections = new Connections((within) => Connection.open(options, name, within), name, answerWithin);
    }
  }

  /**
   * Acquires a lock, waiting in turn if it is not free, and keeps it: its lease is extended until it is released.
   *
   * @throws {@link NotAcquired}: not in time. Guarded, NoQuorum, Unavailable, Misconfigured, ServerError: no answer
   * could be had. The reason of `signal`, if that aborts.
   */
  async lock(key: Key, options?: LockOptions): Promise<Lock> {
    return new Lock(await this.#take(key, [], options));
  }

  /** Acquires the lock if it is free now; returns `null` otherwise. */
  async tryLock(key: Key, options?: Omit<LockOptions, 'wait'>): Promise<Lock | null> {
    return unlessHeld(this.lock(key, unwaited(options)));
  }

  /**
   * Acquires the lock together with other readers, for callers that do not change what it protects. See {@link lock}.
   */
  async readLock(key: Key, options?: LockOptions): Promise<Lock> {
    return new Lock(await this.#take(key, ['SHARED'], options));
  }

  /** Acquires the lock alone. Neither readers nor writers pass an earlier waiter. See {@link lock}. */
  writeLock(key: Key, options?: LockOptions): Promise<Lock> {
    return this.lock(key, options);
  }

  /**
   * Takes over a lock that another program has handed over ({@link Lock.handOver}), and keeps it. So the one who
   * enqueues a job acquires the lock, and the worker releases it.
   *
   * @throws LockLost: the lock was no longer held with that token.
   */
  async adopt(key: Key, owner: string, token: number, options: AdoptOptions = {}): Promise<Lock> {
    const name = checkedKey(key);
    const adopting = naming(name, async () => new Lock(await this.#adopt(name, owner, token, options)));
    this.#connections.inBackground(adopting);
    return adopting;
  }

  async #adopt(key: Buffer, owner: string, token: number, given: AdoptOptions): Promise<Held> {
    checkNames(given, ADOPT_OPTIONS, ' of a lock that is adopted');
    if (typeof owner !== 'string' || owner === '') throw new BadArgument('owner must be that of handOver');
    if (!Number.isSafeInteger(token) || token < 1)
      throw new BadArgument(`token must be that of handOver, not ${token}`);
    const options = checked(merged(this.#defaults, given));
    const flow = options.holder === undefined ? flowFor(key) : undefined;
    const { ttl } = options;
    const sent = now();
    const reply = await this.#connections.ask(['LOCK.EXTEND', key, owner, String(ttl)]);
    if (reply === null) throw new LockLost(lossOf('taken-away'));
    const current = toInteger(reply);
    // Behind an agent the token can have risen. A smaller one is of another grant.
    if (current < token) throw new LockLost(lossOf('taken-away', `its token is ${current}`));
    const grant = { token: current, waited: 0, number: 0, validUntil: validUntil(sent, 0, ttl) };
    const report = reporting(options.listener, options.lockClass, []);
    const held = this.#keep({ key, owner, ttl }, [], grant, options, flow, report);
    report((to, kind) => to.acquired?.(kind, now() - sent));
    return held;
  }

  /** Returns a semaphore of at most `limit` permits at a time, from 1 to 65 535. */
  semaphore(key: Key, limit: number): Semaphore {
    checkedLimit(limit);
    const name = checkedKey(key);
    const take = async (options: LockOptions | undefined) =>
      new Permit(await this.#take(name, ['LIMIT', String(limit)], options));
    return new Semaphore(take, unlessHeld);
  }

  /** Returns the election of this name. */
  election(name: Key): Election {
    const key = checkedKey(name);
    // A leader has no limit by default.
    const take = (options: LockOptions | undefined) =>
      this.#take(key, [], {
        ...options,
        maxHold: options?.maxHold ?? this.#defaults.maxHold ?? Number.POSITIVE_INFINITY,
      });
    return new Election(this.#connections, key, take);
  }

  /**
   * Runs `work` under a lock, and releases it. Pass `lock.signal` to long operations: it aborts when the lock is lost.
   *
   * The value of `work` is returned even if the release does not reach the server: that becomes a warning of the
   * process.
   *
   * @throws LockLost if the lock was lost before `work` had ended, and `work` did not throw itself; else as {@link
   * lock}.
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
   * Runs `work` under several locks, all or none, waiting for each in turn. `wait` limits all of them together.
   *
   * They are acquired in the order of their bytes, so callers that acquire several like this never wait for each other
   * in a circle. That holds only for callers without other locks. A key that is named twice is acquired once.
   *
   * @throws as {@link withLock}, for the first lock that could not be acquired, or that was lost.
   */
  async withLocks<T>(keys: readonly Key[], options: LockOptions, work: (locks: Lock[]) => T | Promise<T>): Promise<T> {
    const ordered = keys.map(checkedKey).sort(Buffer.compare);
    const names = ordered.filter((key, n) => n === 0 || !key.equals(ordered[n - 1] as Buffer));
    if (names.length === 0) throw new BadArgument('name one key at least');
    const { wait } = checked(merged(this.#defaults, options));
    const by = wait === undefined ? undefined : now() + wait;
    const under = (held: Lock[]): T | Promise<T> => {
      // One may have been lost while the next one was waited for.
      for (const lock of held) lock.check();
      const key = names[held.length];
      if (key === undefined) return work(held);
      const rest = by === undefined ? options : { ...options, wait: Math.max(0, Math.floor(by - now())) };
      return this.withLock(key, rest, (lock) => under([...held, lock]));
    };
    return under([]);
  }

  /**
   * Runs `work` if the lock is free, and skips it otherwise. The lock stays held for at least `minHold` ms from its
   * grant, even if `work` takes less or fails: so hosts whose clocks differ by less than that do not run one cron job
   * twice. The call does not wait for that time; the lease runs out by itself. Longer work runs under a lock that is
   * extended as usual, and is free afterwards.
   *
   * `minHold` is in milliseconds, at least 100. The first lease is that long: it must not exceed the server's
   * `lock.max-ttl`.
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
   * Releases all held locks (they are lost, `closed`), ends all waits (with {@link Closed}), and closes the connections
   * once the server has answered.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Closes it: see {@link close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Loses all locks of this key, as if somebody had taken them away. @internal */
  loseAll(key: Buffer): void {
    for (const held of [...this.#held]) if (held.acquisition.key.equals(key)) held.lose('taken-away');
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
    const taking = naming(name, () => this.#takeBy(name, mode, checked(merged(this.#defaults, given)), minHold));
    // Closing waits for this: a grant, or a place in the queue, must be given back before the connections are closed.
    this.#connections.inBackground(taking);
    return taking;
  }

  async #takeBy(key: Buffer, mode: string[], options: Checked, minHold: number): Promise<Held> {
    // The flow is the caller's, so this comes before anything is awaited.
    const flow = options.holder === undefined ? flowFor(key) : undefined;
    const ttl = Math.max(options.ttl, minHold);
    const note = noted(options.note ?? defaultNote(), options.holder ?? (flow as Flow).id);
    const { wait, signal } = options;
    const [report, began] = [reporting(options.listener, options.lockClass, mode), now()];
    const taking = acquireInTime(this.#connections, { key, ttl, mode, note, wait, signal });
    try {
      const { acquisition, grant } = await (flow ? flow.waitFor(taking) : taking);
      const held = this.#keep(acquisition, mode, grant, options, flow, report);
      report((to, kind) => to.acquired?.(kind, now() - began));
      return held;
    } catch (error) {
      report((to, kind) => to.failed?.(kind, now() - began, error));
      throw error;
    }
  }

  #keep(
    acquisition: Acquisition,
    mode: string[],
    grant: Grant,
    options: Checked,
    flow: Flow | undefined,
    report: Report,
  ): Held {
    if (this.#closing) {
      this.#connections.giveBack(acquisition);
      throw new Closed();
    }
    const letGo = flow?.hold(acquisition.key);
    const onEnd = () => {
      this.#held.delete(held);
      letGo?.();
    };
    const held = new Held(this.#connections, acquisition, mode, grant, options, onEnd, report);
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
