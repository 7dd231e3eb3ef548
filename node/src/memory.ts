import { now } from './clock.js';
import type { Link, Word } from './connection.js';
import { BadArgument, Unavailable } from './errors.js';
import type { Reply } from './replies.js';

/** The first token, which has the length of a server's. */
const FIRST_TOKEN = 1_700_000_000_000_000;

/** What an acquisition asks for. The ttl is in milliseconds. */
export interface Request {
  readonly owner: string;
  readonly ttl: number;
  readonly note: Buffer;
  readonly isShared: boolean;
  /** The number of permits; 0 of other locks. */
  readonly limit: number;
}

/** An owner's grant of a lock. */
interface Granted {
  readonly owner: string;
  readonly limit: number;
  readonly number: number;
  readonly since: number;
  note: Buffer;
  isShared: boolean;
  token: number;
  until: number;
  holds: number;
  sequence: number;
}

/** An owner in the queue of a lock. */
interface Waiter {
  readonly request: Request;
  readonly since: number;
  readonly until: number;
  timer?: NodeJS.Timeout;
  answer(reply: Reply): void;
}

class Lock {
  #grants: Granted[] = [];
  queue: Waiter[] = [];

  /** The grants whose leases are not over. */
  get grants(): Granted[] {
    this.#grants = this.#grants.filter((grant) => grant.until > now());
    return this.#grants;
  }

  grantOf(owner: string): Granted | undefined {
    return this.grants.find((grant) => grant.owner === owner);
  }

  /** Returns the number that the request would have (0 for no permit), unless it is incompatible with a grant. */
  numberFor(request: Request): number | undefined {
    for (const { number, isShared } of this.grants) {
      const arePermits = number > 0 && number <= request.limit;
      if (!arePermits && !(isShared && request.isShared)) return undefined;
    }
    if (request.limit === 0) return 0;
    let number = 1;
    while (this.grants.some((grant) => grant.number === number)) number++;
    return number <= Math.min(request.limit, ...this.grants.map((grant) => grant.limit)) ? number : undefined;
  }
}

/** Locks in memory: the grants, the queue and the leases of one node, by the words of its commands. */
export class Memory {
  readonly #locks = new Map<string, Lock>();
  #lastToken = FIRST_TOKEN;

  /** Returns a connection. */
  open(): Link {
    let isEnded = false;
    const end = () => {
      isEnded = true;
    };
    const send = async (words: readonly Word[]): Promise<Reply> => {
      if (isEnded) throw new Unavailable('the connection to memory was closed');
      return this.#perform(words);
    };
    const isUsable = () => !isEnded;
    return {
      address: 'memory',
      get isUsable() {
        return isUsable();
      },
      send,
      retire: end,
      destroy: end,
    };
  }

  /** Returns whether the lock was free for this request. */
  acquire(key: Buffer, request: Request): boolean {
    return this.#acquire(this.#of(key), request) !== undefined;
  }

  /** Releases holds down to below `level`, and takes the owner out of the queue. */
  release(key: Buffer, owner: string, level = 1): number | null {
    const lock = this.#of(key);
    const grant = lock.grantOf(owner);
    if (grant) {
      grant.holds = Math.min(grant.holds, level - 1);
      if (grant.holds === 0) grant.until = 0;
    }
    const left = lock.queue.filter((waiter) => waiter.request.owner === owner);
    lock.queue = lock.queue.filter((waiter) => !left.includes(waiter));
    for (const waiter of left) waiter.answer(null);
    this.#serve(lock);
    return grant?.holds ?? null;
  }

  /** Takes a lock away from all its holders. The next in the queue has it. */
  takeAway(key: Buffer): void {
    const lock = this.#of(key);
    for (const grant of lock.grants) grant.until = 0;
    this.#serve(lock);
  }

  /** Returns how many wait for a lock. */
  waiting(key: Buffer): number {
    return this.#of(key).queue.length;
  }

  /** Returns whether somebody holds a lock. */
  isHeld(key: Buffer): boolean {
    return this.#of(key).grants.length > 0;
  }

  #of(key: Buffer): Lock {
    const name = key.toString('latin1');
    const lock = this.#locks.get(name) ?? new Lock();
    this.#locks.set(name, lock);
    return lock;
  }

  #perform([command, ...words]: readonly Word[]): Reply | Promise<Reply> {
    const [name = '', owner = '', ...more] = words;
    const key = Buffer.from(name as Buffer);
    switch (command) {
      case 'LOCK.NODE':
        return ['state', 'serving'];
      case 'LOCK.INFO':
        return infoOf(this.#of(key).grants[0]);
      case 'LOCK.ACQUIRE':
        return this.#ask(this.#of(key), requestOf(String(owner), more), more);
      case 'LOCK.RELEASE':
        return digits(this.release(key, String(owner), Number(more[1])));
      case 'LOCK.EXTEND':
      case 'LOCK.REENTER':
      case 'LOCK.CONVERT':
      case 'LOCK.NOTE': {
        const grant = this.#of(key).grantOf(String(owner));
        return digits(grant ? this.#change(command, this.#of(key), grant, more) : null);
      }
    }
    throw new BadArgument(`locks in memory have no ${String(command)}`);
  }

  #change(command: string, lock: Lock, grant: Granted, [first = '', second, third]: readonly Word[]): number | null {
    switch (command) {
      case 'LOCK.EXTEND':
        grant.until = Math.max(grant.until, now() + Number(first));
        return grant.token;
      case 'LOCK.REENTER':
        grant.holds = Math.max(grant.holds, Number(second));
        return grant.holds;
      case 'LOCK.CONVERT':
        return this.#convert(lock, grant, first === 'SHARED');
      default:
        return proclaimed(grant, first, Number(third));
    }
  }

  #convert(lock: Lock, grant: Granted, toShared: boolean): number | null {
    if (grant.number > 0 || (!toShared && lock.grants.length > 1)) return null;
    if (grant.isShared && !toShared) grant.token = ++this.#lastToken;
    grant.isShared = toShared;
    this.#serve(lock);
    return grant.token;
  }

  /** Answers a request for a lock, when it is granted or its wait is over. */
  #ask(lock: Lock, request: Request, words: readonly Word[]): Reply | Promise<Reply> {
    const grant = this.#acquire(lock, request);
    const at = words.indexOf('WAIT');
    if (grant || at < 0) return grant ? replyOf(grant, 0) : null;
    return new Promise((resolve) => {
      const answer = (reply: Reply) => {
        clearTimeout(waiter.timer);
        resolve(reply);
      };
      const waiter: Waiter = { request, since: now(), until: now() + Number(words[at + 1]), answer };
      lock.queue.push(waiter);
      this.#lookAgain(lock, waiter);
    });
  }

  /** Serves the queue whenever a lease ends, until the waiter's time is over. */
  #lookAgain(lock: Lock, waiter: Waiter): void {
    if (now() >= waiter.until && lock.queue.includes(waiter)) {
      lock.queue = lock.queue.filter((other) => other !== waiter);
      waiter.answer(null);
    }
    this.#serve(lock);
    if (!lock.queue.includes(waiter)) return;
    const due = Math.min(waiter.until, ...lock.grants.map((grant) => grant.until)) - now();
    // Timers take no more than this.
    waiter.timer = setTimeout(() => this.#lookAgain(lock, waiter), Math.min(Math.ceil(due) + 1, 2 ** 31 - 1));
  }

  #acquire(lock: Lock, request: Request): Granted | undefined {
    const again = lock.grantOf(request.owner);
    if (again) again.until = Math.max(again.until, now() + request.ttl);
    return again ?? (lock.queue.length > 0 ? undefined : this.#grant(lock, request));
  }

  #grant(lock: Lock, request: Request): Granted | undefined {
    const number = lock.numberFor(request);
    if (number === undefined) return undefined;
    const since = now();
    const of = { number, since, until: since + request.ttl, token: ++this.#lastToken, holds: 1, sequence: 0 };
    const grant = { ...request, ...of };
    lock.grants.push(grant);
    return grant;
  }

  /** Grants to the first in the queue, in turn. */
  #serve(lock: Lock): void {
    for (let first = lock.queue[0]; first; first = lock.queue[0]) {
      const grant = this.#grant(lock, first.request);
      if (!grant) return;
      lock.queue.shift();
      first.answer(replyOf(grant, now() - first.since));
    }
  }
}

function requestOf(owner: string, [ttl, ...words]: readonly Word[]): Request {
  const after = (name: string) => (words.includes(name) ? words[words.indexOf(name) + 1] : undefined);
  const note = Buffer.from((after('NOTE') ?? '') as Buffer);
  return { owner, ttl: Number(ttl), note, isShared: words[0] === 'SHARED', limit: Number(after('LIMIT') ?? 0) };
}

/** Proclaims a leader's value, unless a later one is there already. */
function proclaimed(grant: Granted, note: Word, sequence: number): number {
  if (sequence > grant.sequence) {
    grant.note = Buffer.from(note as Buffer);
    grant.sequence = sequence;
  }
  return grant.sequence;
}

function digits(number: number | null): Reply {
  return number === null ? null : String(Math.floor(number));
}

function replyOf(grant: Granted, waited: number): Reply {
  return [grant.token, waited, grant.number].map(digits);
}

function infoOf(grant: Granted | undefined): Reply {
  if (!grant) return null;
  const { token, note, sequence, since, until } = grant;
  const numbers = Object.entries({ token, held: now() - since, ttl: until - now(), seq: sequence });
  return [...numbers.flatMap(([name, number]) => [name, digits(number)]), 'note', note];
}
