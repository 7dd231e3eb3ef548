import { BadArgument } from './errors.js';
import type { Loss } from './loss.js';

/** The name of a lock: a string (sent as UTF-8), or any bytes. */
export type Key = string | Uint8Array;

/** How a lock is taken and kept. Times are in milliseconds. */
export interface LockOptions {
  /** Length of the lease: for so long others wait when a holder dies. 10 000 unless set; up to the server's `lock.max-ttl` (60 000 unless set otherwise there). */
  ttl?: number | undefined;
  /** How long to wait for the lock at most, up to a day. Unless set: as long as it takes. 0: not at all. */
  wait?: number | undefined;
  /** For people, up to 1024 bytes: who holds the lock, and what for. Shown to those who find it held. */
  note?: string | undefined;
  /** Whether the lease is extended in the background, whenever a third of it has gone. It is, unless this is `false`. */
  autoExtend?: boolean | undefined;
  /** For how long the lease is extended at most: a holder that hangs is let go then. An hour unless set; a leader has no limit unless set. */
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
  note: Buffer;
  autoExtend: boolean;
  maxHold: number;
  onLost: ((loss: Loss) => void | Promise<void>) | undefined;
  signal: AbortSignal | undefined;
}

const DAY_MS = 86_400_000;
const NOTE_BYTES_MAX = 1024;
const PERMITS_MAX = 65_535;
const TTL_DEFAULT_MS = 10_000;
const MAX_HOLD_DEFAULT_MS = 3_600_000;

/** Longest time that one request may wait on a server. */
export const WAIT_MAX_MS = DAY_MS;

/** `value`, if it is an integer within these bounds. */
export function integer(name: string, value: unknown, least: number, most: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > most) {
    throw new BadArgument(`${name} must be an integer from ${least} to ${most}, not ${String(value)}`);
  }
  return value;
}

/** A lease of `ttl` ms that the server may accept. */
export function checkedTtl(ttl: unknown): number {
  return integer('ttl', ttl, 1, DAY_MS);
}

/** A number of permits. */
export function checkedLimit(limit: unknown): number {
  return integer('limit', limit, 1, PERMITS_MAX);
}

/** A time for which a lock is held at least. */
export function checkedMinHold(minHold: unknown): number {
  return integer('minHold', minHold, 1, DAY_MS);
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

/** `given` where it says something, else `defaults`. */
export function merged(defaults: LockOptions, given: LockOptions | undefined): LockOptions {
  const said = Object.entries(given ?? {}).filter(([, value]) => value !== undefined);
  return { ...defaults, ...Object.fromEntries(said) };
}

/** `options`, checked. */
export function checked(options: LockOptions): Checked {
  const { wait, maxHold, autoExtend, onLost, signal } = options;
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
    wait: wait === undefined ? undefined : integer('wait', wait, 0, WAIT_MAX_MS),
    note: checkedText('note', options.note ?? '', NOTE_BYTES_MAX),
    autoExtend: autoExtend ?? true,
    maxHold: maxHold ?? MAX_HOLD_DEFAULT_MS,
    onLost,
    signal,
  };
}
