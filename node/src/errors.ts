import type { Loss } from './loss.js';

/** The holder of a lock, as the server reports it. */
export interface Holder {
  /** The holder's note for people; empty if there is none. */
  readonly note: string;
  /** The fencing token of its grant. */
  readonly token: number;
  /** Time since the grant, in milliseconds. */
  readonly heldFor: number;
  /** Remaining time of the lease in milliseconds, unless it is extended. */
  readonly leaseLeft: number;
}

/** The base class of all errors of this package. An aborted wait rejects with the reason of its signal instead. */
export class PalisadeError extends Error {
  override readonly name: string = 'PalisadeError';
  /** The lock of this error, which its message names too; absent if the error concerns no single lock. */
  declare readonly key?: Buffer;
}

/** An argument is out of bounds. Nothing was sent. */
export class BadArgument extends PalisadeError {
  override readonly name = 'BadArgument';
}

/** The lock was not acquired, because another owner has it. */
export class NotAcquired extends PalisadeError {
  override readonly name = 'NotAcquired';

  constructor(
    message: string,
    /**
     * `held`: not free, and no wait was allowed. `timed-out`: not free in time. `too-late`: granted, but nothing of the
     * lease was left.
     */
    readonly reason: 'held' | 'timed-out' | 'too-late',
    /** The holder, if the server reported it; of several, the one that has held the lock longest. */
    readonly holder?: Holder,
  ) {
    super(message);
  }
}

/** The resource has seen a newer holder: the lock is lost, so stop the work that it protects. docs/fencing.md. */
export class Fenced extends PalisadeError {
  override readonly name = 'Fenced';

  constructor(
    /** The token that the command or request carried. */
    readonly token: number,
    /** The largest token that the resource has seen. */
    readonly seen: number,
  ) {
    super(`the token ${token} is older than ${seen}`);
  }
}

/** The server may have forgotten grants, and grants nothing until they have ended: docs/guard.md. */
export class Guarded extends PalisadeError {
  override readonly name = 'Guarded';

  constructor(
    message: string,
    /** Milliseconds until a retry makes sense. */
    readonly retryAfter: number,
  ) {
    super(message);
  }
}

/** Too few nodes behind a `palisade agent` can answer. The message has each node's reason. */
export class NoQuorum extends PalisadeError {
  override readonly name = 'NoQuorum';
}

/** The lock was held, and no longer is: stop the work that it protects. */
export class LockLost extends PalisadeError {
  override readonly name = 'LockLost';

  constructor(
    /** The reason. */
    readonly loss: Loss,
  ) {
    super(`the lock is lost: ${loss.message}`);
  }
}

/** The server cannot be reached, or did not answer in time. It may have executed the command. */
export class Unavailable extends PalisadeError {
  override readonly name = 'Unavailable';
}

/**
 * Somebody has to act: the server lacks the module, or the client lacks a password or a permission. The message says
 * which.
 */
export class Misconfigured extends PalisadeError {
  override readonly name = 'Misconfigured';
}

/** Any other error of the server: docs/errors.md. */
export class ServerError extends PalisadeError {
  override readonly name = 'ServerError';

  constructor(
    message: string,
    /** The first word of the error, which is stable. */
    readonly code: string,
  ) {
    super(message);
  }
}

/** The server's answer has another form than this command's answers. It is refused rather than guessed at. */
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

/** Maximum number of characters shown of a key. */
const SHOWN_CHARS = 100;

/** Returns a key as people read it: text if it is text, with nothing that moves a cursor. */
export function shown(key: Buffer): string {
  const text = key.toString();
  const cut = text.length <= SHOWN_CHARS ? text : `${text.slice(0, SHOWN_CHARS)}…`;
  return cut.replace(/\p{Cc}/gu, (char) => JSON.stringify(char).slice(1, -1));
}

/** Returns `error` with the name of a lock. Errors of this package are copied: several locks may share one. */
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

/** Warns the process of a problem that is not the caller's error. */
export function warn(message: string): void {
  process.emitWarning(message, 'PalisadeWarning');
}
