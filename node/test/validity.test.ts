import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { type Lock, LockLost, type Loss, Palisade, Unavailable } from '../src/index.js';
import { Node, onEach, onNode } from './server.js';
import { busy, eventually, soon } from './waiting.js';

/** Resolves after this many milliseconds. */
const passed = (ms: number) => {
  const until = performance.now() + ms;
  return eventually(`${ms} ms pass`, () => performance.now() > until);
};

const isLoss = (reason: string) => (error: unknown) => error instanceof LockLost && error.loss.reason === reason;

onEach('a held lock', (bench) => {
  it('is extended in the background', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.lock(key, { ttl: 900 });
    await passed(2_000);
    assert.ok(lock.isValid);
    assert.equal(await locks.tryLock(key), null);
    assert.equal(await lock.release(), 'freed');
  });

  it('is extended when it is asked for', async () => {
    const lock = await bench.locks().lock(bench.key(), { ttl: 1_000, autoExtend: false });
    await lock.extend(5_000);
    assert.ok(lock.validFor > 4_000);
    await lock.extend();
    assert.ok(lock.validFor > 4_000, 'a lease that lasts longer stays');
    assert.equal(await lock.release(), 'freed');
    await assert.rejects(lock.extend(), LockLost);
  });

  it('is lost when it is taken away', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const told: Loss[] = [];
    const lock = await locks.lock(key, { ttl: 3_000, onLost: (loss) => void told.push(loss) });
    const aborted = once(lock.signal, 'abort');
    await bench.outside.say('LOCK.BREAK', key);
    assert.equal((await soon(lock.lost)).reason, 'taken-away');
    await soon(aborted);
    assert.ok(lock.signal.reason instanceof LockLost);
    assert.deepEqual(told, [await lock.lost]);
    assert.equal(lock.isValid, false);
    await assert.rejects(lock.extend(), LockLost);
    await assert.rejects(lock.reenter(), LockLost);
    assert.equal(await lock.release(), 'not-held');
  });

  it('is lost when nobody extends it, and at the end of maxHold', async () => {
    const [locks, one, two] = [bench.locks(), bench.key(), bench.key()];
    const left = await locks.lock(one, { ttl: 100, autoExtend: false });
    // A busy machine may wake this process late, by less than a third of this ttl.
    const held = await locks.lock(two, { ttl: 600, maxHold: 1_000 });
    assert.equal((await soon(left.lost)).reason, 'not-extended');
    assert.ok(held.isValid);
    assert.equal((await soon(held.lost)).reason, 'max-hold');
    await bench.outside.free(one);
    await bench.outside.free(two);
  });

  it('tells a block that it was lost meanwhile', async () => {
    const locks = bench.locks({ ttl: 100, autoExtend: false });
    const until = async (lock: Lock) => void (await soon(lock.lost));
    await assert.rejects(locks.withLock(bench.key(), {}, until), isLoss('not-extended'));
    const block = async () => {
      await using lock = await locks.lock(bench.key());
      await until(lock);
    };
    await assert.rejects(block(), LockLost);
    const stopped = locks.withLock(bench.key(), {}, async (lock) => {
      await until(lock);
      throw new Error('of the work');
    });
    await assert.rejects(stopped, /of the work/);
  });

  it('tells a block of a lock that somebody has broken', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const work = () => bench.outside.say('LOCK.BREAK', key);
    await assert.rejects(locks.withLock(key, {}, work), isLoss('taken-away'));
  });

  it('is not valid at the first look after the event loop was busy', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.lock(key, { ttl: 200 });
    let timers = 0;
    setTimeout(() => timers++, 1);
    busy(300);
    assert.equal(lock.isValid, false);
    assert.equal(timers, 0);
    assert.equal((await soon(lock.lost)).reason, 'asleep');
    assert.equal(lock.isValid, false);
    assert.equal(await lock.release(), 'not-held');
    await bench.outside.free(key);
  });

  it('stays as it was when the event loop was busy for less', async () => {
    const lock = await bench.locks().lock(bench.key(), { ttl: 3_000 });
    busy(1_500);
    assert.ok(lock.isValid);
    await eventually('it is extended', () => lock.validFor > 2_500);
    assert.equal(await lock.release(), 'freed');
  });

  it('goes on being extended whatever onLost of another does', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const warnings: string[] = [];
    const onWarning = (warning: Error) => void warnings.push(`${warning.name}: ${warning.message}`);
    process.on('warning', onWarning);
    const kept = await locks.lock(bench.key(), { ttl: 900 });
    const fails = () => {
      throw new Error('at once');
    };
    const one = await locks.lock(key, { ttl: 100, autoExtend: false, onLost: fails });
    const two = await locks.lock(bench.key(), {
      ttl: 100,
      autoExtend: false,
      onLost: () => Promise.reject(new Error('later')),
    });
    await soon(Promise.all([one.lost, two.lost]));
    await eventually('both are told of', () => warnings.length === 2);
    process.off('warning', onWarning);
    assert.deepEqual(warnings.sort(), [
      `PalisadeWarning: onLost of the lock ${one.key} failed: Error: at once`,
      `PalisadeWarning: onLost of the lock ${two.key} failed: Error: later`,
    ]);
    await passed(1_500);
    assert.equal(await kept.release(), 'freed');
  });
});

onNode('the connection of a held lock', (bench) => {
  const killAll = () => bench.outside.say('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');

  it('is replaced when it breaks, and the lock is extended', async () => {
    const lock = await bench.locks().lock(bench.key(), { ttl: 1_500 });
    for (let round = 0; round < 5; round++) {
      await killAll();
      await passed(400);
      assert.ok(lock.isValid);
    }
    assert.equal(await lock.release(), 'freed');
  });

  it('may break in the middle of an extension', async () => {
    const lock = await bench.locks().lock(bench.key(), { ttl: 5_000, autoExtend: false });
    for (let round = 0; round < 20; round++) {
      const extending = lock.extend().then(
        () => 'extended',
        (error) => error,
      );
      await killAll();
      const outcome = await soon(extending);
      assert.ok(outcome === 'extended' || outcome instanceof Unavailable, String(outcome));
      assert.ok(lock.isValid);
    }
    assert.equal(await lock.release(), 'freed');
  });
});

describe('a server that hangs', () => {
  it('loses its locks in time, and a release says so', async () => {
    using node = await new Node().start();
    await using locks = new Palisade(node.url, { answerWithin: 800 });
    const key = 'orders:42';
    const lock = await locks.lock(key, { ttl: 2_000 });
    node.signal('SIGSTOP');
    await assert.rejects(lock.extend(), (error: Error) => {
      assert.ok(error instanceof Unavailable);
      assert.match(error.message, /stays valid for \d+ ms: unix:.* did not answer within 800 ms/);
      return true;
    });
    assert.equal((await soon(lock.lost)).reason, 'not-extended-in-time');
    const other = locks.tryLock(key);
    await assert.rejects(other, Unavailable);
    node.signal('SIGCONT');
    assert.equal(await lock.release(), 'not-held');
    await node.outside.free(key);
    const next = await locks.lock(key);
    node.signal('SIGSTOP');
    assert.equal(await next.release(), 'unknown');
    node.signal('SIGCONT');
    await node.outside.free(key);
  });

  it('ends no wait before its time, and holds none up', async () => {
    using node = await new Node().start();
    await using locks = new Palisade(node.url, { answerWithin: 300 });
    // Its connection is kept for the next wait.
    const first = await locks.lock('k');
    const second = locks.lock('k');
    await node.outside.waiters('k', 1);
    await first.release();
    await (await soon(second)).release();
    node.signal('SIGSTOP');
    await assert.rejects(soon(locks.lock('k', { wait: 500 })), (error: Error) => {
      assert.match(error.message, /^k: unix:.* did not answer within \d+ ms/);
      return true;
    });
    const waits = locks.lock('k', { wait: 60_000 });
    await passed(1_000);
    node.signal('SIGCONT');
    assert.equal(await (await soon(waits)).release(), 'freed');
  });

  it('is not needed at the end of work that was done under a lock', async () => {
    using node = await new Node().start();
    await using locks = new Palisade(node.url, { ttl: 60_000 });
    const warnings: string[] = [];
    const onWarning = (warning: Error) => void warnings.push(warning.message);
    process.on('warning', onWarning);
    assert.equal(await locks.withLock('k', {}, () => node.kill().then(() => 'done')), 'done');
    await eventually('it is told of', () => warnings.length === 1);
    process.off('warning', onWarning);
    assert.match(warnings[0] ?? '', /^k: whether the lock was given back is not known: unix:/);
  });
});

onNode('a process that is stopped for longer than its lease', (bench) => {
  it('finds its lock not valid at the first look', async (test) => {
    const key = bench.key();
    const child = fork(join(__dirname, 'programs', 'holder.js'), [bench.url, key]);
    test.after(() => child.kill('SIGKILL'));
    const said: unknown[] = [];
    child.on('message', (message) => said.push(message));
    await eventually('it holds the lock', () => said.length === 1);
    child.kill('SIGSTOP');
    await bench.outside.free(key);
    const next = await bench.locks().lock(key);
    assert.ok(next.token > (said[0] as number));
    child.kill('SIGCONT');
    await eventually('it has looked', () => said.length === 2);
    assert.deepEqual(said[1], { first: false, reason: 'asleep', released: 'not-held' });
    assert.ok(next.isValid);
    assert.equal(await next.release(), 'freed', 'the one that woke up took nothing away');
  });
});
