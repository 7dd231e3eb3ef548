import { pause, unlessAborted } from './clock.js';
import type { Link } from './connection.js';
import type { Connections } from './connections.js';
import { Guarded, named } from './errors.js';
import { type Leader, readNote } from './proclamation.js';
import { isLasting } from './refusals.js';
import { type Reply, textOf, toFields, toInteger } from './replies.js';

/**
 * Milliseconds after which the server answers even without a change. A connection without that answer is closed a
 * little later.
 */
const WATCH_MS = 3_000;
const ANSWER_WITHIN_MS = WATCH_MS + 3_000;

/** Pause before a server that is unreachable or guarded is asked again. */
const AGAIN_MS = 300;

/** The known state of an election's lock. */
interface Known {
  readonly token: number;
  readonly sequence: number;
}

/** Returns the present leader. */
export async function leaderNow(connections: Connections, key: Buffer): Promise<Leader | null> {
  const { leader, known } = toState(await connections.ask(['LOCK.INFO', key]));
  // A server that has forgotten its grants cannot report that nobody leads.
  const guarded = known.token === 0 ? await guardedFor(connections) : 0;
  if (guarded > 0) throw new Guarded('the server is guarded: it may have forgotten who leads', guarded);
  return leader;
}

/** Yields each change of the leader. */
export async function* observing(
  connections: Connections,
  key: Buffer,
  signal: AbortSignal | undefined,
): AsyncGenerator<Leader | null, void, undefined> {
  const leaving = new AbortController();
  const leave = () => leaving.abort();
  const signals = [signal, connections.closing].filter((signal) => signal !== undefined);
  for (const signal of signals) {
    signal.addEventListener('abort', leave);
    if (signal.aborted) leave();
  }
  let connection: Link | undefined;
  try {
    let known: Known | undefined;
    let told: Leader | null | undefined;
    for (;;) {
      if (signal?.aborted) throw signal.reason;
      if (leaving.signal.aborted) return;
      try {
        connection ??= await connections.forWait(leaving.signal);
        const state = await unlessAborted(watch(connection, key, known), leaving.signal);
        if (state === null) continue;
        if (state.known.token === 0 && (await guardedFor(connections)) > 0) throw new Guarded('guarded', AGAIN_MS);
        known = state.known;
        if (!isNews(state.leader, told)) continue;
        told = state.leader;
      } catch (error) {
        // A lasting error is thrown.
        if (!leaving.signal.aborted && isLasting(error)) throw named(error, key);
        if (connection) connections.destroy(connection);
        connection = undefined;
        known = undefined;
        await pause(AGAIN_MS, { signal: leaving.signal });
        continue;
      }
      yield told;
    }
  } finally {
    if (connection) connections.destroy(connection);
    for (const signal of signals) signal.removeEventListener('abort', leave);
  }
}

async function watch(connection: Link, key: Buffer, known: Known | undefined): Promise<State | null> {
  // Without a known state, LOCK.INFO reports the present one; LOCK.WATCH would not report a free lock.
  if (!known) return toState(await connection.send(['LOCK.INFO', key], { within: ANSWER_WITHIN_MS }));
  const since = known.token === 0 ? [] : ['TOKEN', String(known.token), 'SEQ', String(known.sequence)];
  const reply = await connection.send(['LOCK.WATCH', key, String(WATCH_MS), ...since], { within: ANSWER_WITHIN_MS });
  return reply === null ? null : toState(reply);
}

interface State {
  readonly known: Known;
  readonly leader: Leader | null;
}

function toState(reply: Reply): State {
  const fields = toFields(reply);
  const token = fields ? toInteger(fields.get('token')) : 0;
  if (!fields || token === 0) return { known: { token: 0, sequence: 0 }, leader: null };
  const sequence = toInteger(fields.get('seq'));
  const read = sequence > 0 ? readNote(textOf(fields, 'note')) : undefined;
  // A holder without a proclamation is about to proclaim, or is no candidate.
  return { known: { token, sequence }, leader: read ? { ...read, sequence } : null };
}

function isNews(leader: Leader | null, told: Leader | null | undefined): boolean {
  if (told === undefined || leader === null || told === null) return leader !== told;
  return leader.term > told.term || (leader.term === told.term && leader.sequence > told.sequence);
}

async function guardedFor(connections: Connections): Promise<number> {
  const fields = toFields(await connections.ask(['LOCK.NODE']));
  const ms = fields?.get('guard_ms');
  return ms === undefined ? 0 : toInteger(ms);
}
