import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:net';
import { describe, it } from 'node:test';
import { Palisade, UnexpectedReply } from '../src/index.js';
import { Node } from './server.js';
import { eventually, soon } from './waiting.js';

/** Starts a server with impossible answers: a token of any size, in either protocol. */
function answering(acquire: string, heard: string[]): Promise<Server> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      for (const [, words = ''] of data.toString('latin1').matchAll(/\*\d+\r\n((?:\$\d+\r\n[^*$]*\r\n)+)/g)) {
        const said = words.replace(/\$\d+\r\n/g, '').split('\r\n');
        const command = said[0]?.toUpperCase() ?? '';
        heard.push(command);
        if (command === 'HELLO') socket.write('%1\r\n$5\r\nproto\r\n:3\r\n');
        else if (command === 'CLIENT') socket.write('+OK\r\n');
        else if (command === 'LOCK.ACQUIRE') socket.write(acquire);
        else socket.write(':0\r\n');
      }
    });
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

describe('a token', () => {
  for (const RESP of [2, 3] as const) {
    it(`below 2^53 is exact, RESP${RESP}`, async () => {
      using node = await new Node().start();
      await using locks = new Palisade({ socket: { path: node.path, tls: false }, RESP });
      const largest = 2 ** 53 - 2;
      // The token is near the end of what the server has: raised as quorum clients do it, as far ahead as it allows.
      const first = await locks.lock('k', { ttl: 60_000 });
      const ahead = await node.outside.sayReady('LOCK.FENCE', 'k', first.owner, String(first.token + 86_400_000_000));
      assert.equal(ahead, first.token + 86_400_000_000);
      await first.extend();
      assert.equal(first.token, ahead, 'it has risen');
      await first.release();
      assert.ok((await locks.lock('k')).token > Number(ahead));
      assert.ok(Number(ahead) < largest);
      const raised = await node.outside.sayReady('LOCK.FLOOR', 'RAISE', '6755399441055744');
      const far = await locks.lock('far');
      assert.ok(far.token > Number(raised), `${far.token} after ${raised}`);
      assert.equal((await node.outside.info('far'))?.token, far.token);
      assert.notEqual(await node.outside.say('LOCK.CHECK', 'far', String(far.token)), null);
    });
  }

  for (const [name, reply] of [
    ['of 2^53 and one more', ':9007199254740993\r\n'],
    ['of 2^63 - 1', ':9223372036854775807\r\n'],
    ['that is a big number of RESP3', '(9223372036854775808\r\n'],
    ['with a wait', '*2\r\n:9007199254740993\r\n:0\r\n'],
    ['below 0', ':-5\r\n'],
    ['that is a text', '$2\r\nhi\r\n'],
    ['that is a fraction', ',1.5\r\n'],
  ] as const) {
    it(`${name} is refused, and its grant given back`, async () => {
      const heard: string[] = [];
      const server = await answering(reply, heard);
      const { port } = server.address() as { port: number };
      const locks = new Palisade(`redis://127.0.0.1:${port}`);
      await assert.rejects(soon(locks.lock('k')), (error: Error) => {
        assert.ok(error instanceof UnexpectedReply, String(error));
        assert.match(error.message, /where an integer below 2\^53 belongs/);
        return true;
      });
      await eventually('it is given back', () => heard.includes('LOCK.RELEASE'));
      await locks.close();
      server.close();
    });
  }
});
