import assert from 'node:assert/strict';
import { it, mock } from 'node:test';
import { onNode } from './server.js';
import { soon } from './waiting.js';

onNode('a turn', (bench) => {
  it('is not lost by a wait that is long for the ttl', async () => {
    const [locks, key] = [bench.locks({ ttl: 60_000 }), bench.key()];
    await bench.outside.say('LOCK.ACQUIRE', key, 'before', '60000');
    const first = locks.lock(key);
    await bench.outside.waiters(key, 1);
    const second = locks.lock(key);
    await bench.outside.waiters(key, 2);
    // After a day the clocks may be apart by more than the whole ttl.
    const clock = performance.now.bind(performance);
    const later = mock.method(performance, 'now', () => clock() + 864_000);
    try {
      await bench.outside.say('LOCK.RELEASE', key, 'before');
      const winner = await soon(Promise.race([first.then(() => 'first'), second.then(() => 'second')]));
      assert.equal(winner, 'first', 'who waited first has its turn first');
      await (await first).release();
      await (await soon(second)).release();
    } finally {
      later.mock.restore();
    }
  });
});
