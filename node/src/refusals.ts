import { ErrorReply } from 'redis';
import { Guarded, Misconfigured, NoQuorum, PalisadeError, ServerError, Unavailable } from './errors.js';

/** Converts an error of node-redis to one of this package. */
export function translated(error: unknown, address: string): PalisadeError {
  if (error instanceof PalisadeError) return error;
  const message = error instanceof Error ? error.message : String(error);
  if (!(error instanceof ErrorReply)) {
    // A socket that could not connect to any of several addresses has no message of its own.
    const why = message || (error as NodeJS.ErrnoException).code || 'no connection';
    return new Unavailable(`${address}: ${why}`, { cause: error });
  }
  const [code = '', second = ''] = message.split(' ', 2);
  switch (code) {
    case 'GUARDED':
      return new Guarded(message, Number.parseInt(second, 10) || 0);
    case 'NOQUORUM':
      return new NoQuorum(message);
    case 'MOVED':
    case 'ASK':
      return new Misconfigured(
        `${address} is one node of a cluster: reach it through a \`palisade agent\`, docs/agent.md (${message})`,
      );
    case 'NOAUTH':
      return new Misconfigured(
        `${address} wants a password: put it into the address, redis://user:password@host (${message})`,
      );
    case 'WRONGPASS':
      return new Misconfigured(`${address} refuses the user or the password of the address (${message})`);
    case 'NOPERM':
      return new Misconfigured(
        `the user may not do that on ${address}: docs/acl.md has the rules that locks need (${message})`,
      );
  }
  if (message.startsWith('ERR max number of clients reached')) {
    return new Unavailable(`${address}: ${message}`, { cause: error });
  }
  if (/^ERR unknown command/i.test(message)) {
    const advice = 'load the Palisade module there (docs/install.md), or use the address of a `palisade agent`';
    return new Misconfigured(`${address} does not know the commands of locks: ${advice} (${message})`);
  }
  return new ServerError(message, code);
}

/**
 * Returns the milliseconds to wait before a request with this error is sent again; `undefined` if that makes no sense.
 */
export function passesIn(error: unknown): number | undefined {
  if (!(error instanceof ServerError)) return undefined;
  if (error.code === 'NOTYET') return Number.parseInt(error.message.split(' ', 2)[1] ?? '', 10) || 10;
  return ['LOADING', 'TRYAGAIN', 'BUSY'].includes(error.code) ? 100 : undefined;
}

/** Returns whether an error does not pass by itself, so that somebody has to act. */
export function isLasting(error: unknown): boolean {
  if (error instanceof ServerError) return ['ERR', 'WRONGTYPE', 'OWNED', 'LOCKPANIC'].includes(error.code);
  return ![Unavailable, NoQuorum, Guarded].some((kind) => error instanceof kind);
}

/** Returns whether the error proves that the server has done nothing. */
export function isRefusal(error: unknown): boolean {
  return [Guarded, Misconfigured, ServerError].some((kind) => error instanceof kind);
}
