// Holds a lock, is stopped for longer than its lease, and tells what it found when it went on.

import { Palisade } from '../../src/index.js';

const TTL_MS = 1_000;

async function main(): Promise<void> {
  const [url = '', key = ''] = process.argv.slice(2);
  const locks = new Palisade(url);
  const lock = await locks.lock(key, { ttl: TTL_MS });
  process.send?.(lock.token);
  // Looks as soon as it runs again, before any timer and any answer.
  let last = performance.now();
  const look = async () => {
    const at = performance.now();
    const wasStopped = at - last > 0.9 * TTL_MS;
    last = at;
    if (!wasStopped) return void setImmediate(look);
    const first = lock.isValid;
    const { reason } = await lock.lost;
    process.send?.({ first, reason, wasHeld: await lock.release() });
    await locks.close();
    process.disconnect();
  };
  setImmediate(look);
}

main();
