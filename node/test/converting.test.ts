import assert from 'node:assert/strict';
import { it } from 'node:test';
import { onEach, onNode } from './server.js';

onEach('a conversion', (bench) => {
  it('makes a writer a reader, and lets waiting readers in', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.writeLock(key);
    const token = lock.token;
    const reading = locks.readLock(key);
    await bench.outside.waiters(key, 1);
    await lock.downgrade();
    const reader = await reading;
    assert.ok(lock.token >= token);
    assert.equal((await bench.outside.users(key)).holders, 2);
    await lock.extend();
    assert.equal(await reader.release(), 'freed');
    assert.equal(await lock.release(), 'freed');
    await assert.rejects(lock.downgrade(), { name: 'LockLost' });
  });

  it('finds that the lock is lost', async () => {
    const key = bench.key();
    const lock = await bench.locks().writeLock(key);
    await bench.outside.say('LOCK.BREAK', key);
    await assert.rejects(lock.downgrade(), { name: 'LockLost' });
    assert.equal((await lock.lost).reason, 'taken-away');
  });
});

onNode('a conversion on a node', (bench) => {
  it('makes a reader a writer if it is alone', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.readLock(key);
    const other = await locks.readLock(key);
    const token = other.token;
    await assert.rejects(lock.upgrade(), { name: 'NotAcquired', reason: 'held' });
    assert.equal(await other.release(), 'freed');
    await lock.upgrade();
    assert.ok(lock.token > token);
    assert.equal(await locks.tryLock(key), null);
    await bench.outside.say('LOCK.BREAK', key);
    await assert.rejects(lock.upgrade(), { name: 'LockLost' });
  });

  it('is refused of a permit', async () => {
    const permit = await bench.locks().semaphore(bench.key(), 2).acquire();
    await assert.rejects(permit.downgrade(), { name: 'BadArgument' });
    await assert.rejects(permit.upgrade(), { name: 'BadArgument' });
    assert.equal(await permit.release(), 'freed');
  });
});
