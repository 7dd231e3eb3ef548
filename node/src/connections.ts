import { setMaxListeners } from 'node:events';
import { now, pause, unlessAborted } from './clock.js';
import { type Connecting, Connection, type Sending, type Word } from './connection.js';
import { Closed, Misconfigured, ServerError, Unavailable } from './errors.js';
import type { Released } from './loss.js';
import { passesIn } from './refusals.js';
import { type Reply, toFields, toGranted } from './replies.js';

/** So many connections that nothing waits on are kept for the next waits. */
const IDLE_MAX = 4;

/** After a wait was given up its answer is waited for so long, and a lock that it brings is given back. */
const LATE_ANSWER_MS = 1_000;

/** Pauses between attempts to give a lock back. */
const AGAIN_MS = [20, 50, 100, 200, 500, 1_000];

/** An acquisition of a lock, as the server knows it. */
export interface Acquisition {
  readonly key: Buffer;
  readonly owner: string;
  readonly ttl: number;
}

/** A request that was sent and not heard of any more. */
export interface UnderWay {
  readonly connection: Connection;
  readonly reply: Promise<Reply>;
}

/**
 * The connections of a `Palisade`: one that all commands share which are answered at once, and one for each command that waits,
 * since it holds up all others on its connection.
 */
export class Connections {
  readonly address: string;
  readonly #options: Connecting;
  /** For how many ms the server is given to answer. */
  readonly answerWithin: number;
  #shared: Connection | undefined;
  #opening: Promise<Connection> | undefined;
  /** Nothing is opened any more. */
  #isClosed = false;
  #idle: Connection[] = [];
  readonly #waiting = new Set<Connection>();
  /** Number of locks that are watched. */
  watches = 0;
  #isAgent: boolean | undefined;
  readonly #background = new Set<Promise<unknown>>();
  readonly #closing = new AbortController();

  constructor(options: Connecting, address: string, within: number) {
    this.#options = options;
    this.address = address;
    this.answerWithin = within;
    setMaxListeners(0, this.#closing.signal);
  }

  /** Aborts, with the error {@link Closed}, when they are closed. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** The connection that is shared, connected. Who asks meanwhile shares the attempt, and its failure. */
  async shared(): Promise<Connection> {
    if (this.#shared?.isUsable) return this.#shared;
    this.#opening ??= this.#open()
      .then((connection) => {
        this.#shared = connection;
        return connection;
      })
      .finally(() => {
        this.#opening = undefined;
      });
    return this.#opening;
  }

  async #open(): Promise<Connection> {
    if (this.#isClosed) throw new Closed();
    const connection = await Connection.open(this.#options, this.address, this.answerWithin);
    if (!this.#isClosed) return connection;
    connection.destroy();
    throw new Closed();
  }

  /** A connection for a command that waits, unless `signal` aborts first. It is handed back by {@link idle}, or destroyed. */
  async forWait(signal: AbortSignal): Promise<Connection> {
    let connection = this.#idle.pop();
    while (connection && !connection.isUsable) connection = this.#idle.pop();
    if (!connection) {
      const opening = this.#open();
      try {
        connection = await unlessAborted(opening, signal);
      } catch (error) {
        // One that is there only after the wait was given up is for others.
        const late = opening.then(
          (connection) => this.idle(connection),
          () => {},
        );
        this.inBackground(late);
        throw error;
      }
    }
    this.#waiting.add(connection);
    return connection;
  }

  /** Nothing waits on `connection` any more. */
  idle(connection: Connection): void {
    this.#waiting.delete(connection);
    if (connection.isUsable && this.#idle.length < IDLE_MAX && !this.closing.aborted) this.#idle.push(connection);
    else connection.destroy();
  }

  /** Ends the connections that are kept for the next waits. */
  destroyIdle(): void {
    for (const connection of this.#idle.splice(0)) connection.destroy();
  }

  /** Ends a connection on which something may wait. */
  destroy(connection: Connection): void {
    this.#waiting.delete(connection);
    connection.destroy();
  }

  /** Sends a command that may be repeated and is answered at once; again if its connection breaks, or the server is not ready yet. */
  async ask(words: readonly Word[], sending: Sending = {}): Promise<Reply> {
    const how = { within: this.answerWithin, ...sending };
    const until = now() + how.within;
    for (let broken = 0; ; ) {
      const connection = await this.shared();
      try {
        return await connection.send(words, how);
      } catch (error) {
        const ms = passesIn(error);
        if (ms !== undefined && now() + ms < until) await pause(ms, { background: sending.background });
        // One that is slow, and not broken, is not asked twice.
        else if (!(error instanceof Unavailable && error.cause && broken++ === 0)) throw error;
        else sending.onBroken?.();
      }
    }
  }

  /** Tells an agent from a node, once: an agent says how many nodes it has. */
  async isAgent(): Promise<boolean> {
    this.#isAgent ??= toFields(await this.ask(['LOCK.NODE'], { background: true }))?.has('nodes') ?? false;
    return this.#isAgent;
  }

  /** Gives holds back down to below `level`. */
  async release({ key, owner }: Acquisition, level = 1): Promise<Released> {
    let broken = 0;
    const words = ['LOCK.RELEASE', key, owner, 'LEVEL', String(level)];
    try {
      if ((await this.ask(words, { onBroken: () => broken++ })) !== null) return 'freed';
    } catch (error) {
      // Somebody has put something else into the place of the lock.
      if (error instanceof ServerError && error.code === 'WRONGTYPE') return 'not-held';
      throw error;
    }
    // To a repetition Null may say that the first request has done it.
    return broken > 0 ? 'unknown' : 'not-held';
  }

  /** Gives an acquisition back in the background, whatever became of it; it is tried until its lease has ended. */
  giveBack(acquisition: Acquisition, underWay?: UnderWay): void {
    this.inBackground(this.#givingBack(acquisition, underWay));
  }

  async #givingBack(acquisition: Acquisition, underWay: UnderWay | undefined): Promise<void> {
    await this.#releaseAtLast(acquisition);
    if (!underWay) return;
    // The request may reach the server only now, and be granted: nothing but its answer tells.
    const { connection, reply } = underWay;
    const answered = reply.then(
      (reply) => (toGranted(reply) === null ? 'free' : 'granted'),
      () => 'unknown',
    );
    const came = await Promise.race([answered, pause(LATE_ANSWER_MS, { background: true })]);
    if (this.#waiting.has(connection)) {
      if (came === undefined) this.destroy(connection);
      else this.idle(connection);
    }
    if (came !== 'free') await this.#releaseAtLast(acquisition);
  }

  async #releaseAtLast(acquisition: Acquisition): Promise<void> {
    const until = now() + acquisition.ttl;
    for (let attempt = 0; ; attempt++) {
      try {
        await this.release(acquisition);
        return;
      } catch (error) {
        // It ends by itself then.
        if (now() >= until || this.closing.aborted || error instanceof Misconfigured) return;
        await pause(AGAIN_MS[attempt] ?? 1_000, { background: true });
      }
    }
  }

  /** Remembers what {@link close} waits for. */
  inBackground(work: Promise<unknown>): void {
    const done = work.catch(() => {}).finally(() => this.#background.delete(done));
    this.#background.add(done);
  }

  /** Tells that they are closed, waits for what goes on in the background, and closes them. */
  async close(): Promise<void> {
    this.#closing.abort(new Closed());
    while (this.#background.size > 0) await Promise.all(this.#background);
    this.#isClosed = true;
    for (const connection of [...this.#waiting, ...this.#idle]) connection.destroy();
    this.#idle = [];
    this.#shared?.destroy();
  }
}
