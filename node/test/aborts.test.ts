import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Lock, NotAcquired, Palisade, Unavailable } from '../src/index.js';
import { freePort, Node, onEach, onNode } from './server.js';
import { eventually, soon } from './waiting.js';

onEach('a wait that is aborted', (bench) => {
  it('rejects at once with the reason, and leaves the queue', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.lock(key);
    const abort = new AbortController();
    const waits = locks.lock(key, { signal: abort.signal });
    await bench.outside.waiters(key, 1);
    const reason = new Error('no longer wanted');
    abort.abort(reason);
    await assert.rejects(waits, reason);
    await bench.outside.waiters(key, 0);
    assert.equal(await lock.release(), 'freed');
    await bench.outside.free(key);
    assert.equal(getEventListeners(abort.signal, 'abort').length, 0);
  });

  it('was aborted before it began', async () => {
    const locks = bench.locks();
    await assert.rejects(locks.lock(bench.key(), { signal: AbortSignal.abort() }), { name: 'AbortError' });
    await assert.rejects(locks.tryLock(bench.key(), { signal: AbortSignal.abort() }), { name: 'AbortError' });
  });

  it('leaves nothing on a signal that lives for long', async () => {
    const [locks, key, { signal }] = [bench.locks(), bench.key(), new AbortController()];
    for (let round = 0; round < 30; round++) await (await locks.lock(key, { signal })).release();
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  });

  it('says nothing to a lock that is held', async () => {
    const abort = new AbortController();
    const lock = await bench.locks().lock(bench.key(), { signal: abort.signal });
    abort.abort();
    assert.ok(lock.isValid && !lock.signal.aborted);
    assert.equal(await lock.release(), 'freed');
  });

  it('leaves nothing behind, whenever it is aborted', async () => {
    const key = bench.key();
    const clients = [bench.locks(), bench.locks(), bench.locks()];
    let granted = 0;
    let given = 0;
    let inside = 0;
    const one = async (n: number) => {
      const locks = clients[n % clients.length] as Palisade;
      const abort = new AbortController();
      const wait = Math.random() < 0.2 ? { wait: Math.floor(Math.random() * 20) } : {};
      const taking = locks.lock(key, { ...wait, signal: abort.signal });
      // Aborts come in every phase: in the same step, in the next ones, on the way, in the queue, with the grant.
      const when = Math.random();
      if (when < 0.1) abort.abort();
      else if (when < 0.2) setImmediate(() => abort.abort());
      else if (when < 0.8) setTimeout(() => abort.abort(), Math.random() * 60);
      try {
        const lock = await taking;
        granted += 1;
        assert.equal(++inside, 1);
        if (Math.random() < 0.3) await sleep(1);
        inside -= 1;
        assert.equal(await lock.release(), 'freed');
      } catch (error) {
        if (!abort.signal.aborted && !(error instanceof NotAcquired)) throw error;
        given += 1;
      }
    };
    for (let round = 0; round < 12; round++) {
      await soon(Promise.all(Array.from({ length: 24 }, (_, n) => one(n))));
      await bench.outside.free(key);
    }
    assert.ok(granted > 10 && given > 10, `${granted} were granted, ${given} given up`);
    const began = performance.now();
    await (await bench.locks().lock(key)).release();
    assert.ok(performance.now() - began < 5_000, 'no lease had to run out');
  });

  it('leaves nothing behind when it is given up with the grant', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    for (let round = 0; round < 30; round++) {
      const abort = new AbortController();
      const lock = await locks.lock(key);
      const waits = locks.lock(key, { signal: abort.signal }).catch(() => null);
      await bench.outside.waiters(key, 1);
      const released = lock.release();
      if (round % 3 === 0) abort.abort();
      else setImmediate(() => abort.abort());
      await released;
      const taken = await waits;
      if (taken instanceof Lock) await taken.release();
      await soon(bench.outside.free(key));
    }
  });
});

onNode('a wait whose connection breaks', (bench) => {
  it('goes on with another, and is granted', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await bench.locks().lock(key, { ttl: 30_000 });
    const waits = locks.lock(key);
    for (let round = 0; round < 3; round++) {
      await bench.outside.waiters(key, 1);
      await bench.outside.say('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    }
    await bench.outside.waiters(key, 1);
    assert.equal(await lock.release(), 'freed');
    const granted = await soon(waits);
    assert.ok(granted.isValid && granted.token > lock.token);
    assert.equal(await granted.release(), 'freed');
    await bench.outside.free(key);
  });

  it('leaves nothing behind when it is aborted just then', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    for (let round = 0; round < 20; round++) {
      const lock = await bench.locks().lock(key);
      const abort = new AbortController();
      const waits = locks.lock(key, { signal: abort.signal }).catch(() => null);
      await bench.outside.waiters(key, 1);
      const killed = bench.outside.say('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      if (round % 2 === 0) setImmediate(() => abort.abort());
      await killed;
      abort.abort();
      assert.equal(await soon(waits), null);
      await lock.release().catch(() => {});
      await bench.outside.free(key);
    }
  });
});

/** Resolves after this many milliseconds. */
const passed = (ms: number) => {
  const until = performance.now() + ms;
  return eventually(`${ms} ms pass`, () => performance.now() > until);
};

describe('a server that is not there', () => {
  it('is told of at once', async () => {
    const locks = new Palisade(`redis://user:secret@127.0.0.1:${await freePort()}`);
    await assert.rejects(soon(locks.lock('k', { wait: 0 })), (error: Error) => {
      assert.ok(error instanceof Unavailable, String(error));
      assert.match(error.message, /^k: redis:\/\/127\.0\.0\.1:\d+: .*ECONNREFUSED/);
      return true;
    });
    await assert.rejects(soon(new Palisade('unix:///nowhere').tryLock('k')), Unavailable);
    await locks.close();
  });

  it('is not sent later what was asked for meanwhile', async () => {
    using node = await new Node().start();
    await using locks = new Palisade(node.url);
    await (await locks.lock('warm')).release();
    await node.kill();
    await assert.rejects(soon(locks.lock('late', { ttl: 60_000, wait: 0 })), Unavailable);
    await node.restart();
    await node.lift();
    await (await locks.lock('later')).release();
    assert.deepEqual(await node.outside.users('late'), { holders: 0, waiters: 0 });
    const counts = String(await node.outside.say('INFO', 'commandstats'));
    assert.match(counts, /cmdstat_lock\.acquire:calls=1,/i, 'it has heard of one request since, the last');
  });

  it('is waited for until the wait ends', async () => {
    using node = await new Node().start();
    await using locks = new Palisade(node.url);
    await node.kill();
    await assert.rejects(soon(locks.lock('k', { wait: 300 })), (error: Error) => {
      assert.ok(error instanceof Unavailable && error.message.startsWith('k: unix:'), String(error));
      return true;
    });
    const waits = locks.lock('k', { wait: 60_000 });
    await passed(500);
    await node.restart();
    await node.lift();
    assert.equal(await (await soon(waits)).release(), 'freed');
  });

  it('is waited for by who was in its queue when it went', async () => {
    using node = await new Node().start();
    await using locks = new Palisade(node.url);
    const first = await locks.lock('k', { ttl: 60_000 });
    const waits = locks.lock('k');
    await node.outside.waiters('k', 1);
    await node.kill();
    await node.restart();
    await node.lift();
    const second = await soon(waits);
    assert.ok(second.isValid && second.token > first.token);
    assert.equal(await second.release(), 'freed');
  });

  it('is told, when it runs on, of what was given up meanwhile', async () => {
    using node = await new Node().start();
    await using locks = new Palisade(node.url, { ttl: 60_000 });
    await (await locks.lock('warm')).release();
    node.signal('SIGSTOP');
    const abort = new AbortController();
    const taking = locks.lock('k', { signal: abort.signal });
    setImmediate(() => abort.abort());
    await assert.rejects(soon(taking), { name: 'AbortError' });
    node.signal('SIGCONT');
    await node.outside.free('k');
    await (await soon(locks.lock('k'))).release();
  });
});
