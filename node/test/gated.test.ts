import assert from 'node:assert/strict';
import { after, before, it } from 'node:test';
import { createClient, RESP_TYPES } from 'redis';
import { BadArgument, Fenced, LockLost, Misconfigured } from '../src/index.js';
import { Node, onNode } from './server.js';
import { eventually } from './waiting.js';

onNode('a gate', (bench) => {
  let data: ReturnType<typeof connected>;
  before(async () => {
    data = connected(bench.path);
    await data.connect();
  });
  after(() => data.destroy());

  it('lets commands pass until a newer holder has come', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const [gate, record] = [`${key}:gate`, `${key}:record`];
    const late = await locks.lock(key);
    const writes = late.fenced(data, { gate });
    assert.equal(await writes.hSet(record, { state: 'open', price: '3' }), 2);
    assert.deepEqual({ ...(await writes.hGetAll(record)) }, { state: 'open', price: '3' });
    const bytes = writes.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
    assert.deepEqual(await bytes.hGet(record, 'state'), Buffer.from('open'));
    assert.equal(await writes.sendCommand(['HGET', record, 'price']), '3');
    await assert.rejects(writes.get(record), /^Error: WRONGTYPE/);
    const seen = late.token + 5;
    await bench.outside.say('LOCK.GATE', gate, String(seen));
    for (const write of [() => writes.hSet(record, 'state', 'late'), () => bytes.hSet(record, 'state', 'late')]) {
      await assert.rejects(write(), (error: Fenced) => {
        assert.ok(error instanceof Fenced);
        assert.deepEqual([error.token, error.seen], [late.token, seen]);
        assert.equal(error.message, `${key}: the token ${late.token} is older than ${seen}`);
        return true;
      });
    }
    assert.equal(await bench.outside.say('HGET', record, 'state'), 'open');
    await late.release();
  });

  it('is reached by nothing of a holder that knows its loss', async () => {
    const key = bench.key();
    const lock = await bench.locks().lock(key);
    const writes = lock.fenced(data, { gate: `${key}:gate` });
    await lock.release();
    await assert.rejects(writes.set(`${key}:record`, 'late'), LockLost);
    assert.equal(await bench.outside.say('EXISTS', `${key}:gate`, `${key}:record`), 0);
  });

  it('makes a refused lock ask whether it is held', async () => {
    const key = bench.key();
    const lock = await bench.locks().lock(key, { ttl: 60_000 });
    await bench.outside.say('LOCK.BREAK', key);
    await bench.outside.say('LOCK.GATE', `${key}:gate`, String(lock.token + 1));
    await assert.rejects(lock.fenced(data, { gate: `${key}:gate` }).set(`${key}:record`, 'late'), Fenced);
    assert.equal((await lock.lost).reason, 'taken-away');
  });

  it('is shown readers and permits as such', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const readers = [await locks.readLock(key), await locks.readLock(key)];
    for (const reader of readers.toReversed()) await reader.fenced(data, { gate: `${key}:gate` }).get('x');
    const seats = locks.semaphore(`${key}:seats`, 2);
    const permits = [await seats.acquire(), await seats.acquire()];
    for (const permit of permits.toReversed()) await permit.fenced(data, { gate: `${key}:seats:gate` }).get('x');
    const only = await locks.semaphore(`${key}:only`, 1).acquire();
    await only.fenced(data, { held: true }).get('x');
    for (const lock of [...readers, ...permits, only]) await lock.release();
  });

  it('can be the lock itself', async () => {
    const key = bench.key();
    const lock = await bench.locks().lock(key, { ttl: 60_000 });
    const writes = lock.fenced(data, { held: true });
    await writes.set(`${key}:record`, 'open');
    await bench.outside.say('LOCK.BREAK', key);
    await assert.rejects(writes.set(`${key}:record`, 'late'), { name: 'LockLost' });
    assert.equal(await bench.outside.say('GET', `${key}:record`), 'open');
    await eventually('the lock is lost', () => !lock.isValid);
  });

  it('is forgotten after what was kept', async () => {
    const key = bench.key();
    const lock = await bench.locks().lock(key);
    await lock.fenced(data, { gate: `${key}:gate`, keep: 90_000 }).set(`${key}:record`, 'open');
    const keep = Number((await bench.outside.info(`${key}:gate`))?.keep);
    assert.ok(keep > 80_000 && keep < 102_000, String(keep));
    await lock.release();
  });

  it('is passed around by nothing', async () => {
    const key = bench.key();
    const lock = await bench.locks().lock(key);
    const writes = lock.fenced(data, { gate: `${key}:gate` });
    const all = writes as unknown as typeof data;
    assert.throws(() => all.multi(), BadArgument);
    assert.throws(() => all.MULTI(), BadArgument);
    for (const around of [
      () => all.subscribe('x', () => {}),
      () => all.select(1),
      () => all.monitor(() => {}),
      () => all._executePipeline([{ args: ['SET', 'around', '1'] } as never]),
      () => all.duplicate().connect(),
    ]) {
      await assert.rejects(async () => around());
    }
    assert.equal(await bench.outside.say('EXISTS', 'around'), 0);
    await lock.release();
  });

  it('refuses what cannot be meant', async () => {
    const key = bench.key();
    const lock = await bench.locks().lock(key);
    for (const wrong of [
      {},
      { gate: 'g', held: true },
      { held: true, keep: 90_000 },
      { gate: 'g', keep: 0.5 },
      { name: 'g' },
    ]) {
      assert.throws(() => lock.fenced(data, wrong), BadArgument);
    }
    using bare = await new Node().start([], { module: false });
    const elsewhere = connected(bare.path);
    await elsewhere.connect();
    const writes = lock.fenced(elsewhere, { gate: 'g' });
    await assert.rejects(
      writes.set('x', '1'),
      (error) => error instanceof Misconfigured && /load the Palisade/.test(error.message),
    );
    elsewhere.destroy();
    await lock.release();
  });
});

function connected(path: string) {
  return createClient({ socket: { path, tls: false } });
}
