import assert from 'node:assert/strict';
import { it } from 'node:test';
import { Guarded, type Leader, LockLost } from '../src/index.js';
import { onEach, onNode } from './server.js';
import { soon } from './waiting.js';

/** Returns the next report to an observer, as text. */
async function next(leaders: AsyncIterator<Leader | null>): Promise<string> {
  const { value, done } = await soon(leaders.next());
  if (done) return 'done';
  return value ? `${value.sequence}: ${value.value}` : 'nobody';
}

onEach('an election', (bench) => {
  it('has one leader, who proclaims and resigns', async () => {
    const election = bench.locks().election(bench.key());
    assert.equal(await election.leader(), null);
    const leaders = election.observe();
    assert.equal(await next(leaders), 'nobody');
    const first = await election.campaign('10.0.0.1');
    assert.equal(await next(leaders), '1: 10.0.0.1');
    const leader = await election.leader();
    assert.deepEqual(leader, { term: first.term, sequence: 1, value: Buffer.from('10.0.0.1') });
    await first.proclaim('10.0.0.1:80');
    assert.equal(first.sequence, 2);
    assert.equal(await next(leaders), '2: 10.0.0.1:80');
    await first.proclaim('');
    assert.equal(await next(leaders), '3: ');

    const other = bench.locks().election((first.key as Buffer).toString());
    const campaigning = other.campaign(Buffer.from([0xff, 0x20, 0x00]));
    await bench.outside.waiters(first.key.toString(), 1);
    assert.equal(await first.resign(), 'freed');
    const second = await soon(campaigning);
    assert.ok(second.term > first.term);
    assert.deepEqual((await election.leader())?.value, Buffer.from([0xff, 0x20, 0x00]));
    await assert.rejects(first.proclaim('late'), LockLost);
    await second.resign();
    let told = '';
    while (told !== 'nobody') told = await next(leaders);
    await leaders.return();
    assert.equal(await election.leader(), null);
  });

  it('does not take one for a leader who holds the lock only', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.lock(key, { note: 'term 5 me' });
    assert.equal(await locks.election(key).leader(), null);
    await lock.release();
  });

  it('numbers what a leader proclaims, also where it was re-entered', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const leader = await locks.election(key).campaign('1');
    const inner = await leader.reenter();
    await inner.proclaim('2');
    await bench.outside.say('LOCK.NOTE', key, leader.owner, 'somebody else', 'SEQ', '7');
    await leader.proclaim('8');
    const told = await locks.election(key).leader();
    assert.deepEqual([told?.term, told?.sequence, told?.value.toString()], [leader.term, 8, '8']);
    assert.deepEqual([leader.sequence, inner.sequence, inner.term], [8, 8, leader.term]);
    await inner.release();
    assert.ok(leader.isValid);
    await leader.resign();
  });

  it('tells a leader that was broken', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const leader = await locks.election(key).campaign('a', { ttl: 3_000 });
    await bench.outside.say('LOCK.BREAK', key);
    assert.equal((await soon(leader.lost)).reason, 'taken-away');
    await assert.rejects(leader.proclaim('b'), LockLost);
  });

  it('is observed until that is aborted, left or closed', async () => {
    const [locks, key, abort] = [bench.locks(), bench.key(), new AbortController()];
    const aborted = locks.election(key).observe({ signal: abort.signal });
    assert.equal(await next(aborted), 'nobody');
    const waits = aborted.next();
    abort.abort(new Error('no longer wanted'));
    await assert.rejects(soon(waits), /no longer wanted/);
    for await (const leader of locks.election(key).observe()) {
      assert.equal(leader, null);
      break;
    }
    const closed = locks.election(key).observe();
    assert.equal(await next(closed), 'nobody');
    const last = closed.next();
    await locks.close();
    assert.deepEqual(await soon(last), { value: undefined, done: true });
  });

  it('gives up a campaign that is not won in time', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.lock(key);
    await assert.rejects(locks.election(key).campaign('a', { wait: 50 }), { name: 'NotAcquired', reason: 'timed-out' });
    await lock.release();
    await bench.outside.free(key);
  });
});

onNode('an observer', (bench) => {
  it('goes on when its connection breaks', async () => {
    const election = bench.locks().election(bench.key());
    const leaders = election.observe();
    assert.equal(await next(leaders), 'nobody');
    const hearing = next(leaders);
    await bench.outside.say('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    const leader = await election.campaign('a');
    assert.equal(await hearing, '1: a');
    await leader.resign();
    await leaders.return();
  });

  it('is told nothing by a server that may have forgotten', async () => {
    const election = bench.locks().election(bench.key());
    await bench.outside.say('LOCK.GUARD', 'ARM', '60000');
    await assert.rejects(election.leader(), Guarded);
    const leaders = election.observe();
    const hearing = next(leaders);
    await bench.outside.say('LOCK.GUARD', 'LIFT');
    assert.equal(await hearing, 'nobody');
    await leaders.return();
  });
});
