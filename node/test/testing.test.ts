import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Lock, NotAcquired, type Palisade } from '../src/index.js';
import { FakeServer } from '../src/testing.js';
import { onNode } from './server.js';
import { eventually, soon } from './waiting.js';

/** The outcomes of the steps of a program that uses locks. */
class Story {
  readonly told: string[] = [];

  constructor(
    readonly locks: Palisade,
    readonly key: string,
    readonly waiting: () => number | Promise<number>,
  ) {}

  async tell<T>(what: string, work: Promise<T>): Promise<T> {
    try {
      const result = await work;
      this.told.push(['string', 'boolean'].includes(typeof result) || result === null ? `${what}: ${result}` : what);
      return result;
    } catch (error) {
      const { name, message } = error as Error;
      this.told.push(`${what}: ${name}: ${message.replaceAll(this.key, 'k').replace(/;.*/, '')}`);
      return undefined as T;
    }
  }

  waiters(number: number): Promise<void> {
    return eventually(`${number} wait`, async () => (await this.waiting()) === number);
  }

  async play(): Promise<string[]> {
    const { locks, key } = this;
    const first = await this.tell('lock', locks.lock(key, { note: 'the first' }));
    await this.tell('try', locks.tryLock(key));
    const refused = (await locks.lock(key, { wait: 20 }).catch((error) => error)) as NotAcquired;
    assert.ok(refused instanceof NotAcquired);
    this.told.push(refused.reason, String(refused.holder?.note), String(refused.holder?.token === first.token));
    const controller = new AbortController();
    const givenUp = this.tell('cancel', locks.lock(key, { signal: controller.signal }));
    await this.waiters(1);
    controller.abort();
    await givenUp;
    await this.waiters(0);
    const inner = await this.tell('reenter', first.reenter());
    await this.tell('extend', first.extend(20_000));
    await this.tell('outer', first.release());
    await this.tell('still held', locks.tryLock(key));
    const following = locks.lock(key);
    await this.waiters(1);
    await this.tell('inner', inner.release());
    const second = await following;
    this.told.push(`rises: ${second.token > first.token}`);
    await this.convert(second);
    const { owner, token } = await second.handOver();
    const adopted = await this.tell('adopt', locks.adopt(key, owner, token));
    await this.tell('release', adopted.release());
    await this.tell('adopt again', locks.adopt(key, owner, token));
    await this.permits();
    await this.lead();
    const short = await locks.lock(key, { ttl: 200, autoExtend: false });
    this.told.push((await short.lost).reason);
    await this.tell('after its lease', short.release());
    return this.told;
  }

  async convert(lock: Lock): Promise<void> {
    await this.tell('downgrade', lock.downgrade());
    const reader = await this.tell('read', this.locks.readLock(this.key, { wait: 0 }));
    await this.tell('upgrade', lock.upgrade());
    await this.tell('release', reader.release());
    await this.tell('upgrade', lock.upgrade());
    await this.tell('read', this.locks.readLock(this.key, { wait: 0 }));
  }

  async permits(): Promise<void> {
    const permits = this.locks.semaphore(this.key, 2);
    const both = [await this.tell('permit', permits.acquire()), await this.tell('permit', permits.acquire())];
    await this.tell('permit', permits.tryAcquire());
    this.told.push(String(both.map((permit) => permit.number).sort()));
    await this.tell('a lock beside permits', this.locks.tryLock(this.key));
    for (const permit of both) await this.tell('release', permit.release());
  }

  async lead(): Promise<void> {
    const election = this.locks.election(this.key);
    await this.tell('nobody', election.leader());
    const leadership = await election.campaign('10.0.0.1');
    await this.tell('proclaim', leadership.proclaim('10.0.0.2'));
    const leader = await election.leader();
    this.told.push(`${leader?.value} ${leader?.sequence} ${leader?.term === leadership.term}`);
    await this.tell('resign', leadership.resign());
  }
}

onNode('the fake', (bench) => {
  it('answers as a server does', async () => {
    const server = new FakeServer();
    await using fake = server.locks();
    const key = bench.key();
    const told = await new Story(fake, key, () => server.waiting(key)).play();
    const real = new Story(bench.locks(), key, async () => (await bench.outside.users(key)).waiters);
    assert.deepEqual(told, await real.play());
  });
});

describe('locks in memory', () => {
  it('are taken away at once', async () => {
    const server = new FakeServer();
    await using locks = server.locks({ ttl: 3_600_000 });
    const lock = await locks.lock('k');
    const following = locks.lock('k');
    await eventually('it waits', () => server.waiting('k') === 1);
    server.takeAway('k');
    assert.ok(!lock.isValid && lock.signal.aborted);
    assert.equal((await lock.lost).reason, 'taken-away');
    assert.equal(await lock.release(), 'not-held');
    assert.ok((await soon(following)).isValid && server.isHeld('k'));
  });

  it('show that a program stops when its lock is lost', async () => {
    const server = new FakeServer();
    await using locks = server.locks();
    let done = 0;
    const work = async (lock: Lock) => {
      for (let n = 0; n < 3 && lock.isValid; n++) {
        done++;
        server.takeAway('import');
      }
    };
    await assert.rejects(locks.withLock('import', {}, work), { name: 'LockLost' });
    assert.equal(done, 1);
  });

  it('are held by another program', async () => {
    const server = new FakeServer();
    await using locks = server.locks();
    const release = server.holdElsewhere('k');
    assert.throws(() => server.holdElsewhere('k'), { name: 'BadArgument' });
    assert.equal(await locks.tryLock('k'), null);
    const waiting = locks.lock('k');
    await eventually('it waits', () => server.waiting('k') === 1);
    release();
    assert.equal(await (await soon(waiting)).release(), 'freed');
    assert.ok(!server.isHeld('k'));
  });

  it('are free when a lease ends', async () => {
    const server = new FakeServer();
    await using locks = server.locks();
    await (await locks.lock('k', { ttl: 200 })).handOver();
    assert.ok((await soon(locks.lock('k'))).isValid);
  });

  it('have no observation of leaders', async () => {
    await using locks = new FakeServer().locks();
    const leaders = locks.election('e').observe();
    assert.equal((await leaders.next()).value, null);
    await assert.rejects(leaders.next(), { name: 'BadArgument', message: /no LOCK.WATCH/ });
  });
});
