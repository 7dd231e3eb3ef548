import { createClient, RESP_TYPES, type RedisClientOptions } from 'redis';
import { backgroundTimer } from './clock.js';
import { Unavailable } from './errors.js';
import { translated } from './refusals.js';
import type { Reply } from './replies.js';

/** A word of a command. */
export type Word = string | Buffer;

/** Where to connect to, and how: those options of node-redis' `createClient`. */
export interface Connecting
  extends Pick<
    RedisClientOptions,
    'url' | 'socket' | 'username' | 'password' | 'credentialsProvider' | 'database' | 'name'
  > {
  /** The protocol, 3 unless set. */
  RESP?: 2 | 3 | undefined;
}

/** How a command is sent. */
export interface Sending {
  /** Fails after so many ms without an answer; the command may still be carried out. */
  within?: number | undefined;
  /** Does not keep the process alive until the answer is there. */
  background?: boolean | undefined;
  /** Called before it is sent again, since its connection broke. */
  onBroken?: (() => void) | undefined;
}

/**
 * One connection, for as long as it lasts. It never connects again by itself, and keeps nothing for later: whoever sends a command
 * is told of its answer, or that there is none, and a request for a lock is never sent behind the back of who has given it up.
 */
export class Connection {
  readonly #client: ReturnType<typeof open>;
  readonly address: string;
  readonly #unanswered = new Set<(error: unknown) => void>();
  #keepingAlive = 0;
  #isRetired = false;

  private constructor(options: Connecting, address: string) {
    this.address = address;
    this.#client = open(options);
    // What ends the connection also ends its commands: they are told.
    this.#client.on('error', () => {});
    this.#client.on('terminated', (error: unknown) => this.#failAll(error));
  }

  /** A connection to where `options` say, if it can be had within so many ms: the first answers of the server included. */
  static async open(options: Connecting, address: string, within: number): Promise<Connection> {
    const connection = new Connection({ ...options, socket: { connectTimeout: within, ...options.socket } }, address);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const error = new Unavailable(`${address} did not answer within ${within} ms`);
      timer = setTimeout(() => setImmediate(() => reject(error)), within);
    });
    try {
      await Promise.race([connection.#client.connect(), late]);
    } catch (error) {
      connection.destroy();
      throw translated(error, address);
    } finally {
      clearTimeout(timer);
    }
    // An idle connection keeps no program from its end; one on which an answer is due does.
    connection.#client.unref();
    return connection;
  }

  /** Whether commands can be sent. */
  get isUsable(): boolean {
    return this.#client.isReady && !this.#isRetired;
  }

  /** Sends `words`, and returns the answer. */
  async send(words: readonly Word[], { within, background = false }: Sending = {}): Promise<Reply> {
    let timer: NodeJS.Timeout | undefined;
    let fail: (error: unknown) => void = () => {};
    const ended = new Promise<never>((_, reject) => {
      fail = reject;
      if (within !== undefined) {
        // Answers that came while the event loop was busy are read first.
        const late = () =>
          setImmediate(() => {
            if (!this.#unanswered.has(fail)) return;
            reject(new Unavailable(`${this.address} did not answer within ${within} ms`));
            this.retire();
          });
        timer = backgroundTimer(late, within);
      }
    });
    this.#unanswered.add(fail);
    if (!background && this.#keepingAlive++ === 0) this.#client.ref();
    try {
      const reply = this.#client.sendCommand<Reply>(words);
      return await Promise.race([reply, ended]);
    } catch (error) {
      throw translated(error, this.address);
    } finally {
      clearTimeout(timer);
      this.#unanswered.delete(fail);
      if (!background && --this.#keepingAlive === 0) this.#client.unref();
      if (this.#isRetired && this.#unanswered.size === 0) this.destroy();
    }
  }

  /** Is sent nothing more, and ends when what was sent is answered or given up. */
  retire(): void {
    this.#isRetired = true;
    if (this.#unanswered.size === 0) this.destroy();
  }

  /** Ends at once. What is not answered fails. */
  destroy(): void {
    this.#isRetired = true;
    this.#client.destroy();
    this.#failAll(new Unavailable(`the connection to ${this.address} was closed`));
  }

  #failAll(error: unknown): void {
    for (const fail of this.#unanswered) fail(error);
  }
}

function open(options: Connecting) {
  return createClient({
    ...options,
    disableOfflineQueue: true,
    maintNotifications: 'disabled',
    socket: { ...options.socket, reconnectStrategy: false },
    commandOptions: {
      // Integers as digits: a number would round what does not fit into it, and say nothing.
      typeMapping: {
        [RESP_TYPES.NUMBER]: String,
        [RESP_TYPES.BIG_NUMBER]: String,
        [RESP_TYPES.BLOB_STRING]: Buffer,
        [RESP_TYPES.MAP]: Array,
      },
    },
  } as RedisClientOptions);
}
