import { pause, unlessAborted } from './clock.js';
import type { Link } from './connection.js';
import type { Connections } from './connections.js';
import { isLasting } from './refusals.js';

/**
 * Milliseconds for which a lock is held before it is watched. Most are released before; a watch takes a connection,
 * here and to each node.
 */
const AFTER_MS = 500;

/** Milliseconds after which the agent answers even without a change. A connection without that answer is closed. */
const WATCH_MS = 60_000;

/** Pause before the next watch, after an answer and after an error. */
const AGAIN_MS = 1_000;

/**
 * Maximum number of locks that one client watches at once: a program with thousands leaves the agent's connections to
 * others.
 */
const WATCHES_MAX = 32;

/** A held lock. */
export interface Watched {
  readonly key: Buffer;
  token(): number;
  /** Called when the agent reports that no grant has the token. */
  check(): void;
}

/**
 * Learns at once from a `palisade agent` that a lock was taken away, until `ended` aborts. Returns if the address is no
 * agent's. Ignores errors: extensions show the state of the lock.
 */
export async function watch(connections: Connections, watched: Watched, ended: AbortSignal): Promise<void> {
  await pause(AFTER_MS, { signal: ended, background: true });
  while (!ended.aborted) {
    if (connections.watches < WATCHES_MAX) {
      connections.watches++;
      try {
        if (!(await unlessAborted(connections.isAgent(), ended))) return;
        await takenAway(connections, watched, ended);
        watched.check();
      } catch (error) {
        // The error may also be that the watch was ended.
        if (isLasting(error)) return;
      } finally {
        connections.watches--;
      }
    }
    await pause(AGAIN_MS, { signal: ended, background: true });
  }
}

/** Resolves when the agent reports that no grant has the token. */
async function takenAway(connections: Connections, { key, token }: Watched, ended: AbortSignal): Promise<void> {
  const sending = { within: WATCH_MS + connections.answerWithin, background: true };
  let connection: Link | undefined;
  try {
    connection = await connections.forWait(ended);
    let reply = null;
    while (reply === null) {
      const words = ['LOCK.WATCH', key, String(WATCH_MS), 'TOKEN', String(token())];
      reply = await unlessAborted(connection.send(words, sending), ended);
    }
  } finally {
    if (connection) connections.destroy(connection);
  }
}
