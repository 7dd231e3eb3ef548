import { ErrorReply } from 'redis';
import type { Word } from './connection.js';
import { BadArgument, Fenced, LockLost, Misconfigured, named } from './errors.js';
import type { Held } from './held.js';
import { lossOf } from './loss.js';
import { checkedKey, checkNames, type Key, milliseconds } from './options.js';

/** How a lock's token is checked where the data is: `gate`, or `held`. */
export interface GateOptions {
  /** What remembers the tokens on the data's server: one gate for all that the lock protects. */
  gate?: Key | undefined;
  /** In place of a gate: the lock is on the data's server, and must be held. */
  held?: boolean | undefined;
  /** The gate is forgotten this many milliseconds after its last passing. */
  keep?: number | undefined;
}

/** The part of a client of node-redis that sends commands. */
export interface SendingClient {
  sendCommand(args: readonly (string | Buffer)[], options?: never): Promise<unknown>;
}

/** What would not pass the gate. */
type Ungated = 'multi' | 'MULTI' | 'legacy' | 'duplicate' | 'monitor' | 'MONITOR' | 'connect' | 'close' | 'destroy';

/** A client of node-redis whose commands pass a gate: without transactions and subscriptions, which would not. */
export type FencedClient<C> = Omit<C, Ungated | 'sendCommand'> & {
  sendCommand(args: readonly (string | Buffer)[]): Promise<unknown>;
};

const KEEP_MOST_MS = 366 * 86_400_000;
const NOT_IN_MULTI =
  'a refusal inside of MULTI does not stop the commands that follow: send one command after the other, or a script';

interface Parsed {
  readonly redisArgs: readonly (string | Buffer)[];
  readonly preserve: unknown;
}
type Transform = (reply: unknown, preserve: unknown, typeMapping: unknown) => unknown;

/** Returns `client` with all commands sent through a gate. `check` throws if the lock is known to be lost. @internal */
export function fenced<C extends SendingClient>(
  client: C,
  held: Held,
  options: GateOptions,
  check: () => void,
): FencedClient<C> {
  const { gate, more } = checkedGate(held, options);
  const send = async (args: readonly (string | Buffer)[], sending?: unknown): Promise<unknown> => {
    check();
    const words = ['LOCK.GATE', gate, String(held.token), ...held.gateMode, ...more, 'COMMAND', ...args];
    return client.sendCommand(words as Buffer[], sending as never).catch((error: unknown) => {
      throw named(refusal(error, held), held.acquisition.key);
    });
  };
  // The methods of the client run on this object. It has none of the client's private fields, so what does not go
  // through here fails, and reaches no server.
  const gated = Object.create(client);
  const own = {
    _self: gated,
    _keyPrefix: (client as { _keyPrefix?: unknown })._keyPrefix,
    sendCommand: send,
    async _executeCommand(_: unknown, parsed: Parsed, sending?: { typeMapping?: unknown }, transform?: Transform) {
      const reply = await send(parsed.redisArgs, sending);
      return transform ? transform(reply, parsed.preserve, sending?.typeMapping) : reply;
    },
    multi: refuseMulti,
    MULTI: refuseMulti,
  };
  return Object.defineProperties(gated, Object.getOwnPropertyDescriptors(own));
}

function refuseMulti(): never {
  throw new BadArgument(NOT_IN_MULTI);
}

function checkedGate(held: Held, options: GateOptions): { gate: Buffer; more: Word[] } {
  checkNames(options, ['gate', 'held', 'keep'], ' of a gate');
  const isHeld = options.held ?? false;
  if (isHeld === (options.gate !== undefined)) {
    throw new BadArgument("name the gate ({ gate: 'invoices' }), or ask the lock of the same server ({ held: true })");
  }
  if (isHeld && options.keep !== undefined) throw new BadArgument('held remembers nothing: leave keep out');
  const keep = options.keep === undefined ? [] : ['KEEP', String(milliseconds('keep', options.keep, 1, KEEP_MOST_MS))];
  if (isHeld) return { gate: held.acquisition.key, more: ['HELD'] };
  return { gate: checkedKey(options.gate), more: keep };
}

/** Returns a refusal of the gate as an error of this package, and other errors as they are. */
function refusal(error: unknown, held: Held): unknown {
  if (!(error instanceof ErrorReply)) return error;
  const [code, seen = ''] = error.message.split(' ', 2);
  if (code === 'FENCED' || code === 'NOTHELD') held.checkSoon();
  if (code === 'FENCED') return new Fenced(held.token, Number(seen));
  if (code === 'NOTHELD') return new LockLost(lossOf('taken-away'));
  if (/^ERR unknown command/i.test(error.message)) {
    const advice = 'load the Palisade module there (docs/install.md)';
    return new Misconfigured(`the data's server does not know LOCK.GATE: ${advice} (${error.message})`);
  }
  return error;
}
