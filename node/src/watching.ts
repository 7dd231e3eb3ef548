import { pause, unlessAborted } from './clock.js';
import type { Connection } from './connection.js';
import type { Connections } from './connections.js';
import { isLasting } from './refusals.js';

/** Time for which a lock is held before it is watched. Most are given back before, and a watch takes a connection, here and to each node. */
const AFTER_MS = 500;

/** Time after which the agent answers even if nothing happens. A connection on which it does not is given up. */
const WATCH_MS = 60_000;

/** Pause before the next watch, after an answer and after an error. */
const AGAIN_MS = 1_000;

/** Most locks of one client that are watched at once: a program that holds thousands leaves connections of the agent to others. */
const WATCHES_MAX = 32;

/** A lock that is held. */
export interface Watched {
  readonly key: Buffer;
  token(): number;
  /** Called when the agent says that no grant has the token. */
  check(): void;
}

/**
 * Hears at once from a `palisade agent` that a lock was taken away, until `ended` aborts. Ends if the address is none of an agent.
 * Errors are ignored: extensions tell what has become of the lock.
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
        // Also that it has ended.
        if (isLasting(error)) return;
      } finally {
        connections.watches--;
      }
    }
    await pause(AGAIN_MS, { signal: ended, background: true });
  }
}

/** Resolves when the agent says that no grant has the token. */
async function takenAway(connections: Connections, { key, token }: Watched, ended: AbortSignal): Promise<void> {
  const sending = { within: WATCH_MS + connections.answerWithin, background: true };
  let connection: Connection | undefined;
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
