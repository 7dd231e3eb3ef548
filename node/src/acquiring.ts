import { randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { now, pause, unlessAborted, validUntil } from './clock.js';
import type { Link, Word } from './connection.js';
import type { Acquisition, Connections, UnderWay } from './connections.js';
import { NoQuorum, NotAcquired, shown, Unavailable, warn } from './errors.js';
import { WAIT_MAX_MS } from './options.js';
import { isLasting, isRefusal, passesIn } from './refusals.js';
import { type Granted, toGranted, toHolder } from './replies.js';

/** The parameters of an acquisition. */
export interface Wanted extends Acquisition {
  /** The words of the command that name the mode. */
  readonly mode: readonly string[];
  readonly note: Buffer;
  /** Maximum wait in milliseconds; `undefined` for no limit. */
  readonly wait: number | undefined;
  readonly signal: AbortSignal | undefined;
}

/** A granted lock, and until when it may be relied on. */
export interface Grant extends Granted {
  readonly validUntil: number;
}

/** A wait without a limit ends after the server has been unreachable for this long. */
const LOOKED_FOR_MS = 10_000;
const LOOK_AGAIN_MS = 200;

/** An acquisition ends after this many consecutive grants that came too late. */
const TOO_LATE_MAX = 10;

/** A request that was pending for longer than this before it failed shows that the server was reachable until then. */
const STOOD_MS = 1_000;

/**
 * Acquires a lock, or throws the reason why it was not acquired. However this ends, also by an abort, it leaves neither
 * a lock nor a place in the queue behind: both are cleaned up in the background.
 */
async function acquire(connections: Connections, wanted: Wanted): Promise<Grant> {
  using given = new GivenUp(wanted.signal, connections.closing);
  given.signal.throwIfAborted();
  const attempt = new Attempt(connections, wanted, given.signal);
  try {
    const grant = await attempt.run();
    if (grant.validUntil > now()) return grant;
    throw new NotAcquired(
      'the lock was granted, but nothing of its lease was left when this program heard of it',
      'too-late',
    );
  } catch (error) {
    attempt.giveBack(error);
    throw error;
  }
}

/** Acquires a lock as `acquire` does, and tries again while its grants come too late and `wait` is not over. */
export async function acquireInTime(
  connections: Connections,
  wanted: Omit<Wanted, 'owner'>,
): Promise<{ acquisition: Acquisition; grant: Grant }> {
  const by = wanted.wait === undefined ? undefined : now() + wanted.wait;
  let { wait } = wanted;
  for (let tries = 1; ; tries++) {
    // The owner is new for each attempt, so that no one mistakes another's grant for their own.
    const acquisition = { key: wanted.key, owner: randomBytes(16).toString('hex'), ttl: wanted.ttl };
    try {
      return { acquisition, grant: await acquire(connections, { ...wanted, ...acquisition, wait }) };
    } catch (error) {
      const isOver = tries === TOO_LATE_MAX || (by !== undefined && now() >= by);
      if (!(error instanceof NotAcquired) || error.reason !== 'too-late' || isOver) throw error;
      if (by !== undefined) wait = Math.max(0, by - now());
    }
  }
}

/** Aborts when one of `signals` does. Unlike `AbortSignal.any`, it leaves no listener on a long-lived signal. */
class GivenUp {
  readonly #controller = new AbortController();
  readonly #signals: AbortSignal[];
  readonly #onAbort = (): void => {
    this.#controller.abort(this.#signals.find((signal) => signal.aborted)?.reason);
  };

  constructor(...signals: (AbortSignal | undefined)[]) {
    setMaxListeners(0, this.signal);
    this.#signals = signals.filter((signal) => signal !== undefined);
    for (const signal of this.#signals) signal.addEventListener('abort', this.#onAbort);
    if (this.#signals.some((signal) => signal.aborted)) this.#onAbort();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  [Symbol.dispose](): void {
    for (const signal of this.#signals) signal.removeEventListener('abort', this.#onAbort);
  }
}

class Attempt {
  readonly #connections: Connections;
  readonly #wanted: Wanted;
  readonly #signal: AbortSignal;
  /** The request whose answer has not arrived, or was not understood. */
  #underWay: UnderWay | undefined;
  /** True if a request had no answer: the server may still grant it, even if it refused a later one. */
  #isUnsure = false;
  /** The obstacle when the server was last asked. */
  #trouble: unknown;

  constructor(connections: Connections, wanted: Wanted, signal: AbortSignal) {
    this.#connections = connections;
    this.#wanted = wanted;
    this.#signal = signal;
  }

  async run(): Promise<Grant> {
    const { wait } = this.#wanted;
    const by = wait === undefined ? Number.POSITIVE_INFINITY : now() + wait;
    const grant = await this.#ask(by);
    if (grant) return grant;
    if (wait === 0) throw await this.#notAcquired('held');
    return this.#wait(by);
  }

  /** Frees what the server may have granted or queued, unless it answered that there is nothing. */
  giveBack(error: unknown): void {
    const isTooLate = error instanceof NotAcquired && error.reason === 'too-late';
    if (this.#underWay || this.#isUnsure || isTooLate) this.#connections.giveBack(this.#wanted, this.#underWay);
  }

  /**
   * Asks without waiting, on the shared connection: most locks are free. Returns `null` if there is something to wait
   * for: a holder, or a server or nodes behind it that are away.
   */
  async #ask(by: number): Promise<Grant | null> {
    for (let broken = 0; ; ) {
      let connection: Link | undefined;
      try {
        connection = await unlessAborted(this.#connections.shared(), this.#signal);
        return await this.#send(connection, [], this.#connections.answerWithin);
      } catch (error) {
        this.#signal.throwIfAborted();
        const ms = passesIn(error);
        if (ms !== undefined && now() + ms < by) await this.#pause(ms);
        // The connection may have ended long ago: a new one is tried once.
        else if (connection && error instanceof Unavailable && error.cause && broken === 0) broken += 1;
        else if (now() >= by || isLasting(error)) throw error;
        else {
          this.#awaitEndOf(error, connection !== undefined);
          return null;
        }
      }
    }
  }

  /** Remembers `trouble`, which is thrown if nothing else happens before the end of the wait. */
  #awaitEndOf(trouble: unknown, wasConnected: boolean): void {
    this.#trouble = trouble;
    // The server may be just as silent on the idle connections.
    if (trouble instanceof Unavailable) this.#connections.destroyIdle();
    if (trouble instanceof NoQuorum || !wasConnected) {
      const why = (trouble as Error).message;
      warn(`${shown(this.#wanted.key)}: the lock cannot be asked for, and is waited for: ${why}`);
    }
  }

  /** Waits in the queue, on a connection of its own. */
  async #wait(by: number): Promise<Grant> {
    let troubleSince: number | undefined;
    for (;;) {
      const left = Math.min(Math.ceil(by - now()), WAIT_MAX_MS);
      if (left <= 0) throw this.#trouble ?? (await this.#notAcquired('timed-out'));
      let connection: Link | undefined;
      let asked = Number.POSITIVE_INFINITY;
      try {
        connection = await this.#connections.forWait(this.#signal);
        asked = now();
        // A server that has not answered by then hangs.
        const grant = await this.#send(connection, ['WAIT', String(left)], left + this.#connections.answerWithin);
        this.#connections.idle(connection);
        connection = undefined;
        troubleSince = undefined;
        this.#trouble = undefined;
        const inTime = await this.#inTime(grant, by);
        if (inTime) return inTime;
      } catch (error) {
        this.#signal.throwIfAborted();
        if (connection) this.#connections.idle(connection);
        let ms = passesIn(error);
        if (ms === undefined) {
          if (this.#endsWait(error)) throw error;
          if (troubleSince === undefined || now() - asked > STOOD_MS) troubleSince = now();
          if (by === Number.POSITIVE_INFINITY && now() - troubleSince > LOOKED_FOR_MS) throw error;
          ms = LOOK_AGAIN_MS;
        }
        this.#trouble = error;
        await this.#pause(Math.min(ms, by - now()));
      }
    }
  }

  /** Returns a grant with most of its lease left; `null` if the lock has to be waited for. */
  async #inTime(grant: Grant | null, by: number): Promise<Grant | null> {
    if (!grant || grant.validUntil - now() >= this.#wanted.ttl / 2) return grant;
    // After a long wait the clocks may have drifted apart, and this program may have slept. So the lock is requested
    // again, since the new lease counts from now.
    this.#isUnsure = true;
    return this.#ask(by);
  }

  /** Returns whether an error that answers a waiting request ends the wait at once. */
  #endsWait(error: unknown): boolean {
    // An agent waits for nodes itself: NOQUORUM before the end of the wait is final. But the agent searches only once
    // for a grant that this owner may already have: if there may be one, the wait goes on.
    return isLasting(error) || (error instanceof NoQuorum && !this.#isUnsure);
  }

  async #send(connection: Link, more: readonly string[], within: number): Promise<Grant | null> {
    const { key, owner, ttl, mode, note } = this.#wanted;
    const words: Word[] = ['LOCK.ACQUIRE', key, owner, String(ttl), ...mode, ...more, 'RETRY'];
    if (note.length > 0) words.push('NOTE', note);
    this.#signal.throwIfAborted();
    // The lease is counted from before the request was sent.
    const sent = now();
    const reply = connection.send(words, { within });
    this.#underWay = { connection, reply };
    let granted: Granted | null;
    try {
      granted = toGranted(await unlessAborted(reply, this.#signal));
    } catch (error) {
      if (error instanceof Unavailable) this.#isUnsure = true;
      else if (isRefusal(error)) this.#underWay = undefined;
      throw error;
    }
    this.#underWay = undefined;
    return granted && { ...granted, validUntil: validUntil(sent, granted.waited, ttl) };
  }

  async #pause(ms: number): Promise<void> {
    await pause(Math.max(ms, 1), { signal: this.#signal });
    this.#signal.throwIfAborted();
  }

  async #notAcquired(reason: 'held' | 'timed-out'): Promise<NotAcquired> {
    const asked = this.#connections.ask(['LOCK.INFO', this.#wanted.key]).then(toHolder, () => undefined);
    const holder = await unlessAborted(asked, this.#signal);
    const said =
      reason === 'held' ? 'somebody else holds the lock' : `the lock was not free within ${this.#wanted.wait} ms`;
    const who = holder
      ? `; it has been held for ${holder.heldFor} ms${holder.note && ` by ${JSON.stringify(holder.note)}`}`
      : '';
    return new NotAcquired(said + who, reason, holder);
  }
}
