import { createClient, RESP_TYPES, type RedisClientOptions } from 'redis';
import { backgroundTimer } from './clock.js';
import { Unavailable } from './errors.js';
import { translated } from './refusals.js';
import type { Reply } from './replies.js';

/** A word of a command. */
export type Word = string | Buffer;

/** The connection options, a part of those of node-redis' `createClient`. */
export interface Connecting
  extends Pick<
    RedisClientOptions,
    'url' | 'socket' | 'username' | 'password' | 'credentialsProvider' | 'database' | 'name'
  > {
  /** The protocol version, 3 by default. */
  RESP?: 2 | 3 | undefined;
}

/** Options of sending a command. */
export interface Sending {
  /** Fails after this many milliseconds without an answer; the command may still be executed. */
  within?: number | undefined;
  /** True if the process may end before the answer arrives. */
  background?: boolean | undefined;
  /** Called before the command is sent again because its connection broke. */
  onBroken?: (() => void) | undefined;
}

/** A connection, as those who send commands over it see it. */
export type Link = Pick<Connection, 'address' | 'isUsable' | 'send' | 'retire' | 'destroy'>;

/** The name under which an address has its own way to open connections: that of locks in memory. */
export const OPENING = Symbol('opening');

/** Opens a connection within this many milliseconds. */
export type Opening = (within: number) => Promise<Link>;

/**
 * One connection, for as long as it lasts. It never reconnects by itself, and queues nothing for later: every sender
 * gets an answer or an error. So a request for a lock is never sent after its caller has cancelled it.
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
    // Whatever ends the connection also fails its commands.
    this.#client.on('error', () => {});
    this.#client.on('terminated', (error: unknown) => this.#failAll(error));
  }

  /** Opens a connection within this many milliseconds, including the server's first answers. */
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
    // An idle connection does not keep a program alive; one with a pending answer does.
    connection.#client.unref();
    return connection;
  }

  /** True if commands can be sent. */
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
        // Answers that arrived while the event loop was busy are read first.
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

  /** Stops sending. The connection ends once all commands are answered or given up. */
  retire(): void {
    this.#isRetired = true;
    if (this.#unanswered.size === 0) this.destroy();
  }

  /** Closes the connection at once. Pending commands fail. */
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
      // Integers are decoded as digits: a number would silently round those that do not fit into it.
      typeMapping: {
        [RESP_TYPES.NUMBER]: String,
        [RESP_TYPES.BIG_NUMBER]: String,
        [RESP_TYPES.BLOB_STRING]: Buffer,
        [RESP_TYPES.MAP]: Array,
      },
    },
  } as RedisClientOptions);
}
