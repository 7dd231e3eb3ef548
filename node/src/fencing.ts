import { BadArgument, Fenced } from './errors.js';

/** What a holder shows to a resource: its token, and what that token allows. */
export interface Grant {
  readonly token: number;
  readonly mode: 'exclusive' | 'shared' | 'permit';
  /** The number of a permit, 1 to 65535. */
  readonly permit?: number;
}

// A string of RFC 9651, since its integers have at most 15 digits, and a parameter for the mode.
const HEADER = /^ *"([1-9][0-9]{0,15})"(?:; *(?:(shared)|permit=([1-9][0-9]{0,4})))? *$/;
const PERMITS_END = 1 << 16;

/** Returns the grant of a header `Fencing-Token`. */
export function parseFencingToken(header: string): Grant {
  const [, token, shared, number] = HEADER.exec(header) ?? [];
  const permit = number === undefined ? undefined : Number(number);
  if (!Number.isSafeInteger(Number(token)) || (permit ?? 0) >= PERMITS_END) {
    throw new BadArgument('a Fencing-Token is "33", "33";shared or "33";permit=2');
  }
  if (permit !== undefined) return { token: Number(token), mode: 'permit', permit };
  return { token: Number(token), mode: shared === undefined ? 'exclusive' : 'shared' };
}

/** Returns the header `Fencing-Token` of a grant. */
export function formatFencingToken({ token, mode, permit }: Grant): string {
  return `"${token}"${mode === 'exclusive' ? '' : mode === 'shared' ? ';shared' : `;permit=${permit}`}`;
}

/** The store of tokens that a middleware asks. It outlives the service: PostgreSQL, SQLite, Redis. */
export interface Fence<Passed = unknown> {
  /**
   * Runs `work` after the pass, or rejects with `Fenced`. Keeps holders that exclude this one waiting until the work is
   * done. What the fence hands to `work` is for the handler: a transaction that has passed, for example.
   */
  pass<T>(resource: string, grant: Grant, work: (passed: Passed) => Promise<T>): Promise<T>;
}

/** The tokens that a resource has seen, and the holders that are working on it. */
class Seen {
  exclusive = 0;
  any = 0;
  readonly permits = new Map<number, number>();
  /** Each pass whose work goes on. One grant may pass several times. */
  readonly working = new Map<Promise<unknown>, Grant>();

  /** Returns the largest token that refuses smaller ones of this mode. */
  largestAgainst({ mode, permit }: Grant): number {
    if (mode === 'permit') return Math.max(this.any, this.permits.get(permit as number) ?? 0);
    return Math.max(mode === 'exclusive' ? this.any : this.exclusive, ...this.permits.values());
  }

  remember({ token, mode, permit }: Grant): void {
    if (mode === 'permit') this.permits.set(permit as number, token);
    else this.any = Math.max(this.any, token);
    if (mode === 'exclusive') this.exclusive = token;
  }

  /** Returns the work of a holder that this one excludes. */
  workAgainst(grant: Grant): Promise<unknown> | undefined {
    return [...this.working].find(([, other]) => exclude(grant, other))?.[0];
  }
}

function exclude(one: Grant, other: Grant): boolean {
  return one.mode !== other.mode || (one.mode !== 'shared' && one.permit === other.permit);
}

/** A fence that forgets all tokens when the process ends, for tests and for what the process alone keeps. */
export class MemoryFence implements Fence<undefined> {
  readonly #seen = new Map<string, Seen>();

  async pass<T>(resource: string, grant: Grant, work: (passed: undefined) => Promise<T>): Promise<T> {
    const seen = this.#seen.get(resource) ?? new Seen();
    this.#seen.set(resource, seen);
    // Nothing is awaited between the last look and the pass: other holders could pass meanwhile.
    for (let other = seen.workAgainst(grant); other; other = seen.workAgainst(grant)) await other.catch(() => {});
    const largest = seen.largestAgainst(grant);
    if (grant.token < largest) throw new Fenced(grant.token, largest);
    seen.remember(grant);
    const done: Promise<T> = work(undefined).finally(() => seen.working.delete(done));
    seen.working.set(done, grant);
    return done;
  }
}
