// Holds a lock, is suspended for longer than its lease, and reports what it finds when it resumes.

import { Palisade } from '../../src/index.js';

const TTL_MS = 1_500;

async function main(): Promise<void> {
  const [url = '', key = ''] = process.argv.slice(2);
  const locks = new Palisade(url);
  const lock = await locks.lock(key, { ttl: TTL_MS });
  // Checks as soon as it runs again. It may be suspended right after it has reported its token.
  let last = performance.now();
  // Neither a lock nor its loss keeps a program alive.
  const alive = setInterval(() => {}, 1_000);
  const look = async () => {
    const at = performance.now();
    const wasStopped = at - last > TTL_MS / 2;
    last = at;
    if (!wasStopped) return void setTimeout(look, 5);
    const first = lock.isValid;
    const { reason } = await lock.lost;
    process.send?.({ first, reason, released: await lock.release() });
    await locks.close();
    clearInterval(alive);
    process.disconnect();
  };
  setImmediate(look);
  process.send?.(lock.token);
}

main();
