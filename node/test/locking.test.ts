import assert from 'node:assert/strict';
import { it } from 'node:test';
import { createClient, createClientPool, createCluster } from 'redis';
import { BadArgument, Closed, LockLost, type Loss, NotAcquired, Palisade } from '../src/index.js';
import { onEach } from './server.js';
import { eventually, soon } from './waiting.js';

onEach('locks', (bench) => {
  it('is held, refused to others, and free again', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.lock(key, { note: 'web-3' });
    assert.ok(lock.isValid && lock.validFor > 5_000 && lock.validFor <= 9_898, String(lock.validFor));
    assert.equal((await bench.outside.info(key))?.token, lock.token);
    const info = await bench.outside.info(key);
    assert.equal(info?.owner, lock.owner);
    assert.match(String(info?.note), /^web-3 \[holder=[\w.-]*\/\d+\/[0-9a-f]{8}\/\d+\]$/);
    assert.equal(await locks.tryLock(key), null);
    await assert.rejects(locks.lock(key, { wait: 0 }), (error: NotAcquired) => {
      assert.ok(error instanceof NotAcquired);
      assert.equal(error.reason, 'held');
      assert.equal(error.holder?.note, 'web-3');
      assert.match(error.message, /^key:\d+: somebody else holds the lock; it has been held for \d+ ms by "web-3"/);
      return true;
    });
    assert.equal(await lock.release(), 'freed');
    assert.equal(await lock.release(), 'freed', 'the second call returns what the first did');
    assert.equal(lock.isValid, false);
    await bench.outside.free(key);
    const next = await locks.lock(key);
    assert.ok(next.token > lock.token);
    await next.release();
  });

  it('is one of several of which none is worked under if one is lost while the next one is waited for', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const [first, second] = [`${key}:a`, `${key}:b`];
    await bench.outside.say('LOCK.ACQUIRE', second, 'somebody', '60000');
    const lost: Loss[] = [];
    const both = locks.withLocks([first, second], { onLost: (loss) => void lost.push(loss) }, () => assert.fail());
    const failed = assert.rejects(both, { name: 'LockLost', key: Buffer.from(first) });
    await bench.outside.waiters(second, 1);
    await bench.outside.say('LOCK.BREAK', first);
    await eventually('the first is lost', () => lost.length > 0);
    await bench.outside.say('LOCK.RELEASE', second, 'somebody');
    await failed;
    await bench.outside.free(second);
  });

  it('is one of several that are acquired in the order of their bytes', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const [a, b] = [`${key}:a`, `${key}:b`];
    await locks.withLocks([b, a, b], {}, async (all) => {
      assert.deepEqual(
        all.map((one) => one.key.toString()),
        [a, b],
      );
    });
    const second = await locks.lock(b);
    await assert.rejects(
      locks.withLocks([b, a], { wait: 50 }, () => assert.fail()),
      {
        name: 'NotAcquired',
        reason: 'timed-out',
      },
    );
    await bench.outside.free(a);
    await second.release();
    const orders = [
      [a, b],
      [b, a],
      [a, b],
      [b, a],
    ];
    await soon(Promise.all(orders.map((keys) => locks.withLocks(keys, {}, () => {}))));
    await assert.rejects(
      locks.withLocks([], {}, () => assert.fail()),
      BadArgument,
    );
  });

  it('is waited for in turn', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const first = await locks.lock(key);
    const order: number[] = [];
    const rest = [];
    for (const n of [1, 2, 3]) {
      rest.push(locks.withLock(key, {}, () => void order.push(n)));
      await bench.outside.waiters(key, n);
    }
    await first.release();
    await soon(Promise.all(rest));
    assert.deepEqual(order, [1, 2, 3]);
    await bench.outside.free(key);
  });

  it('is not waited for any longer than was allowed', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const lock = await locks.lock(key);
    const began = performance.now();
    await assert.rejects(locks.lock(key, { wait: 120 }), { name: 'NotAcquired', reason: 'timed-out' });
    assert.ok(performance.now() - began >= 119);
    assert.equal((await bench.outside.users(key)).waiters, 0);
    await lock.release();
  });

  it('counts validity from the grant, not from when it was asked for', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const first = await locks.lock(key);
    const waits = locks.lock(key, { ttl: 1_000, autoExtend: false });
    await bench.outside.waiters(key, 1);
    const left = performance.now() + 1_200;
    await eventually('it has waited for longer than its ttl', () => performance.now() > left);
    await first.release();
    const lock = await waits;
    assert.ok(lock.validFor > 500 && lock.validFor < 1_000, String(lock.validFor));
    await lock.release();
  });

  it('takes any bytes for a key', async () => {
    const locks = bench.locks();
    const key = Buffer.from([0xff, 0x00, 0x0d, 0x0a, 0xfe]);
    await using lock = await locks.lock(key);
    assert.deepEqual(lock.key, key);
    assert.equal(await locks.tryLock(key), null);
    const other = await locks.tryLock(Buffer.from([0xff, 0x00, 0x0d, 0x0a, 0xfd]));
    assert.ok(other);
    await other.release();
  });

  it('lets readers in together, and a writer alone', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const readers = [await locks.readLock(key), await locks.readLock(key)];
    await assert.rejects(locks.writeLock(key, { wait: 0 }), NotAcquired);
    const writing = locks.writeLock(key);
    await bench.outside.waiters(key, 1);
    await assert.rejects(locks.readLock(key, { wait: 0 }), NotAcquired, 'nobody passes the writer who waits');
    for (const reader of readers) await reader.release();
    const writer = await soon(writing);
    for (const reader of readers) assert.ok(writer.token > reader.token);
    await writer.release();
  });

  it('gives out so many permits, with a number each', async () => {
    const uploads = bench.locks().semaphore(bench.key(), 2);
    const permits = [await uploads.acquire(), await uploads.acquire()];
    assert.deepEqual(permits.map((permit) => permit.number).sort(), [1, 2]);
    assert.equal(await uploads.tryAcquire(), null);
    const third = uploads.acquire();
    await permits[1]?.release();
    assert.equal((await soon(third)).number, permits[1]?.number);
    await (await third).release();
    await permits[0]?.release();
  });

  it('is re-entered, and free with the last one', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const outer = await locks.lock(key);
    const inner = await outer.reenter();
    assert.equal(inner.token, outer.token);
    assert.equal((await bench.outside.info(key))?.holds, 2);
    assert.equal(await inner.release(), 'freed');
    assert.equal((await bench.outside.info(key))?.holds, 1);
    assert.ok(outer.isValid && !inner.isValid);
    await assert.rejects(inner.reenter(), LockLost);
    await outer.release();
    await bench.outside.free(key);
  });

  it('is free after a block, however that ends', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const block = async () => {
      await using lock = await locks.lock(key);
      assert.ok(lock.isValid);
      throw new Error('of the block');
    };
    await assert.rejects(block(), /of the block/);
    await bench.outside.free(key);
    assert.equal(await locks.withLock(key, {}, (lock) => lock.isValid), true);
    const failing = locks.withLock(key, {}, () => {
      throw new Error('of the work');
    });
    await assert.rejects(failing, /of the work/);
    await bench.outside.free(key);
    await using none = await locks.tryLock(key);
    await using refused = await locks.tryLock(key);
    assert.ok(none && refused === null);
  });

  it('runs once in a time', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    const runs: string[] = [];
    const minHold = 1_000;
    const began = performance.now();
    const one = await locks.once(key, minHold, (lock) => runs.push(`${lock.isValid}`), { ttl: 500 });
    assert.deepEqual(one, { ran: true, value: 1 });
    assert.deepEqual(await locks.once(key, minHold, () => runs.push('again')), { ran: false });
    await bench.outside.free(key);
    assert.ok(performance.now() - began >= minHold, 'it was left for so long');
    const longer = () => eventually('the work takes longer', () => performance.now() - began > 2.5 * minHold);
    const two = await locks.once(key, minHold, longer, { ttl: 900 });
    assert.equal(two.ran, true);
    await bench.outside.free(key);
    const failing = locks.once(key, minHold, () => Promise.reject(new Error('of the work')));
    await assert.rejects(failing, /of the work/);
    assert.equal((await bench.outside.users(key)).holders, 1, 'it is not run again at once');
  });

  it('refuses bad arguments by name, and sends nothing', async () => {
    const locks = new Palisade('redis://127.0.0.1:1');
    // biome-ignore lint/suspicious/noExplicitAny: what JavaScript may pass.
    const any = (value: unknown) => value as any;
    const one = /^the address must be of one server: .*docs\/agent\.md/;
    const several =
      /^several addresses were given, and this takes one: (?!.*secret).*`palisade agent`.*docs\/agent\.md/;
    const cases: [() => Promise<unknown>, RegExp][] = [
      // Ten seconds are meant.
      [
        () => locks.lock('k', { ttl: 10 }),
        /^k: ttl must be a whole number of milliseconds from 100 to 86400000, not 10$/,
      ],
      [() => locks.lock('k', { ttl: 1.5 }), /^k: ttl must be/],
      [() => locks.lock('k', { ttl: Number.NaN }), /^k: ttl must be/],
      [
        () => locks.lock('k', { wait: -1 }),
        /^k: wait must be a whole number of milliseconds from 0 to 86400000, not -1$/,
      ],
      [() => locks.lock('k', { wait: any('1') }), /^k: wait must be/],
      [() => locks.lock('k', { note: 'ä'.repeat(513) }), /^k: note must be at most 1024 bytes long, not 1026$/],
      [() => locks.lock('k', { maxHold: -1 }), /^k: maxHold must be/],
      [() => locks.lock('k', { signal: any({}) }), /^k: signal must be an AbortSignal$/],
      [() => locks.lock('k', { holder: 'a b' }), /^k: holder must be 1 to 64 letters, digits/],
      [() => locks.lock('k', any({ tll: 3 })), /^k: there is no option "tll": there are ttl, /],
      [() => locks.lock('k', any(3)), /^k: options must be an object with ttl, .*, not 3$/],
      [() => locks.tryLock('k', any({ tll: 3 })), /^there is no option "tll" of a lock that is not waited for/],
      [() => locks.tryLock('k', any({ wait: 3 })), /^there is no option "wait" of a lock that is not waited for/],
      [
        () =>
          locks.withLock(
            'k',
            any(() => {}),
            any(undefined),
          ),
        /^work must be a function: withLock\(key, options, /,
      ],
      [() => locks.readLock('k', any({ tll: 3 })), /^k: there is no option "tll"/],
      [() => locks.semaphore('k', 1).acquire(any({ tll: 3 })), /^k: there is no option "tll"/],
      [() => locks.semaphore('k', 1).tryAcquire(any({ tll: 3 })), /^there is no option "tll"/],
      [() => locks.election('k').campaign('me', any({ tll: 3 })), /^k: there is no option "tll"/],
      [() => locks.election('k').campaign('me', any(3)), /^k: options must be an object with /],
      [async () => locks.election('k').observe(any({ sginal: 3 })), /^there is no option "sginal": there are signal$/],
      [() => locks.once('k', 1_000, () => {}, any({ tll: 3 })), /^there is no option "tll"/],
      [async () => new Palisade('redis://localhost', any({ tll: 3 })), /^there is no option "tll": .* answerWithin$/],
      [
        async () => new Palisade(any({ host: 'a' })),
        /^there is no option "host" of an address: there are url, socket, /,
      ],
      [async () => new Palisade('redis://a:1,redis://b:2'), several],
      [async () => new Palisade('redis://me:secret@a:1,b:2/0'), several],
      [async () => new Palisade('me:secret@a:1,b:2'), several],
      [async () => new Palisade('redis://me:secret@a redis://me:secret@b'), several],
      [async () => new Palisade(any(['redis://a:1', 'redis://b:2'])), several],
      [async () => new Palisade('redis+cluster://a'), one],
      [async () => new Palisade(createCluster({ rootNodes: [] })), one],
      [async () => new Palisade(any(createClientPool())), /^the address must be a URL, options or a client$/],
      [async () => new Palisade('redis://localhost', any(null)), /^options must be an object with .*, not null$/],
      [() => locks.lock(any(7)), /^key must be a string or bytes/],
      [() => locks.once('k', 60, () => {}), /^minHold must be a whole number of milliseconds from 100 /],
      [async () => locks.semaphore('k', 0), /^limit must be an integer from 1 to 65535, not 0$/],
      [async () => locks.election('k').campaign('v'.repeat(1_003)), /^k: value must be at most 1002 bytes long/],
      [async () => new Palisade('localhost:6379'), /^the address must begin with/],
      [async () => new Palisade('redis://me:secret@ho st'), /^the address cannot be read: (?!.*secret)/],
      [async () => new Palisade('redis://localhost', { ttl: -1 }), /^ttl must be/],
    ];
    for (const [call, expected] of cases) {
      await assert.rejects(call(), (error: Error) => {
        assert.ok(error instanceof BadArgument, String(error));
        assert.match(error.message, expected);
        return true;
      });
    }
    await locks.close();
    for (const address of ['redis://me:a,b@localhost', 'unix:///tmp/a,b.sock']) await new Palisade(address).close();
  });

  it('takes the address of a client that is there', async () => {
    const client = createClient({ socket: { path: bench.path, tls: false } });
    const locks = new Palisade(client);
    const lock = await locks.lock(bench.key());
    assert.equal(client.isOpen, false, 'its own connections are used');
    await lock.release();
    await locks.close();
  });

  it('leaves nothing when it is closed', async () => {
    const [locks, held, awaited] = [bench.locks(), bench.key(), bench.key()];
    const other = await bench.locks().lock(awaited);
    const lock = await locks.lock(held);
    const waits = locks.lock(awaited);
    await bench.outside.waiters(awaited, 1);
    const refused = assert.rejects(waits, Closed);
    await locks.close();
    await refused;
    assert.equal((await soon(lock.lost)).reason, 'closed');
    assert.deepEqual(await bench.outside.users(held), { holders: 0, waiters: 0 });
    assert.equal((await bench.outside.users(awaited)).waiters, 0);
    assert.equal(await lock.release(), 'not-held');
    await assert.rejects(locks.lock(held), Closed);
    await other.release();
  });

  it('leaves nothing of its waits when it is closed', async () => {
    const [locks, key] = [bench.locks({ ttl: 60_000 }), bench.key()];
    await locks.lock(key);
    const waits = Array.from({ length: 50 }, () => assert.rejects(locks.lock(key), Closed));
    await bench.outside.waiters(key, 50);
    await soon(locks.close());
    assert.deepEqual(await bench.outside.users(key), { holders: 0, waiters: 0 });
    await soon(Promise.all(waits));
  });

  it('leaves nothing when it is closed with a grant on the way', async () => {
    const key = bench.key();
    for (let steps = 0; steps < 12; steps++) {
      const locks = bench.locks({ ttl: 60_000 });
      const holder = await bench.locks({ ttl: 60_000 }).lock(key);
      const waits = Array.from({ length: 5 }, () =>
        locks.lock(key).catch((error) => assert.ok(error instanceof Closed)),
      );
      await bench.outside.waiters(key, 5);
      const released = holder.release();
      for (let step = 0; step < steps; step++) await new Promise(setImmediate);
      await soon(Promise.all([released, locks.close()]));
      assert.deepEqual(await bench.outside.users(key), { holders: 0, waiters: 0 });
      await soon(Promise.all(waits));
    }
  });

  it('tells many at once', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    let inside = 0;
    const work = async () => {
      assert.equal(++inside, 1);
      await new Promise(setImmediate);
      inside -= 1;
    };
    await soon(Promise.all(Array.from({ length: 40 }, () => locks.withLock(key, {}, work))));
    await bench.outside.free(key);
  });
});
