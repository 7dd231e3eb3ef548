import assert from 'node:assert/strict';
import { it } from 'node:test';
import { DualLock, type OldLock, type Palisade } from '../src/index.js';
import { onNode } from './server.js';

onNode('the roll-out from an old lock', (bench) => {
  /** A lock as node-redlock has it on one node, which tries once. */
  async function oldLock(key: string): Promise<OldLock> {
    const value = Math.random().toString();
    const said = await bench.outside.say('SET', key, value, 'NX', 'PX', '30000');
    if (said === null) throw new Error('the old lock is held');
    return {
      async release() {
        const script = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";
        if ((await bench.outside.say('EVAL', script, '1', key, value)) !== 1) throw new Error('the old lock is lost');
      },
    };
  }

  const versions = {
    old: (_: Palisade, key: string) => oldLock(key),
    both: (locks: Palisade, key: string) =>
      DualLock.acquire(
        () => oldLock(key),
        () => locks.lock(`${key}:new`, { wait: 0 }),
      ),
    new: (locks: Palisade, key: string) => locks.lock(`${key}:new`, { wait: 0 }),
  };

  for (const [first, second, excludes] of [
    ['old', 'both', true],
    ['both', 'old', true],
    ['both', 'both', true],
    ['both', 'new', true],
    ['new', 'both', true],
    // The step of both was skipped.
    ['old', 'new', false],
    ['new', 'old', false],
  ] as const) {
    it(`${excludes ? 'keeps' : 'breaks'} exclusion between ${first} and ${second}`, async () => {
      const [locks, key] = [bench.locks(), bench.key()];
      const held = await versions[first](locks, key);
      const other = versions[second](locks, key);
      if (excludes) await assert.rejects(other, /held/);
      else await (await other).release();
      await held.release();
      // Nothing was left behind, in either lock.
      await (await versions.both(locks, key)).release();
    });
  }

  it('reports the loss of either', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const first = await versions.both(locks, key);
    await bench.outside.say('DEL', key);
    await assert.rejects(first.release(), /the old lock is lost/);
    const second = await versions.both(locks, key);
    await bench.outside.say('LOCK.BREAK', `${key}:new`);
    await assert.rejects(second.release(), { name: 'LockLost' });
    assert.equal(await bench.outside.say('EXISTS', key), 0);
  });
});
