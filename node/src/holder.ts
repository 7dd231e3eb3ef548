import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { basename } from 'node:path';
import { NOTE_BYTES_MAX } from './options.js';

/** Maximum number of characters of the host name in an id. */
const HOST_CHARS = 32;

/** The end of a note with a holder id. */
const NOTED = /(?:^| )\[holder=[A-Za-z0-9._:/@+-]{1,64}\]$/;

const HOST = hostname();
/** Process ids repeat: in a restarted container, each time. Hence the random digits. */
const PROCESS = `${HOST.replace(/[^A-Za-z0-9._:/@+-]/g, '').slice(0, HOST_CHARS)}/${process.pid}/${randomBytes(4).toString('hex')}`;

/** A flow of control: an async function and its callees. All that it holds and waits for has one holder id. */
export class Flow {
  static #count = 0;
  readonly id = `${PROCESS}/${++Flow.#count}`;
  readonly #holds = new Map<string, number>();
  #isWaiting = false;

  /** Returns whether this flow can ask for `key`: it must neither be waiting nor hold it. */
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

  /** Counts a lock that this flow holds. Returns a function that uncounts it. */
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
 * Returns the flow that asks for `key`, which the caller is part of from now on. Its callees inherit the flow. If that
 * flow waits already, or has this lock, the caller begins a flow of its own.
 */
export function flowFor(key: Buffer): Flow {
  const current = flows.getStore();
  if (current?.mayAskFor(key)) return current;
  const flow = new Flow();
  flows.enterWith(flow);
  return flow;
}

/** Returns the default note: host, process and program. */
export function defaultNote(): Buffer {
  return Buffer.from(`${HOST} pid ${process.pid}: ${basename(process.argv[1] ?? process.title)}`.slice(0, 200));
}

/** Returns `note` with the holder id at its end, if there is room. */
export function noted(note: Buffer, holder: string): Buffer {
  const told = Buffer.concat([note, Buffer.from(`${note.length > 0 ? ' ' : ''}[holder=${holder}]`)]);
  return told.length <= NOTE_BYTES_MAX ? told : note;
}

/** Returns `note` as people read it, without the holder id. */
export function withoutHolder(note: string): string {
  return note.replace(NOTED, '');
}
