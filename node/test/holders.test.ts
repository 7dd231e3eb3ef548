import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { LockLost, type NotAcquired, Palisade, PalisadeError } from '../src/index.js';
import { Node, onNode, PROGRAM } from './server.js';
import { soon } from './waiting.js';

/** Returns the output of `palisade deadlocks`, and its exit status. */
const deadlocks = (url: string) =>
  new Promise<string>((resolve) => {
    execFile(PROGRAM, ['deadlocks', '--nodes', url], (error, stdout) => resolve(`${error?.code ?? 0}: ${stdout}`));
  });

const gate = () => {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
};

type Worker = (locks: Palisade, first: string, second: string, meet: () => Promise<void>) => Promise<unknown>;

describe('two flows that wait for each other', () => {
  const workers: Record<string, Worker> = {
    async 'with withLock'(locks, first, second, meet) {
      await locks.withLock(first, {}, async () => {
        await meet();
        await locks.withLock(second, {}, () => {});
      });
    },
    async 'with locks that are released by hand'(locks, first, second, meet) {
      const outer = await locks.lock(first);
      await meet();
      const inner = await locks.lock(second).finally(() => outer.release());
      await inner.release();
    },
    async 'with a helper that takes the second one'(locks, first, second, meet) {
      const helper = async () => {
        await new Promise((resolve) => setTimeout(resolve, 1));
        return locks.semaphore(second, 1).acquire();
      };
      const outer = await locks.semaphore(first, 1).acquire();
      await meet();
      const inner = await helper().finally(() => outer.release());
      await inner.release();
    },
  };
  for (const [name, worker] of Object.entries(workers)) {
    it(`are found, ${name}`, async () => {
      using node = await new Node().start();
      await using locks = new Palisade(node.url);
      const both = gate();
      let here = 0;
      const meet = () => {
        if (++here === 2) both.open();
        return both.opened;
      };
      const working = Promise.allSettled([worker(locks, 'a', 'b', meet), worker(locks, 'b', 'a', meet)]);
      for (const key of ['a', 'b']) await node.outside.waiters(key, 1);
      const said = await deadlocks(node.url);
      const who = `\\S+ pid ${process.pid}: holders\\.test\\.js`;
      assert.match(said, new RegExp(`^1: 2 wait for each other:\\n  ${who} holds [ab] .*\\n  ${who} holds [ab] `));
      await node.outside.say('LOCK.BREAK', 'a');
      await soon(working);
    });
  }
});

describe('flows of one program', () => {
  it('are in no deadlock if one waits for what another one has', async () => {
    using node = await new Node().start();
    await using locks = new Palisade(node.url);
    const done = gate();
    const hold = () => locks.withLock('k', {}, () => done.opened);
    // They come one after the other, and at once; and one of them is begun by another one.
    const all = [hold(), hold()];
    await node.outside.waiters('k', 1);
    all.push(hold());
    all.push(locks.withLock('other', {}, () => void all.push(hold())).then(() => {}));
    await node.outside.waiters('k', 3);
    assert.equal(await deadlocks(node.url), '0: no deadlock among 1 locks that are waited for\n');
    done.open();
    await soon(Promise.all(all));
  });
});

onNode('a note', (bench) => {
  it('says who takes the lock', async () => {
    const own = '\\[holder=[\\w.-]*/\\d+/[0-9a-f]{8}/\\d+\\]';
    const program = `\\S+ pid ${process.pid}: holders\\.test\\.js`;
    const full = 'n'.repeat(1_020);
    const cases = [
      [{}, `${program} ${own}`, program],
      [{ note: '' }, own, ''],
      [{ note: 'invoices', holder: 'job:7/a@b' }, 'invoices \\[holder=job:7/a@b\\]', 'invoices'],
      // There is no room for more.
      [{ note: full }, full, full],
    ] as const;
    for (const [options, noted, told] of cases) {
      const key = bench.key();
      await bench.locks().lock(key, options);
      assert.match(String((await bench.outside.info(key))?.note), new RegExp(`^${noted}$`));
      await assert.rejects(bench.locks().lock(key, { wait: 0 }), (error: NotAcquired) => {
        assert.match(String(error.holder?.note), new RegExp(`^${told}$`));
        return true;
      });
    }
  });
});

onNode('an error', (bench) => {
  it('says of which lock it is', async () => {
    const key = bench.key();
    const lock = await bench.locks().lock(key, { autoExtend: false });
    await bench.outside.say('LOCK.BREAK', key);
    for (const ask of [() => lock.extend(), () => lock.reenter()]) {
      await assert.rejects(ask(), (error: LockLost) => {
        assert.ok(error instanceof LockLost && error instanceof PalisadeError && error instanceof Error);
        assert.ok(error.message.startsWith(`${key}: the lock is lost`), error.message);
        assert.ok(error.stack?.includes(`${key}: the lock is lost`));
        assert.deepEqual([error.key?.toString(), error.name, error.loss.reason], [key, 'LockLost', 'taken-away']);
        return true;
      });
    }
    assert.ok(String(lock.signal.reason.message).startsWith(`${key}: the lock is lost`));
    // Several locks may share one failure; each error names its own lock.
    const locks = new Palisade('unix:///nowhere');
    const failed = await Promise.allSettled(['a', 'b\n'].map((name) => locks.lock(name, { wait: 0 })));
    const told = failed.map((one) => (one as PromiseRejectedResult).reason.message.slice(0, 9));
    assert.deepEqual(told, ['a: unix:/', 'b\\n: unix']);
    await locks.close();
  });

  it('of a lock that was overwritten is a loss', async () => {
    const keys = [bench.key(), bench.key()];
    const locks = bench.locks({ ttl: 60_000 });
    const overwrite = (key: string) => bench.outside.say('SET', key, 'a string');
    await assert.rejects(
      locks.withLock(keys[0] as string, {}, () => overwrite(keys[0] as string)),
      LockLost,
    );
    const lock = await locks.lock(keys[1] as string);
    await overwrite(keys[1] as string);
    assert.equal(await lock.release(), 'not-held');
    // It is not worth a wait either.
    await assert.rejects(soon(locks.lock(keys[1] as string, { wait: 3_600_000 })), { code: 'WRONGTYPE' });
  });
});
