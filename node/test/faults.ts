// A path to the server that holds up requests and loses answers.

import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';

/** Forwards between clients and the server, except what a test takes out. */
export class FaultyWay {
  readonly url: string;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #heldWord: string | undefined;
  #held: (() => void)[] = [];
  #lostWord: string | undefined;
  /** Number of requests with the word that were held up so far. */
  heldForWord = 0;
  /** Number of lost answers. */
  lost = 0;

  constructor(node: { path: string }) {
    const path = join(node.path, '..', 'faulty.sock');
    this.url = `unix://${path}`;
    this.#server = createServer((client) => this.#pass(client, node.path)).listen(path);
  }

  /** Holds up requests with this word, and what follows them on their connection. */
  hold(word: string): void {
    this.#heldWord = word;
  }

  /** Number of requests held up. */
  get held(): number {
    return this.#held.length;
  }

  /** Forwards what was held up to the server. */
  letGo(): void {
    this.#heldWord = undefined;
    for (const pass of this.#held) pass();
    this.#held = [];
  }

  /** Forwards the next request with this word, loses its answer, and breaks its connection. */
  loseAnswerTo(word: string): void {
    this.#lostWord = word;
  }

  end(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #pass(client: Socket, path: string): void {
    const server = createConnection(path);
    let isLost = false;
    let isHeld = false;
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(from);
      from.on('error', () => {});
      // What is held up reaches the server even if the client has gone.
      from.on('close', () =>
        from === client && this.#held.length > 0 ? this.#held.push(() => to.end()) : to.destroy(),
      );
    }
    client.on('data', (data) => {
      const words = data.toString('latin1');
      if (this.#lostWord && words.includes(this.#lostWord)) {
        this.#lostWord = undefined;
        isLost = true;
      }
      // What follows on the same connection stays behind.
      if (this.#heldWord && words.includes(this.#heldWord)) {
        this.heldForWord += 1;
        isHeld = true;
      }
      if (!isHeld) return void server.write(data);
      this.#held.push(() => {
        isHeld = false;
        server.write(data);
      });
    });
    server.on('data', (data) => {
      if (!isLost) return void client.write(data);
      this.lost += 1;
      client.destroy();
    });
  }
}
