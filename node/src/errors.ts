import type { Loss } from './loss.js';

/** Who holds a lock, as the server tells. */
export interface Holder {
  /** What the holder left for people; empty if nothing. */
  readonly note: string;
  /** The fencing token of its grant. */
  readonly token: number;
  /** For how many ms it has held the lock. */
  readonly heldFor: number;
  /** For how many ms its lease still runs, if it is not extended. */
  readonly leaseLeft: number;
}

/** What every error of this package is. An aborted wait rejects with the reason of its signal instead. */
export class PalisadeError extends Error {
  override readonly name: string = 'PalisadeError';
  /** The lock that this is about, which its message names too; none: no lock in particular. */
  declare readonly key?: Buffer;
}

/** An argument is out of its bounds. Nothing was sent. */
export class BadArgument extends PalisadeError {
  override readonly name = 'BadArgument';
}

/** The lock was not taken, since somebody else has it. */
export class NotAcquired extends PalisadeError {
  override readonly name = 'NotAcquired';

  constructor(
    message: string,
    /** `held`: it was not free, and was not to be waited for. `timed-out`: not in time. `too-late`: granted, and heard of when nothing was left of the lease. */
    readonly reason: 'held' | 'timed-out' | 'too-late',
    /** Who holds it, where the server could tell. Of several the one who has held it longest. */
    readonly holder?: Holder,
  ) {
    super(message);
  }
}

/** The server may have forgotten grants, and grants nothing until they have ended: docs/guard.md. */
export class Guarded extends PalisadeError {
  override readonly name = 'Guarded';

  constructor(
    message: string,
    /** After so many ms it is worth to ask again. */
    readonly retryAfter: number,
  ) {
    super(message);
  }
}

/** From a `palisade agent`: too few nodes can be asked. The message says why, node by node. */
export class NoQuorum extends PalisadeError {
  override readonly name = 'NoQuorum';
}

/** The lock was held, and is not any more: stop what it protects. */
export class LockLost extends PalisadeError {
  override readonly name = 'LockLost';

  constructor(
    /** Why. */
    readonly loss: Loss,
  ) {
    super(`the lock is lost: ${loss.message}`);
  }
}

/** The server cannot be reached, or did not answer in time. Whether it did what it was asked is not known. */
export class Unavailable extends PalisadeError {
  override readonly name = 'Unavailable';
}

/** Somebody has to do something about it: no module on the server, no password, no permission. The message says what. */
export class Misconfigured extends PalisadeError {
  override readonly name = 'Misconfigured';
}

/** What the server says otherwise: docs/errors.md. */
export class ServerError extends PalisadeError {
  override readonly name = 'ServerError';

  constructor(
    message: string,
    /** Its first word, which is stable. */
    readonly code: string,
  ) {
    super(message);
  }
}

/** The server's answer is not one that this command has. It is refused rather than guessed at. */
export class UnexpectedReply extends PalisadeError {
  override readonly name = 'UnexpectedReply';
}

/** The `Palisade` was closed. */
export class Closed extends PalisadeError {
  override readonly name = 'Closed';

  constructor() {
    super('this Palisade was closed: make another one');
  }
}

/** Of a key, so many characters are shown. */
const SHOWN_CHARS = 100;

/** Returns a key as people read it: text where it is text, and nothing that moves a cursor. */
export function shown(key: Buffer): string {
  const text = key.toString();
  const cut = text.length <= SHOWN_CHARS ? text : `${text.slice(0, SHOWN_CHARS)}…`;
  return cut.replace(/\p{Cc}/gu, (char) => JSON.stringify(char).slice(1, -1));
}

/** Returns `error` with the name of a lock. An error of this package is copied: others may be told the same one, of other locks. */
export function named<E>(error: E, key: Buffer): E {
  if (!(error instanceof PalisadeError) || error.key) return error;
  const message = `${shown(key)}: ${error.message}`;
  const copy = new PalisadeError(message, 'cause' in error ? { cause: error.cause } : undefined);
  Object.setPrototypeOf(copy, Object.getPrototypeOf(error));
  const stack = error.stack?.replace(error.message, () => message);
  return Object.assign(copy, error, { key: Buffer.from(key), stack });
}

/** Does `work`, and names the lock in its errors. */
export async function naming<T>(key: Buffer, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw named(error, key);
  }
}

/** Tells the process of something that is no error of the caller's. */
export function warn(message: string): void {
  process.emitWarning(message, 'PalisadeWarning');
}
