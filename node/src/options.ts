import { BadArgument } from './errors.js';
import type { LockListener } from './listening.js';
import type { Loss } from './loss.js';

/** The name of a lock: a string (sent as UTF-8), or any bytes. */
export type Key = string | Uint8Array;

/** Options of acquiring and keeping a lock. Times are in milliseconds. */
export interface LockOptions {
  /**
   * Length of the lease, in milliseconds: others wait this long after a holder dies. 10 000 by default; from 100 to the
   * server's `lock.max-ttl` (60 000 by default).
   */
  ttl?: number | undefined;
  /**
   * Maximum wait for the lock in milliseconds, up to a day; 0 for no wait. Without it, the wait takes as long as
   * needed.
   */
  wait?: number | undefined;
  /**
   * A note for people, up to 1024 bytes: who holds the lock, and what for. Clients that find the lock held see it.
   * Host, process and program by default.
   */
  note?: string | undefined;
  /**
   * The holder id: one id for everything that one flow of control holds and waits for. `palisade deadlocks` uses it to
   * find holders that wait for each other. 1 to 64 letters, digits, and `. _ : / @ + -`. By default an id of the
   * calling async function and its callees.
   */
  holder?: string | undefined;
  /** Extends the lease in the background, whenever a third of it has passed. On by default. */
  autoExtend?: boolean | undefined;
  /**
   * Milliseconds for which the lease is extended at most: a holder that hangs then loses the lock. An hour by default;
   * no limit for a leader.
   */
  maxHold?: number | undefined;
  /** Called once if the lock is lost. An error that it throws becomes a warning of the process. */
  onLost?: ((loss: Loss) => void | Promise<void>) | undefined;
  /** Receives the events of the lock, for metrics: {@link lockMetrics}, or one of your own. */
  listener?: LockListener | undefined;
  /**
   * The kind of the lock for its listener, `default` by default. Use few classes: metrics keep each as long as the
   * program runs.
   */
  lockClass?: string | undefined;
  /** Ends the wait when it aborts, leaving neither a lock nor a place in the queue. It does not affect a held lock. */
  signal?: AbortSignal | undefined;
}

/** Checked and complete options. */
export interface Checked {
  ttl: number;
  /** `undefined` for no limit. */
  wait: number | undefined;
  /** `undefined` for the default note. */
  note: Buffer | undefined;
  /** `undefined` for that of the flow of control. */
  holder: string | undefined;
  autoExtend: boolean;
  maxHold: number;
  onLost: ((loss: Loss) => void | Promise<void>) | undefined;
  listener: LockListener | undefined;
  lockClass: string;
  signal: AbortSignal | undefined;
}

const DAY_MS = 86_400_000;

/** Maximum length of a note that servers accept, in bytes. */
export const NOTE_BYTES_MAX = 1024;

/**
 * Shortest lease, and shortest `minHold`, in milliseconds. A smaller number is most likely meant in seconds. And a
 * lease is extended three times in its length, by requests over a network.
 */
const TTL_LEAST_MS = 100;

/** The names of the options of `tryLock`, and of `lock`. */
const TRY_OPTIONS = ['ttl', 'note', 'holder', 'autoExtend', 'maxHold', 'onLost', 'listener', 'lockClass', 'signal'];
const LOCK_OPTIONS = [...TRY_OPTIONS, 'wait'];

const PERMITS_MAX = 65_535;
const TTL_DEFAULT_MS = 10_000;
const MAX_HOLD_DEFAULT_MS = 3_600_000;

/** The pattern of a holder id. */
const HOLDER = /^[A-Za-z0-9._:/@+-]{1,64}$/;

/** Longest wait of one request on a server. */
export const WAIT_MAX_MS = DAY_MS;

/** Returns `value` if it is a whole number of milliseconds within these bounds. */
export function milliseconds(name: string, value: unknown, least: number, most: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > most) {
    const bounds = `a whole number of milliseconds from ${least} to ${most}`;
    throw new BadArgument(`${name} must be ${bounds}, not ${String(value)}`);
  }
  return value;
}

/** Returns `ttl` if a server may accept it as a lease. */
export function checkedTtl(ttl: unknown): number {
  return milliseconds('ttl', ttl, TTL_LEAST_MS, DAY_MS);
}

/** Returns `limit` if it is a valid number of permits. */
export function checkedLimit(limit: unknown): number {
  if (typeof limit === 'number' && Number.isInteger(limit) && limit >= 1 && limit <= PERMITS_MAX) return limit;
  throw new BadArgument(`limit must be an integer from 1 to ${PERMITS_MAX}, not ${String(limit)}`);
}

/** Returns `minHold` if it is a valid minimum hold. */
export function checkedMinHold(minHold: unknown): number {
  return milliseconds('minHold', minHold, TTL_LEAST_MS, DAY_MS);
}

/** Returns the bytes of a key. */
export function checkedKey(key: unknown): Buffer {
  if (typeof key === 'string') return Buffer.from(key);
  if (key instanceof Uint8Array) return Buffer.from(key);
  throw new BadArgument(`key must be a string or bytes (a Uint8Array), not ${typeof key}`);
}

/** Returns the bytes of `text`, at most `most`. */
export function checkedText(name: string, text: unknown, most: number): Buffer {
  const bytes = typeof text === 'string' || text instanceof Uint8Array ? Buffer.from(text as string) : undefined;
  if (bytes === undefined) throw new BadArgument(`${name} must be a text, not ${typeof text}`);
  if (bytes.length > most) throw new BadArgument(`${name} must be at most ${most} bytes long, not ${bytes.length}`);
  return bytes;
}

/** Throws if `options` is no object, or has a name that is not in `names`. */
export function checkNames(options: unknown, names: readonly string[], whose = ''): void {
  if (typeof options !== 'object' || options === null) {
    throw new BadArgument(`options${whose} must be an object with ${names.join(', ')}, not ${String(options)}`);
  }
  const unknown = Object.keys(options).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new BadArgument(`there is no option ${JSON.stringify(unknown)}${whose}: there are ${names.join(', ')}`);
  }
}

/** Returns the options of a lock that is not waited for. */
export function unwaited(options: Omit<LockOptions, 'wait'> = {}): LockOptions {
  checkNames(options, TRY_OPTIONS, ' of a lock that is not waited for');
  return { ...options, wait: 0 };
}

/** Returns `defaults`, overridden by the options that are set in `given`. */
export function merged(defaults: LockOptions, given: LockOptions | undefined): LockOptions {
  if (given !== undefined) checkNames(given, LOCK_OPTIONS);
  const said = Object.entries(given ?? {}).filter(([, value]) => value !== undefined);
  return { ...defaults, ...Object.fromEntries(said) };
}

/** Returns `options`, checked. */
export function checked(options: LockOptions): Checked {
  checkNames(options, LOCK_OPTIONS);
  const { wait, note, holder, maxHold, autoExtend, onLost, listener, lockClass = 'default', signal } = options;
  if (holder !== undefined && !(typeof holder === 'string' && HOLDER.test(holder))) {
    throw new BadArgument(`holder must be 1 to 64 letters, digits, . _ : / @ + or -, not ${JSON.stringify(holder)}`);
  }
  if (autoExtend !== undefined && typeof autoExtend !== 'boolean') {
    throw new BadArgument(`autoExtend must be true or false, not ${String(autoExtend)}`);
  }
  if (onLost !== undefined && typeof onLost !== 'function') throw new BadArgument('onLost must be a function');
  if (listener !== undefined && typeof listener !== 'object') throw new BadArgument('listener must be a LockListener');
  if (typeof lockClass !== 'string') throw new BadArgument(`lockClass must be a string, not ${String(lockClass)}`);
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw new BadArgument('signal must be an AbortSignal');
  if (maxHold !== undefined && (typeof maxHold !== 'number' || !(maxHold >= 0))) {
    throw new BadArgument(`maxHold must be a number of milliseconds, not ${String(maxHold)}`);
  }
  return {
    ttl: checkedTtl(options.ttl ?? TTL_DEFAULT_MS),
    wait: wait === undefined ? undefined : milliseconds('wait', wait, 0, WAIT_MAX_MS),
    note: note === undefined ? undefined : checkedText('note', note, NOTE_BYTES_MAX),
    holder,
    autoExtend: autoExtend ?? true,
    maxHold: maxHold ?? MAX_HOLD_DEFAULT_MS,
    onLost,
    listener,
    lockClass,
    signal,
  };
}
