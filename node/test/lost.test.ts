import assert from 'node:assert/strict';
import { after, before, it } from 'node:test';
import { Palisade } from '../src/index.js';
import { FaultyWay } from './faults.js';
import { onNode } from './server.js';
import { eventually, soon } from './waiting.js';

onNode('on a way that loses answers', (bench) => {
  let way: FaultyWay;
  let locks: Palisade;

  before(() => {
    way = new FaultyWay(bench);
    locks = new Palisade(way.url, { ttl: 60_000 });
  });

  after(async () => {
    await locks.close();
    way.end();
  });

  it('a grant is heard of all the same, and is one', async () => {
    const key = bench.key();
    way.loseAnswerTo('LOCK.ACQUIRE');
    const lock = await soon(locks.lock(key));
    assert.equal(way.lost, 1);
    assert.equal((await bench.outside.info(key))?.token, lock.token);
    assert.equal(await lock.release(), 'freed');
  });

  it('a grant that was waited for is heard of all the same', async () => {
    const key = bench.key();
    const first = await bench.locks().lock(key);
    way.loseAnswerTo('WAIT');
    const waits = locks.lock(key);
    await bench.outside.waiters(key, 1);
    await first.release();
    const lock = await soon(waits);
    assert.equal((await bench.outside.info(key))?.token, lock.token);
    assert.ok(lock.isValid);
    assert.equal(await lock.release(), 'freed');
  });

  it('an extension and a release are repeated', async () => {
    const key = bench.key();
    const lock = await locks.lock(key, { autoExtend: false });
    way.loseAnswerTo('LOCK.EXTEND');
    await soon(lock.extend());
    way.loseAnswerTo('LOCK.RELEASE');
    // The repetition is answered that nobody holds it: the first request released it, or it ended before.
    assert.equal(await soon(lock.release()), 'unknown');
    await bench.outside.free(key);
    way.loseAnswerTo('LOCK.RELEASE');
    assert.equal(await soon(locks.withLock(key, {}, () => 'done')), 'done');
  });

  it('a proclamation that the server did not answer is repeated', async () => {
    const election = locks.election(bench.key());
    way.hold('LOCK.NOTE');
    const before = way.heldForWord;
    let isOver = false;
    const campaigning = election.campaign('10.0.0.1', { wait: 60_000 }).finally(() => {
      isOver = true;
    });
    await eventually('it proclaims again', () => way.heldForWord === before + 2 || isOver);
    way.letGo();
    const leadership = await soon(campaigning);
    assert.equal((await election.leader())?.value.toString(), '10.0.0.1');
    await leadership.release();
  });

  it('a request that arrives after it was given up leaves nothing', async () => {
    const key = bench.key();
    for (const word of ['WAIT', 'LOCK.ACQUIRE']) {
      const first = word === 'WAIT' ? await bench.locks().lock(key) : undefined;
      way.hold(word);
      const abort = new AbortController();
      const taking = locks.lock(key, { signal: abort.signal });
      await eventually('the request is on its way', () => way.held > 0);
      abort.abort();
      await assert.rejects(taking, { name: 'AbortError' });
      await first?.release();
      // The server receives the release of a cancelled request before the request itself.
      const warm = await soon(bench.locks().lock(bench.key()));
      await warm.release();
      way.letGo();
      await bench.outside.free(key);
    }
  });
});
