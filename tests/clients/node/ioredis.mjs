// A lock with ioredis: take it, be refused, wait, write under it, give it back, share it.

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

const [KEY, DATA] = ['orders:42', '{orders:42}:state']; // One hash slot, for the script on a cluster.

// A command that waits holds up all others on its connection: waits get a connection of their own.
const client = new Redis({ port: Number(process.env.PORT ?? 6379) });
const waiting = client.duplicate();

const run = (...words) => client.call(...words);
const wait = (...words) => waiting.call(...words);
const newOwner = () => randomBytes(16).toString('hex'); // New for each acquisition.

// Writes only if the token is that of the lock's current grant.
const GUARDED_SET = `
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
return redis.error_reply('FENCED by a newer grant')`;
client.defineCommand('guardedSet', { numberOfKeys: 2, lua: GUARDED_SET });

// The words of the error. The first is stable.
async function refusal(answer) {
  try {
    return [await answer];
  } catch (error) {
    return error.message.split(' ');
  }
}

// Does `work` under the lock, held for at most `ttl` ms, after waiting for at most `patience` ms.
async function withLock(key, work, { ttl = 10_000, patience = 30_000 } = {}) {
  const owner = newOwner();
  try {
    // RETRY: the client may send this twice, when a connection breaks.
    const grant = await wait('LOCK.ACQUIRE', key, owner, ttl, 'WAIT', patience, 'RETRY');
    if (grant === null) throw new Error(`${key} was not free within ${patience} ms`);
    return await work(grant[0]);
  } finally {
    // LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
    await run('LOCK.RELEASE', key, owner, 'LEVEL', 1);
  }
}

const [me, you] = [newOwner(), newOwner()];

const token = await run('LOCK.ACQUIRE', KEY, me, 10_000);
console.log('acquire:', token);
console.log('another owner:', await run('LOCK.ACQUIRE', KEY, you, 10_000));
console.log('again:', (await refusal(run('LOCK.ACQUIRE', KEY, me, 10_000)))[0]);
console.log('again with RETRY:', await run('LOCK.ACQUIRE', KEY, me, 10_000, 'RETRY'));
console.log('reenter:', await run('LOCK.REENTER', KEY, me));
console.log('extend:', await run('LOCK.EXTEND', KEY, me, 20_000));

// The server passes the lock on when it is released: no polling.
const waits = wait('LOCK.ACQUIRE', KEY, you, 10_000, 'WAIT', 30_000);
await sleep(100);
console.log('release:', await run('LOCK.RELEASE', KEY, me, 'LEVEL', 1));
const grant = await waits;
console.log('wait:', grant);

console.log('write with the current token:', await client.guardedSet(KEY, DATA, grant[0], 'paid'));
console.log('write with the old token:', (await refusal(client.guardedSet(KEY, DATA, token, 'open')))[0]);
await run('LOCK.RELEASE', KEY, you, 'LEVEL', 1);

// Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
console.log('read:', await run('LOCK.ACQUIRE', KEY, me, 10_000, 'SHARED'));
console.log('read as well:', await run('LOCK.ACQUIRE', KEY, you, 10_000, 'SHARED'));
console.log('write meanwhile:', await run('LOCK.ACQUIRE', KEY, newOwner(), 10_000));
for (const reader of [me, you]) await run('LOCK.RELEASE', KEY, reader);
console.log('permit:', await run('LOCK.ACQUIRE', KEY, me, 10_000, 'LIMIT', 2));
await run('LOCK.RELEASE', KEY, me);

// A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
await run('LOCK.GUARD', 'ARM', 1500);
const [code, leftMs] = await refusal(run('LOCK.ACQUIRE', KEY, me, 10_000));
console.log(`guarded: ${code}, try again in ${leftMs} ms`);
await sleep(Number(leftMs));

const last = await withLock(KEY, async (token) => {
  console.log('lock:', token);
  return token;
});
console.log('after it:', await run('LOCK.CHECK', KEY, last));

await Promise.all([client.quit(), waiting.quit()]);
