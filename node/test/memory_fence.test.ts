import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as others } from 'node:timers/promises';
import { type Grant, MemoryFence } from '../src/index.js';

const writer = (token: number): Grant => ({ token, mode: 'exclusive' });

/** Passes with this grant. The work goes on until `end`. */
function passing(fence: MemoryFence, grant: Grant): { end: () => void; begun: Promise<void>; done: Promise<void> } {
  let [end, begin] = [() => {}, () => {}];
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const done = fence.pass('prices', grant, () => {
    begin();
    return ended;
  });
  return { end, begun, done };
}

/** Counts those that work at once. */
class Workers {
  most = 0;
  #now = 0;

  readonly work = async (): Promise<void> => {
    this.#now += 1;
    this.most = Math.max(this.most, this.#now);
    await others();
    this.#now -= 1;
  };
}

describe('a fence in memory', () => {
  it('keeps holders apart that come in the same moment', async () => {
    const [fence, workers] = [new MemoryFence(), new Workers()];
    await Promise.all([33, 34].map((token) => fence.pass('prices', writer(token), workers.work)));
    assert.equal(workers.most, 1);
  });

  it('lets one of those go on that wait for the same holder', async () => {
    const [fence, workers] = [new MemoryFence(), new Workers()];
    const first = passing(fence, writer(33));
    await first.begun;
    const later = [34, 35].map((token) => fence.pass('prices', writer(token), workers.work));
    await others();
    assert.equal(workers.most, 0);
    first.end();
    await Promise.all([first.done, ...later]);
    assert.equal(workers.most, 1);
  });

  it('counts each pass of one grant', async () => {
    const [fence, workers] = [new MemoryFence(), new Workers()];
    const grant: Grant = { token: 33, mode: 'shared' };
    const [short, long] = [passing(fence, grant), passing(fence, grant)];
    await Promise.all([short.begun, long.begun]);
    short.end();
    await short.done;
    const later = fence.pass('prices', writer(34), workers.work);
    await others();
    assert.equal(workers.most, 0, 'the writer waits for the reader');
    long.end();
    await Promise.all([long.done, later]);
  });
});
