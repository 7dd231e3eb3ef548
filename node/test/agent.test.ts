import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Connection } from '../src/connection.js';
import { Connections } from '../src/connections.js';
import { NoQuorum, Palisade } from '../src/index.js';
import { Agent, type Node } from './server.js';
import { eventually, soon } from './waiting.js';

const isNoQuorum = (says: RegExp) => (error: Error) => {
  assert.ok(error instanceof NoQuorum, String(error));
  assert.match(error.message, says);
  return true;
};

describe('behind an agent', () => {
  it('a majority that is away is waited for, and not needed at the end of work', async () => {
    using agent = await new Agent().start();
    await using locks = new Palisade(agent.url, { ttl: 60_000 });
    const warnings: string[] = [];
    const onWarning = (warning: Error) => void warnings.push(warning.message);
    process.on('warning', onWarning);
    const lock = await locks.lock('by hand');
    const away = agent.nodes.slice(0, 3);
    const worked = await locks.withLock('work', {}, async () => {
      await Promise.all(away.map((node) => node.kill()));
      return 'done';
    });
    assert.equal(worked, 'done');
    assert.equal(await lock.release(), 'unknown');
    const began = performance.now();
    await assert.rejects(locks.lock('k', { wait: 0 }), isNoQuorum(/^k: NOQUORUM 3 of 5 nodes cannot be asked/));
    await assert.rejects(locks.lock('k', { wait: 700 }), isNoQuorum(/^k: NOQUORUM .*3 of 5 nodes cannot be asked/));
    assert.ok(performance.now() - began >= 700);
    const waits = locks.lock('k', { wait: 60_000 });
    await eventually(
      'it waits',
      () => warnings.filter((text) => text.startsWith('k: the lock cannot be asked for')).length === 2,
    );
    for (const node of away) await back(node);
    assert.equal(await (await soon(waits)).release(), 'freed');
    for (const key of ['work', 'by hand']) await agent.outside.free(key);

    // A lasting error ends a wait at once.
    for (const node of agent.nodes) await node.outside.say('ACL', 'SETUSER', 'default', '-lock.acquire');
    await assert.rejects(soon(locks.lock('k', { wait: 3_600_000 })), isNoQuorum(/NOPERM/));
    process.off('warning', onWarning);
    const unknown = warnings.filter((text) => /^(work|by hand): whether the lock was given back/.test(text));
    assert.equal(unknown.length, 2, warnings.join('\n'));
  });

  it('a holder hears at once that its lock was taken away', async () => {
    using agent = await new Agent().start();
    const locks = new Palisade(agent.url, { ttl: 60_000 });
    const counted = async (name: string) =>
      Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(String(await agent.outside.say('INFO')))?.[1]);
    const watches = (expected: number) =>
      eventually(`${expected} watch`, async () => (await counted('blocked_clients')) === expected);
    // Two connections are left: this test's own, and the shared one.
    const closed = async () => {
      await watches(0);
      await eventually('connections are closed', async () => (await counted('connected_clients')) === 2);
    };
    const lock = await locks.lock('k');
    await watches(1);
    assert.equal(await lock.release(), 'freed');
    await closed();
    // An extension would report the first loss in 20 s; the second lock has none.
    const taken = [await locks.lock('1'), await locks.lock('2', { autoExtend: false })];
    await watches(2);
    for (const node of agent.nodes) for (const key of ['1', '2']) await node.outside.say('LOCK.BREAK', key);
    for (const lock of taken) assert.equal((await soon(lock.lost)).reason, 'taken-away');
    await closed();
    await soon(locks.close());
  });

  it('an agent is told from a node', async () => {
    using agent = await new Agent().start();
    for (const { url } of [agent, ...agent.nodes]) {
      const connections = new Connections((within) => Connection.open({ url }, url, within), url, 3_000);
      assert.equal(await connections.isAgent(), url === agent.url);
      await connections.close();
    }
  });
});

async function back(node: Node): Promise<void> {
  await node.restart();
  await node.lift();
}
