import assert from 'node:assert/strict';
import { it } from 'node:test';
import { onEach, onNode } from './server.js';
import { eventually } from './waiting.js';

onEach('a lock that is handed over', (bench) => {
  it('is extended and released by the one who adopts it', async () => {
    const [enqueuer, worker, key] = [bench.locks(), bench.locks(), bench.key()];
    const lock = await enqueuer.lock(key, { ttl: 10_000 });
    const { owner, token } = await lock.handOver();
    assert.equal(lock.isValid, false);
    await assert.rejects(lock.extend(), { name: 'LockLost' });
    // The end of the one who enqueues leaves the lock to the worker, which extends it.
    assert.equal(await lock.release(), 'freed');
    await enqueuer.close();
    const adopted = await worker.adopt(key, owner, token, { ttl: 2_000 });
    assert.ok(adopted.token >= token);
    const until = performance.now() + adopted.validFor;
    await eventually('it is extended', () => performance.now() + adopted.validFor > until + 100);
    assert.equal(await adopted.release(), 'freed');
    await bench.outside.free(key);
    await assert.rejects(worker.adopt(key, owner, token), { name: 'LockLost' });
  });

  it('is free after its lease if nobody adopts it', async () => {
    const key = bench.key();
    await (await bench.locks().lock(key, { ttl: 2_000 })).handOver();
    assert.equal((await bench.outside.users(key)).holders, 1);
    await bench.outside.free(key);
  });
});

onNode('adoption', (bench) => {
  it('is refused with another token, and with wrong arguments', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.lock(key);
    await assert.rejects(locks.adopt(key, lock.owner, lock.token + 1), { name: 'LockLost', message: /its token is/ });
    await assert.rejects(locks.adopt(key, '', 1), { name: 'BadArgument' });
    await assert.rejects(locks.adopt(key, lock.owner, 0), { name: 'BadArgument' });
    const waiting = { wait: 1 } as object;
    await assert.rejects(locks.adopt(key, lock.owner, lock.token, waiting), { name: 'BadArgument' });
    assert.equal(await lock.release(), 'freed');
  });

  it('is of exclusive locks alone', async () => {
    const locks = bench.locks();
    for (const lock of [await locks.readLock(bench.key()), await locks.semaphore(bench.key(), 2).acquire()]) {
      await assert.rejects(lock.handOver(), { name: 'BadArgument' });
      assert.equal(await lock.release(), 'freed');
    }
  });
});
