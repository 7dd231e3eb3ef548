import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { it } from 'node:test';
import { onNode } from './server.js';
import { soon } from './waiting.js';

onNode('a program', (bench) => {
  /** Runs `step` of the program. Returns how it ended and what it wrote. */
  const run = async (step: string, key: string) => {
    const child = spawn(process.execPath, [join(__dirname, 'programs', 'ending.js'), bench.url, key, step]);
    let wrote = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (wrote += data));
    const [code] = await soon(once(child, 'close'));
    return { code, wrote };
  };

  for (const step of ['holds', 'lost', 'idle', 'closes', 'observed']) {
    it(`ends by itself: ${step}`, async () => {
      assert.deepEqual(await run(step, bench.key()), { code: 0, wrote: `${step}\n` });
    });
  }

  it('ends by itself after it closed what it could not release', async () => {
    const { code, wrote } = await run('unreachable', bench.key());
    assert.deepEqual([code, wrote.trimEnd().split('\n').pop()], [0, 'unreachable'], wrote);
  });

  it('goes on while it waits', async () => {
    const key = bench.key();
    const lock = await bench.locks().lock(key);
    const ended = run('waits', key);
    await bench.outside.waiters(key, 1);
    await lock.release();
    assert.deepEqual(await ended, { code: 0, wrote: 'waits\n' });
    await bench.outside.free(key);
  });

  it('hears of no rejection that nobody handles', async () => {
    const key = bench.key();
    const { code, wrote } = await run('storm', key);
    // The program closes the connections of its own requests, and the package may warn of that.
    const lines = wrote.split('\n').filter((line) => !/PalisadeWarning: .* is waited for|--trace-warnings/.test(line));
    assert.deepEqual([code, lines], [0, ['storm', '']], wrote);
  });
});
