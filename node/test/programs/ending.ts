// Programs that end by themselves: the package keeps none of them alive without a reason.

import { createClient } from 'redis';
import { Palisade } from '../../src/index.js';
import { FaultyWay } from '../faults.js';

const [url = '', key = '', step = ''] = process.argv.slice(2);

process.on('unhandledRejection', (error) => {
  console.log('unhandled:', error);
  process.exitCode = 3;
});

const steps: Record<string, (locks: Palisade) => Promise<void>> = {
  /** Holds a lock, and closes nothing. */
  async holds(locks) {
    await locks.lock(key, { ttl: 60_000 });
  },
  /** Awaits the loss of a lock. */
  async lost(locks) {
    const lock = await locks.lock(key, { ttl: 60_000 });
    lock.lost.then(() => console.log('lost'));
  },
  /** Leaves connections of earlier waits. */
  async idle(locks) {
    const lock = await locks.lock(key);
    const waits = locks.lock(key);
    setTimeout(() => lock.release(), 50);
    await (await waits).release();
  },
  async closes(locks) {
    await locks.lock(key);
    await locks.close();
  },
  /** Closes while the release of a lock that the server did not hear of is tried again. */
  async unreachable() {
    const way = new FaultyWay({ path: url.slice('unix://'.length) });
    const locks = new Palisade(way.url);
    const lock = await locks.lock(key, { ttl: 60_000 });
    way.end();
    await lock.release();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await locks.close();
  },
  async observed(locks) {
    for await (const leader of locks.election(key).observe()) {
      if (leader !== null) throw new Error('nobody leads here');
      break;
    }
  },
  async waits(locks) {
    await (await locks.lock(key)).release();
  },
  /** Cancels, loses and breaks locks, and ignores the outcomes. */
  async storm(locks) {
    const client = createClient({ socket: { path: url.slice('unix://'.length), tls: false, reconnectStrategy: 20 } });
    client.on('error', () => {});
    await client.connect();
    const quiet = (promise: Promise<unknown>) => void promise.catch(() => {});
    for (let round = 0; round < 10; round++) {
      for (let n = 0; n < 10; n++) {
        const abort = new AbortController();
        setTimeout(() => abort.abort(), Math.random() * 40);
        const onLost = () => {};
        quiet(locks.lock(`${key}:${n % 3}`, { ttl: 100, autoExtend: n % 2 === 0, signal: abort.signal, onLost }));
      }
      await new Promise((resolve) => setTimeout(resolve, 30));
      const [kill, ...rest] =
        round % 2 ? ['LOCK.BREAK', `${key}:0`] : ['CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes'];
      await client.sendCommand([kill as string, ...rest]);
    }
    await locks.close();
    client.destroy();
  },
};

async function main(): Promise<void> {
  await steps[step]?.(new Palisade(url));
  console.log(step);
}

main();
