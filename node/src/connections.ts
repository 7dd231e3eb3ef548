import { setMaxListeners } from 'node:events';
import { now, pause, unlessAborted } from './clock.js';
import type { Link, Opening, Sending, Word } from './connection.js';
import { Closed, Misconfigured, ServerError, Unavailable } from './errors.js';
import type { Released } from './loss.js';
import { passesIn } from './refusals.js';
import { type Reply, toFields, toGranted } from './replies.js';

/** Maximum number of idle connections kept for later waits. */
const IDLE_MAX = 4;

/** Time to wait for the answer to a cancelled wait; a lock that it grants is released. */
const LATE_ANSWER_MS = 1_000;

/** Pauses between attempts to release a lock. */
const AGAIN_MS = [20, 50, 100, 200, 500, 1_000];

/** An acquisition of a lock, as the server knows it. */
export interface Acquisition {
  readonly key: Buffer;
  readonly owner: string;
  readonly ttl: number;
}

/** A request that was sent, and whose answer nobody awaits any longer. */
export interface UnderWay {
  readonly connection: Link;
  readonly reply: Promise<Reply>;
}

/**
 * The connections of a `Palisade`: a shared one for commands that are answered at once, and one for each command that
 * waits, since that blocks all others on its connection.
 */
export class Connections {
  readonly address: string;
  readonly #opens: Opening;
  /** The server's time to answer, in milliseconds. */
  readonly answerWithin: number;
  #shared: Link | undefined;
  #opening: Promise<Link> | undefined;
  /** True if new connections are refused. */
  #isClosed = false;
  #idle: Link[] = [];
  readonly #waiting = new Set<Link>();
  /** Number of watched locks. */
  watches = 0;
  #isAgent: boolean | undefined;
  readonly #background = new Set<Promise<unknown>>();
  readonly #closing = new AbortController();

  constructor(open: Opening, address: string, within: number) {
    this.#opens = open;
    this.address = address;
    this.answerWithin = within;
    setMaxListeners(0, this.#closing.signal);
  }

  /** Aborts with a {@link Closed} error when these connections are closed. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Returns the shared connection, connected. Concurrent callers share one attempt, and its failure. */
  async shared(): Promise<Link> {
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

  async #open(): Promise<Link> {
    if (this.#isClosed) throw new Closed();
    const connection = await this.#opens(this.answerWithin);
    if (!this.#isClosed) return connection;
    connection.destroy();
    throw new Closed();
  }

  /**
   * Returns a connection for a command that waits, unless `signal` aborts first. {@link idle} or {@link destroy} takes
   * it back.
   */
  async forWait(signal: AbortSignal): Promise<Link> {
    let connection = this.#idle.pop();
    while (connection && !connection.isUsable) connection = this.#idle.pop();
    if (!connection) {
      const opening = this.#open();
      try {
        connection = await unlessAborted(opening, signal);
      } catch (error) {
        // A connection that opens only after the wait was cancelled is kept for others.
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

  /** Marks `connection` as idle: nothing waits on it any longer. */
  idle(connection: Link): void {
    this.#waiting.delete(connection);
    if (connection.isUsable && this.#idle.length < IDLE_MAX && !this.closing.aborted) this.#idle.push(connection);
    else connection.destroy();
  }

  /** Closes the idle connections. */
  destroyIdle(): void {
    for (const connection of this.#idle.splice(0)) connection.destroy();
  }

  /** Closes a connection on which something may wait. */
  destroy(connection: Link): void {
    this.#waiting.delete(connection);
    connection.destroy();
  }

  /**
   * Sends a repeatable command that is answered at once; sends it again if its connection breaks, or the server is not
   * ready yet.
   */
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
        // On a slow connection that is not broken, the command is not sent twice.
        else if (!(error instanceof Unavailable && error.cause && broken++ === 0)) throw error;
        else sending.onBroken?.();
      }
    }
  }

  /** Returns whether the server is an agent, asking once: an agent reports its number of nodes. */
  async isAgent(): Promise<boolean> {
    this.#isAgent ??= toFields(await this.ask(['LOCK.NODE'], { background: true }))?.has('nodes') ?? false;
    return this.#isAgent;
  }

  /** Releases holds down to below `level`. */
  async release({ key, owner }: Acquisition, level = 1): Promise<Released> {
    let broken = 0;
    const words = ['LOCK.RELEASE', key, owner, 'LEVEL', String(level)];
    try {
      if ((await this.ask(words, { onBroken: () => broken++ })) !== null) return 'freed';
    } catch (error) {
      // The key has another value by now.
      if (error instanceof ServerError && error.code === 'WRONGTYPE') return 'not-held';
      throw error;
    }
    // After a repetition, Null may mean that the first request released it.
    return broken > 0 ? 'unknown' : 'not-held';
  }

  /** Releases an acquisition in the background, whatever its state; tries until its lease has ended. */
  giveBack(acquisition: Acquisition, underWay?: UnderWay): void {
    this.inBackground(this.#givingBack(acquisition, underWay));
  }

  async #givingBack(acquisition: Acquisition, underWay: UnderWay | undefined): Promise<void> {
    await this.#releaseAtLast(acquisition);
    if (!underWay) return;
    // The request may reach the server only now, and be granted: only its answer tells.
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
        // A lock that cannot be released ends with its lease.
        if (now() >= until || this.closing.aborted || error instanceof Misconfigured) return;
        await pause(AGAIN_MS[attempt] ?? 1_000, { background: true, signal: this.closing });
      }
    }
  }

  /** Registers work that {@link close} waits for. */
  inBackground(work: Promise<unknown>): void {
    const done = work.catch(() => {}).finally(() => this.#background.delete(done));
    this.#background.add(done);
  }

  /** Announces the end, waits for work in the background, and closes all connections. */
  async close(): Promise<void> {
    this.#closing.abort(new Closed());
    // Work in the background keeps no program alive, but its caller waits for this.
    const alive = setInterval(() => {}, 1_000);
    while (this.#background.size > 0) await Promise.all(this.#background);
    clearInterval(alive);
    this.#isClosed = true;
    for (const connection of [...this.#waiting, ...this.#idle]) connection.destroy();
    this.#idle = [];
    this.#shared?.destroy();
  }
}
