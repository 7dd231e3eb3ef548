// Real servers for the tests: one node with the module, or an agent with five nodes behind it.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, describe } from 'node:test';
import { createClient } from 'redis';
import { Palisade, type PalisadeOptions } from '../src/index.js';
import { eventually } from './waiting.js';

/** The folder of the repository. */
export const ROOT = resolve(__dirname, '../../..');
const SERVER = process.env.PALISADE_SERVER ?? 'redis-server';
const MODULE = resolve(ROOT, process.env.PALISADE_MODULE ?? 'target/debug/libpalisade.so');
/** The path of the program `palisade`. */
export const PROGRAM = resolve(ROOT, process.env.PALISADE_PROGRAM ?? 'target/debug/palisade');

/** Processes and a folder that are removed when the tests are over. */
class Running {
  readonly folder = mkdtempSync(join(tmpdir(), 'palisade-node-'));
  readonly #processes: ChildProcess[] = [];

  start(program: string, args: string[]): ChildProcess {
    const child = spawn(program, args, { stdio: 'ignore', cwd: this.folder });
    this.#processes.push(child);
    return child;
  }

  end(): void {
    for (const child of this.#processes) child.kill('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** Sends raw commands, to inspect locks from outside and to act as an operator. */
export class Outside {
  readonly client;

  constructor(
    path: string,
    readonly isAgent = false,
  ) {
    this.client = createClient({ socket: { path, tls: false, reconnectStrategy: 50 } });
    this.client.on('error', () => {});
  }

  say(...words: (string | Buffer)[]): Promise<unknown> {
    return this.client.sendCommand(words);
  }

  /** Repeats the command until the server's state file is written. */
  async sayReady(...words: string[]): Promise<unknown> {
    let answer: unknown;
    await eventually(`${words[0]} is answered`, async () => {
      answer = await this.say(...words).catch((error: Error) => error);
      return !(answer instanceof Error && answer.message.startsWith('NOTYET'));
    });
    return answer;
  }

  /** Returns the fields of LOCK.INFO; `null` if nobody holds the lock. */
  async info(key: string): Promise<Record<string, string | number> | null> {
    return (await this.say('LOCK.INFO', key)) as Record<string, string | number> | null;
  }

  /** Returns the numbers of holders and waiters of the lock. */
  async users(key: string): Promise<{ holders: number; waiters: number }> {
    const info = (await this.say('LOCK.INFO', key, 'WAITERS', '1000')) as Record<string, number> | null;
    return { holders: info?.holders ?? 0, waiters: this.isAgent ? await this.#waiting() : (info?.waiters ?? 0) };
  }

  /** Counts the waiters of an agent, which stands in the queues of its nodes once for all of them. */
  async #waiting(): Promise<number> {
    return Number(/^waiting:(\d+)/m.exec(String(await this.say('INFO', 'palisade')))?.[1]);
  }

  /** Waits until this many are in the queue. */
  async waiters(key: string, expected: number): Promise<void> {
    await eventually(`${expected} wait for ${key}`, async () => (await this.users(key)).waiters === expected);
  }

  /** Waits until nobody holds the lock, and nobody waits for it. */
  async free(key: string): Promise<void> {
    await eventually(`${key} is free`, async () => {
      const { holders, waiters } = await this.users(key);
      return holders === 0 && waiters === 0;
    });
  }
}

/** One server with the module, on a Unix socket. */
export class Node {
  readonly #running = new Running();
  readonly path = join(this.#running.folder, 'node.sock');
  readonly url = `unix://${this.path}`;
  readonly outside = new Outside(this.path);
  #process!: ChildProcess;
  #args: string[] = [];

  async start(more: string[] = [], options: { module?: boolean; port?: number; lift?: boolean } = {}): Promise<this> {
    const module = options.module === false ? [] : ['--loadmodule', MODULE];
    const port = ['--port', String(options.port ?? 0)];
    this.#args = ['--unixsocket', this.path, '--save', '', '--dir', this.#running.folder, ...port, ...module, ...more];
    this.#process = this.#running.start(SERVER, this.#args);
    await eventually('the server listens', () => existsSync(this.path));
    await this.outside.client.connect();
    if (options.module !== false && options.lift !== false) await this.lift();
    return this;
  }

  /** Lifts the guard: nobody holds a lock of a new server. */
  async lift(): Promise<void> {
    await eventually(
      'the guard is lifted',
      async () => (await this.outside.say('LOCK.GUARD', 'LIFT').catch(() => 1)) === 0,
    );
  }

  /** Ends the server as `kill -9` does. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await once(this.#process, 'exit');
  }

  /** Starts the server again, at the same place. */
  async restart(): Promise<void> {
    this.#process = this.#running.start(SERVER, this.#args);
    await eventually('it answers', async () => (await this.outside.say('PING').catch(() => '')) === 'PONG');
  }

  signal(name: NodeJS.Signals): void {
    this.#process.kill(name);
  }

  end(): void {
    this.outside.client.destroy();
    this.#running.end();
  }

  [Symbol.dispose](): void {
    this.end();
  }
}

/** An agent, with five nodes behind it. */
export class Agent {
  readonly #running = new Running();
  readonly nodes: Node[] = [];
  readonly path = join(this.#running.folder, 'agent.sock');
  readonly url = `unix://${this.path}`;
  readonly outside = new Outside(this.path, true);

  async start(): Promise<this> {
    const ports = await Promise.all(Array.from({ length: 5 }, freePort));
    this.nodes.push(...(await Promise.all(ports.map((port) => new Node().start([], { port })))));
    const nodes = ports.map((port) => `redis://127.0.0.1:${port}`).join(',');
    this.#running.start(PROGRAM, ['agent', '--listen', this.url, '--nodes', nodes]);
    await eventually('the agent listens', () => existsSync(this.path));
    await this.outside.client.connect();
    return this;
  }

  end(): void {
    this.outside.client.destroy();
    for (const node of this.nodes) node.end();
    this.#running.end();
  }

  [Symbol.dispose](): void {
    this.end();
  }
}

/** Returns a port that nobody listens on. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

/** The servers of a test, and clients of them that are closed at the end. */
export class Bench {
  readonly #clients: Palisade[] = [];
  #server: Node | Agent | undefined;
  #keys = 0;

  constructor(readonly isAgent: boolean) {}

  async start(): Promise<void> {
    this.#server = await (this.isAgent ? new Agent() : new Node()).start();
  }

  get url(): string {
    return (this.#server as Node).url;
  }

  get path(): string {
    return (this.#server as Node).path;
  }

  get outside(): Outside {
    return (this.#server as Node).outside;
  }

  /** Returns a client of the locks. */
  locks(options?: PalisadeOptions): Palisade {
    const locks = new Palisade(this.url, options);
    this.#clients.push(locks);
    return locks;
  }

  /** Returns a key that no other test uses. */
  key(): string {
    return `key:${++this.#keys}`;
  }

  async end(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
    this.#server?.end();
  }
}

/** Runs `tests` on a node, and on an agent. */
export function onEach(name: string, tests: (bench: Bench) => void): void {
  for (const isAgent of [false, true]) {
    const skip = isAgent && !process.env.PALISADE_AGENT && 'PALISADE_AGENT is not set';
    describe(`${name}, on ${isAgent ? 'an agent' : 'a node'}`, { skip }, () => {
      const bench = new Bench(isAgent);
      before(() => bench.start());
      after(() => bench.end());
      tests(bench);
    });
  }
}

/** Runs `tests` on a node alone, in ways that an agent does not offer. */
export function onNode(name: string, tests: (bench: Bench) => void): void {
  describe(name, () => {
    const bench = new Bench(false);
    before(() => bench.start());
    after(() => bench.end());
    tests(bench);
  });
}
