import { RedisClient } from 'redis';
import type { Connecting } from './connection.js';
import { BadArgument } from './errors.js';
import { checkNames } from './options.js';

/** A client of node-redis, of which the address, the user and other connection options are used. */
export interface ExistingClient {
  readonly options?: object | undefined;
  duplicate(...overrides: never[]): unknown;
}

const CONNECTING_OPTIONS = ['url', 'socket', 'username', 'password', 'credentialsProvider', 'database', 'name', 'RESP'];

const THROUGH_AN_AGENT = 'through a `palisade agent` that runs beside the program (docs/agent.md)';
const NOT_ONE_SERVER = `the address must be of one server: reach a cluster, or a master behind Sentinel, ${THROUGH_AN_AGENT}`;

const NEITHER = 'the address must be a URL, options or a client';

/** Returns the connection options for `address`. */
export function optionsOf(address: string | Connecting | ExistingClient): Connecting {
  if (areSeveral(address)) {
    throw new BadArgument(
      `several addresses were given, and this takes one: reach a quorum of nodes ${THROUGH_AN_AGENT}`,
    );
  }
  if (typeof address === 'string') return ofUrl(address);
  if (typeof address !== 'object' || address === null) throw new BadArgument(NEITHER);
  const from = 'duplicate' in address ? ofClient(address) : ofOptions(address);
  const { url, socket, username, password, credentialsProvider, database, RESP, name } = from;
  const all = { url, socket, username, password, credentialsProvider, database, RESP, name };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

function areSeveral(address: unknown): boolean {
  if (Array.isArray(address)) return true;
  if (typeof address !== 'string') return false;
  // A comma may be in a password, or in a path. A list of hosts may lack the scheme.
  const hosts = /^(?:rediss?:\/\/(?:.*@)?|(?:[^/]*@)?)([^/?]*)/s.exec(address)?.[1] ?? '';
  return hosts.includes(',') || /[,;\s]\s*(rediss?|unix):\/\//.test(address);
}

function ofUrl(url: string): Connecting {
  if (/^rediss?\+(cluster|sentinel):\/\//.test(url)) throw new BadArgument(NOT_ONE_SERVER);
  if (!/^(rediss?|unix):\/\//.test(url)) {
    throw new BadArgument('the address must begin with redis://, rediss:// or unix://');
  }
  try {
    RedisClient.parseURL(url);
  } catch {
    // The address is not shown, since it contains the password.
    throw new BadArgument('the address cannot be read: redis://user:password@host:port, or unix:///path');
  }
  return { url };
}

function ofClient({ options }: ExistingClient): Connecting {
  // Clients of clusters and Sentinels have none.
  if (typeof options !== 'object' || options === null) throw new BadArgument(NOT_ONE_SERVER);
  // Other options belong to that client alone: its cache, its pings, the prefix of its keys.
  return options as Connecting;
}

function ofOptions(options: object): Connecting {
  if (Object.getPrototypeOf(options) !== Object.prototype && Object.getPrototypeOf(options) !== null) {
    throw new BadArgument(NEITHER);
  }
  checkNames(options, CONNECTING_OPTIONS, ' of an address');
  return options as Connecting;
}

/** Returns the address in `options`, without passwords. */
export function addressOf({ url, socket }: Connecting): string {
  if (url) return url.replace(/\/\/[^/@]*@/, '//');
  const at = (socket ?? {}) as { path?: string; host?: string; port?: number };
  return at.path ? `unix://${at.path}` : `redis://${at.host ?? 'localhost'}:${at.port ?? 6379}`;
}
