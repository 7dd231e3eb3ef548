import { type Holder, UnexpectedReply } from './errors.js';
import { withoutHolder } from './holder.js';

/**
 * An answer of the server, as connections here decode it: integers as their digits (so none is rounded), texts as
 * bytes, maps as flat arrays, Null as `null`.
 */
export type Reply = null | string | Buffer | Reply[];

/** A grant: its token, the wait in milliseconds, and the number of a permit (0 if it is none). */
export interface Granted {
  readonly token: number;
  readonly waited: number;
  readonly number: number;
}

/**
 * Returns an integer. Tokens are below 2^53 by the server's guarantee, so a `number` holds them exactly. A larger one
 * is refused, since a rounded token would belong to somebody else.
 */
export function toInteger(reply: Reply | undefined): number {
  const value = typeof reply === 'string' && /^\d+$/.test(reply) ? Number(reply) : Number.NaN;
  if (!Number.isSafeInteger(value)) {
    throw new UnexpectedReply(`the server answered ${shown(reply)} where an integer below 2^53 belongs`);
  }
  return value;
}

/** Returns the answer to LOCK.ACQUIRE; `null` if the lock is not this owner's. */
export function toGranted(reply: Reply): Granted | null {
  if (reply === null) return null;
  const [token, waited, number] = Array.isArray(reply) ? reply : [reply, '0'];
  return { token: toInteger(token), waited: toInteger(waited), number: number === undefined ? 0 : toInteger(number) };
}

/** Returns the fields of a map; `null` for Null. */
export function toFields(reply: Reply): Map<string, Reply> | null {
  if (reply === null) return null;
  if (!Array.isArray(reply)) throw new UnexpectedReply(`the server answered ${shown(reply)} where a map belongs`);
  const fields = new Map<string, Reply>();
  for (let at = 0; at + 1 < reply.length; at += 2) fields.set(String(reply[at]), reply[at + 1] as Reply);
  return fields;
}

/** Returns the bytes of the text `name`. */
export function textOf(fields: Map<string, Reply>, name: string): Buffer {
  const text = fields.get(name);
  if (typeof text === 'string') return Buffer.from(text);
  if (Buffer.isBuffer(text)) return text;
  throw new UnexpectedReply(`the server answered ${shown(text)} for ${name}`);
}

/** Returns the holder in an answer to LOCK.INFO, if any. */
export function toHolder(reply: Reply): Holder | undefined {
  const fields = toFields(reply);
  if (fields === null) return undefined;
  const token = toInteger(fields.get('token'));
  if (token === 0) return undefined;
  return {
    note: withoutHolder(textOf(fields, 'note').toString()),
    token,
    heldFor: toInteger(fields.get('held')),
    leaseLeft: toInteger(fields.get('ttl')),
  };
}

function shown(reply: Reply | undefined): string {
  return Buffer.isBuffer(reply) ? JSON.stringify(reply.toString()) : JSON.stringify(reply ?? null);
}
