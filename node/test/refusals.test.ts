import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Guarded, Misconfigured, Palisade, PalisadeError, ServerError } from '../src/index.js';
import { freePort, Node, onNode } from './server.js';
import { soon } from './waiting.js';

/** Returns a check that an error is a `kind`, and matches `text`. */
const says = (kind: abstract new (...args: never[]) => Error, text: RegExp) => (error: Error) => {
  assert.ok(error instanceof kind && error instanceof PalisadeError, `${error.name}: ${error.message}`);
  assert.match(error.message, text);
  return true;
};

onNode('a refusal', (bench) => {
  it('says for how long a server is guarded, and a wait outlasts it', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    await bench.outside.say('LOCK.GUARD', 'ARM', '60000');
    await assert.rejects(
      locks.tryLock(key),
      (error: Guarded) => error.retryAfter > 50_000 && error.retryAfter <= 60_000,
    );
    await assert.rejects(
      locks.lock(key, { wait: 50 }),
      says(Guarded, /^key:\d+: GUARDED \d+ this node may have forgotten/),
    );
    const waits = locks.lock(key);
    await bench.outside.waiters(key, 1);
    await bench.outside.say('LOCK.GUARD', 'LIFT');
    assert.equal(await (await soon(waits)).release(), 'freed');
  });

  it('has the server’s word for what is wrong otherwise', async () => {
    const [locks, key] = [bench.locks(), bench.key()];
    await bench.outside.say('SET', key, 'a string');
    await assert.rejects(
      locks.lock(key),
      (error: ServerError) => error instanceof ServerError && error.code === 'WRONGTYPE',
    );
    await assert.rejects(
      locks.lock(bench.key(), { ttl: 60_001 }),
      says(ServerError, /ttl must be .* 60000 .*lock\.max-ttl/),
    );
  });

  it('says who may not do what', async () => {
    await bench.outside.say('ACL', 'SETUSER', 'reader', 'on', '>secret', '~*', '+@connection', '+LOCK.INFO');
    const at = { path: bench.path, tls: false as const };
    const wrong = new Palisade({ socket: at, username: 'reader', password: 'wrong' });
    await assert.rejects(wrong.lock('k'), says(Misconfigured, /refuses the user or the password.*WRONGPASS/));
    const reader = new Palisade({ socket: at, username: 'reader', password: 'secret' });
    await assert.rejects(reader.lock('k'), says(Misconfigured, /docs\/acl\.md has the rules.*NOPERM/));
    await Promise.all([wrong.close(), reader.close()]);
  });
});

describe('a server', () => {
  it('without the module is told of as such', async () => {
    using node = await new Node().start([], { module: false });
    await using locks = new Palisade(node.url);
    await assert.rejects(locks.lock('k'), says(Misconfigured, /load the Palisade module there/));
  });

  it('with a password wants it, over TCP', async () => {
    const port = await freePort();
    using node = await new Node().start([], { port });
    await node.outside.say('CONFIG', 'SET', 'requirepass', 'p@ss');
    const none = new Palisade(`redis://127.0.0.1:${port}`);
    await assert.rejects(none.lock('k'), says(Misconfigured, /wants a password.*NOAUTH/));
    const right = new Palisade(`redis://:${encodeURIComponent('p@ss')}@127.0.0.1:${port}`);
    assert.equal(await (await right.lock('k')).release(), 'freed');
    await Promise.all([none.close(), right.close()]);
  });
});
