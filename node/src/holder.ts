import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { basename } from 'node:path';
import { NOTE_BYTES_MAX } from './options.js';

/** Of the name of this machine, so much is in an id. */
const HOST_CHARS = 32;

/** The end of a note that tells one. */
const NOTED = /(?:^| )\[holder=[A-Za-z0-9._:/@+-]{1,64}\]$/;

const HOST = hostname();
/** Process ids come again: in a container that is started anew, each time. Hence some digits of chance. */
const PROCESS = `${HOST.replace(/[^A-Za-z0-9._:/@+-]/g, '').slice(0, HOST_CHARS)}/${process.pid}/${randomBytes(4).toString('hex')}`;

/** A flow of control: an async function and what it calls. Everything that it holds and waits for has one holder id. */
export class Flow {
  static #count = 0;
  readonly id = `${PROCESS}/${++Flow.#count}`;
  readonly #holds = new Map<string, number>();
  #isWaiting = false;

  /** Tells if `key` can be asked for in this flow. One that waits does not ask, and none asks for what it has. */
  mayAskFor(key: Buffer): boolean {
    return !this.#isWaiting && !this.#holds.has(key.toString('latin1'));
  }

  /** Awaits `taking`, which waits for a lock in this flow. */
  async waitFor<T>(taking: Promise<T>): Promise<T> {
    this.#isWaiting = true;
    try {
      return await taking;
    } finally {
      this.#isWaiting = false;
    }
  }

  /** Counts a lock that is held in this flow. Returns a function that ends that. */
  hold(key: Buffer): () => void {
    const name = key.toString('latin1');
    this.#holds.set(name, (this.#holds.get(name) ?? 0) + 1);
    return () => {
      const left = (this.#holds.get(name) ?? 0) - 1;
      if (left > 0) this.#holds.set(name, left);
      else this.#holds.delete(name);
    };
  }
}

const flows = new AsyncLocalStorage<Flow>();

/**
 * Returns the flow that asks for `key`, of which the caller is a part from now on. It is inherited by what the caller starts, so one that
 * cannot be it, since another part of it waits or has this lock, begins a flow of its own.
 */
export function flowFor(key: Buffer): Flow {
  const current = flows.getStore();
  if (current?.mayAskFor(key)) return current;
  const flow = new Flow();
  flows.enterWith(flow);
  return flow;
}

/** Returns the note of callers who give none: host, process and program. */
export function defaultNote(): Buffer {
  return Buffer.from(`${HOST} pid ${process.pid}: ${basename(process.argv[1] ?? process.title)}`.slice(0, 200));
}

/** Returns `note` with the holder id at its end, if there is room for that. */
export function noted(note: Buffer, holder: string): Buffer {
  const told = Buffer.concat([note, Buffer.from(`${note.length > 0 ? ' ' : ''}[holder=${holder}]`)]);
  return told.length <= NOTE_BYTES_MAX ? told : note;
}

/** Returns `note` as people read it. */
export function withoutHolder(note: string): string {
  return note.replace(NOTED, '');
}
