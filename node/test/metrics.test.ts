import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import * as prometheus from 'prom-client';
import { lockMetrics, Palisade } from '../src/index.js';
import { onNode, ROOT } from './server.js';
import { eventually } from './waiting.js';

const listener = lockMetrics(prometheus);

/** Waits until this was counted, with these labels. */
async function counted(expected: number, name: string, labels: Record<string, string>): Promise<void> {
  const words = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  await eventually(`${name} of ${words} is ${expected}`, async () => {
    const lines = (await prometheus.register.metrics()).split('\n');
    const found = lines.find(
      (line) => line.startsWith(`palisade_client_${name}{`) && words.every((word) => line.includes(word)),
    );
    return found?.split(' ').at(-1) === String(expected);
  });
}

onNode('metrics', (bench) => {
  it('count each end of an acquisition once', async () => {
    const key = bench.key();
    const kind = { class: 'orders', mode: 'exclusive' };
    const locks = bench.locks({ listener, lockClass: kind.class });
    const lock = await locks.lock(key);
    await counted(1, 'held', kind);
    assert.equal(await locks.tryLock(key), null);
    await assert.rejects(locks.lock(key, { wait: 20 }), { name: 'NotAcquired' });
    const aborts = locks.lock(key, { signal: AbortSignal.timeout(20) });
    await assert.rejects(aborts, { name: 'TimeoutError' });
    assert.equal(await lock.release(), 'freed');
    await counted(0, 'held', kind);
    await counted(1, 'hold_seconds_count', kind);
    for (const outcome of ['granted', 'contended', 'timed_out', 'cancelled']) {
      await counted(1, 'acquisitions_total', { ...kind, outcome });
      await counted(1, 'wait_seconds_count', { ...kind, outcome });
    }
    const away = new Palisade('redis://127.0.0.1:1', { listener, lockClass: 'away' });
    await assert.rejects(away.lock(key, { wait: 0 }), { name: 'Unavailable' });
    await counted(1, 'acquisitions_total', { class: 'away', outcome: 'no_quorum' });
    await away.close();
  });

  it('count a loss with its reason, and extensions', async () => {
    const key = bench.key();
    const kind = { class: 'kept', mode: 'shared' };
    const lock = await bench.locks({ listener, lockClass: kind.class, ttl: 2_000 }).readLock(key);
    await counted(1, 'extensions_total', { ...kind, outcome: 'extended' });
    await bench.outside.say('LOCK.BREAK', key);
    await counted(1, 'losses_total', { ...kind, reason: 'taken_away' });
    await counted(0, 'held', kind);
    assert.equal(await lock.release(), 'not-held');
    await counted(1, 'hold_seconds_count', kind);
  });

  it('survive a listener that throws, and refuse what is none', async () => {
    const warned = once(process, 'warning');
    const failing = { acquired: () => assert.fail('a fault of the listener') };
    const lock = await bench.locks({ listener: failing }).lock(bench.key());
    assert.match(String((await warned)[0]), /a fault of the listener/);
    assert.equal(await lock.release(), 'freed');
    for (const wrong of [{ listener: 'metrics' }, { lockClass: 7 }]) {
      assert.throws(() => bench.locks(wrong as object), { name: 'BadArgument' });
    }
  });

  it('have the names of the crate', async () => {
    const page = readFileSync(join(ROOT, 'docs/telemetry.md'), 'utf8');
    const names = (await prometheus.register.getMetricsAsJSON()).map(({ name }) => name);
    assert.deepEqual(
      names.filter((name) => !page.includes(`| \`${name}\` |`)),
      [],
    );
    assert.equal(names.length, 6);
  });
});
