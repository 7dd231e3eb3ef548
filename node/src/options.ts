import { BadArgument } from './errors.js';
import type { Loss } from './loss.js';

/** The name of a lock: a string (sent as UTF-8), or any bytes. */
export type Key = string | Uint8Array;

/** How a lock is taken and kept. Times are in milliseconds. */
export interface LockOptions {
  /**
   * Length of the lease, in milliseconds: for so long others wait when a holder dies. 10 000 unless set; from 100 to the server's `lock.max-ttl` (60 000 unless set
   * otherwise there).
   */
  ttl?: number | undefined;
  /** How many milliseconds to wait for the lock at most, up to a day. Unless set: as long as it takes. 0: not at all. */
  wait?: number | undefined;
  /** For people, up to 1024 bytes: who holds the lock, and what for. Shown to those who find it held. Unless set: host, process and program. */
  note?: string | undefined;
  /**
   * Names who takes the lock: one id for everything that one flow of control holds and waits for, by which `palisade deadlocks` finds holders that wait for each other. 1 to 64 letters,
   * digits, and `. _ : / @ + -`. Unless set: an id of the async function that asks, and of what it calls.
   */
  holder?: string | undefined;
  /** Whether the lease is extended in the background, whenever a third of it has gone. It is, unless this is `false`. */
  autoExtend?: boolean | undefined;
  /** For how many milliseconds the lease is extended at most: a holder that hangs is let go then. An hour unless set; a leader has no limit unless set. */
  maxHold?: number | undefined;
  /** Called once if the lock is lost. What it throws becomes a warning of the process. */
  onLost?: ((loss: Loss) => void | Promise<void>) | undefined;
  /** Ends the wait when it aborts: neither a lock nor a place in the queue is left behind. It says nothing to a lock that is held. */
  signal?: AbortSignal | undefined;
}

/** Options, checked and complete. */
export interface Checked {
  ttl: number;
  /** `undefined`: as long as it takes. */
  wait: number | undefined;
  /** `undefined`: the default one. */
  note: Buffer | undefined;
  /** `undefined`: that of the flow of control. */
  holder: string | undefined;
  autoExtend: boolean;
  maxHold: number;
  onLost: ((loss: Loss) => void | Promise<void>) | undefined;
  signal: AbortSignal | undefined;
}

const DAY_MS = 86_400_000;

/** Longest note that a server takes. */
export const NOTE_BYTES_MAX = 1024;

/**
 * Shortest lease, and shortest `minHold`. Who writes less means seconds; and a lease is extended three times in its length, by requests
 * over a network.
 */
const TTL_LEAST_MS = 100;

/** The options of a lock that is not waited for, and of one that is. */
const TRY_OPTIONS = ['ttl', 'note', 'holder', 'autoExtend', 'maxHold', 'onLost', 'signal'];
const LOCK_OPTIONS = [...TRY_OPTIONS, 'wait'];

const PERMITS_MAX = 65_535;
const TTL_DEFAULT_MS = 10_000;
const MAX_HOLD_DEFAULT_MS = 3_600_000;

/** The letters of a holder id. */
const HOLDER = /^[A-Za-z0-9._:/@+-]{1,64}$/;

/** Longest time that one request may wait on a server. */
export const WAIT_MAX_MS = DAY_MS;

/** `value`, if it is a number of milliseconds within these bounds. */
export function milliseconds(name: string, value: unknown, least: number, most: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > most) {
    const bounds = `a whole number of milliseconds from ${least} to ${most}`;
    throw new BadArgument(`${name} must be ${bounds}, not ${String(value)}`);
  }
  return value;
}

/** A lease of `ttl` ms that the server may accept. */
export function checkedTtl(ttl: unknown): number {
  return milliseconds('ttl', ttl, TTL_LEAST_MS, DAY_MS);
}

/** A number of permits. */
export function checkedLimit(limit: unknown): number {
  if (typeof limit === 'number' && Number.isInteger(limit) && limit >= 1 && limit <= PERMITS_MAX) return limit;
  throw new BadArgument(`limit must be an integer from 1 to ${PERMITS_MAX}, not ${String(limit)}`);
}

/** A time for which a lock is held at least. */
export function checkedMinHold(minHold: unknown): number {
  return milliseconds('minHold', minHold, TTL_LEAST_MS, DAY_MS);
}

/** The bytes of a key. */
export function checkedKey(key: unknown): Buffer {
  if (typeof key === 'string') return Buffer.from(key);
  if (key instanceof Uint8Array) return Buffer.from(key);
  throw new BadArgument(`key must be a string or bytes (a Uint8Array), not ${typeof key}`);
}

/** The bytes of `text`, of which there are at most `most`. */
export function checkedText(name: string, text: unknown, most: number): Buffer {
  const bytes = typeof text === 'string' || text instanceof Uint8Array ? Buffer.from(text as string) : undefined;
  if (bytes === undefined) throw new BadArgument(`${name} must be a text, not ${typeof text}`);
  if (bytes.length > most) throw new BadArgument(`${name} must be at most ${most} bytes long, not ${bytes.length}`);
  return bytes;
}

/** Fails if `options` are none, or have a name that is not one of `names`. */
export function checkNames(options: unknown, names: readonly string[], whose = ''): void {
  if (typeof options !== 'object' || options === null) {
    throw new BadArgument(`options${whose} must be an object with ${names.join(', ')}, not ${String(options)}`);
  }
  const unknown = Object.keys(options).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new BadArgument(`there is no option ${JSON.stringify(unknown)}${whose}: there are ${names.join(', ')}`);
  }
}

/** Options of a lock that is not waited for. */
export function unwaited(options: Omit<LockOptions, 'wait'> = {}): LockOptions {
  checkNames(options, TRY_OPTIONS, ' of a lock that is not waited for');
  return { ...options, wait: 0 };
}

/** `given` where it says something, else `defaults`. */
export function merged(defaults: LockOptions, given: LockOptions | undefined): LockOptions {
  if (given !== undefined) checkNames(given, LOCK_OPTIONS);
  const said = Object.entries(given ?? {}).filter(([, value]) => value !== undefined);
  return { ...defaults, ...Object.fromEntries(said) };
}

/** `options`, checked. */
export function checked(options: LockOptions): Checked {
  checkNames(options, LOCK_OPTIONS);
  const { wait, note, holder, maxHold, autoExtend, onLost, signal } = options;
  if (holder !== undefined && !(typeof holder === 'string' && HOLDER.test(holder))) {
    throw new BadArgument(`holder must be 1 to 64 letters, digits, . _ : / @ + or -, not ${JSON.stringify(holder)}`);
  }
  if (autoExtend !== undefined && typeof autoExtend !== 'boolean') {
    throw new BadArgument(`autoExtend must be true or false, not ${String(autoExtend)}`);
  }
  if (onLost !== undefined && typeof onLost !== 'function') throw new BadArgument('onLost must be a function');
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
    signal,
  };
}
