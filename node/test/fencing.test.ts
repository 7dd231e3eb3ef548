import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, beforeEach, describe, it } from 'node:test';
import {
  Fenced,
  fencing,
  fencingFetch,
  formatFencingToken,
  type Grant,
  MemoryFence,
  parseFencingToken,
} from '../src/index.js';
import { eventually } from './waiting.js';

/** A fence that counts those who come to it, and may be out of order. */
class Watched extends MemoryFence {
  arrived = 0;
  isBroken = false;

  override pass<T>(resource: string, grant: Grant, work: (passed: undefined) => Promise<T>): Promise<T> {
    this.arrived += 1;
    return this.isBroken ? Promise.reject(new Error('out of order')) : super.pass(resource, grant, work);
  }
}

let fence: Watched;
/** The tokens of the requests that reached the handler. */
let reached: (number | undefined)[] = [];
/** Lets the handler answer this token's request. */
let heldUp: Promise<void> = Promise.resolve();

async function handle(token: number | undefined): Promise<string> {
  reached.push(token);
  if (token === 33) await heldUp;
  return JSON.stringify(token ?? null);
}

const resource = (path: string) => (path === '/prices' ? 'prices' : null);

/** Serves by the middleware, as Express does. */
function byMiddleware(incoming: IncomingMessage, response: ServerResponse): void {
  const middleware = fencing(fence, (asked: IncomingMessage) => resource(asked.url ?? ''));
  const fenced: IncomingMessage & { fencing?: { grant: Grant } } = incoming;
  middleware(fenced as Parameters<typeof middleware>[0], response, () => {
    handle(fenced.fencing?.grant.token).then((body) => response.end(body));
  });
}

/** Serves by the handler of `fetch` requests, on the same server. */
async function byFetch(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const handler = fencingFetch(
    fence,
    (asked) => resource(new URL(asked.url).pathname),
    async (_, pass) => new Response(await handle(pass?.grant.token)),
  );
  const headers = new Headers();
  for (let n = 0; n < incoming.rawHeaders.length; n += 2) {
    headers.append(incoming.rawHeaders[n] as string, incoming.rawHeaders[n + 1] as string);
  }
  const asked = new Request(`http://localhost${incoming.url}`, { method: incoming.method ?? '', headers });
  const answer = await handler(asked).catch(() => new Response('null', { status: 500 }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.end(await answer.text());
}

for (const [name, serve] of [
  ['the middleware', byMiddleware],
  ['the handler of fetch requests', byFetch],
] as const) {
  describe(name, () => {
    let server: Server;

    before(async () => {
      server = createServer(serve).listen(0, '127.0.0.1');
      await once(server, 'listening');
    });
    after(() => {
      server.close();
      // Those that a failed test left unanswered.
      server.closeAllConnections();
    });
    beforeEach(() => {
      fence = new Watched();
      reached = [];
      heldUp = Promise.resolve();
    });

    /** Returns status and body of an answer, to a request with these headers `Fencing-Token`. */
    async function ask(method: string, path: string, ...tokens: string[]): Promise<[number, unknown]> {
      const { port } = server.address() as AddressInfo;
      const asked = request({ port, host: '127.0.0.1', method, path, agent: false });
      if (tokens.length > 0) asked.setHeader('Fencing-Token', tokens);
      asked.end();
      const [answer] = (await once(asked, 'response')) as [IncomingMessage];
      let body = '';
      for await (const part of answer) body += part;
      return [answer.statusCode ?? 0, body && JSON.parse(body)];
    }

    const status = async (...words: Parameters<typeof ask>) => (await ask(...words))[0];

    it('refuses a change without a token, and no reading', async () => {
      for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) assert.equal(await status(method, '/prices'), 428);
      assert.deepEqual(reached, []);
      assert.deepEqual(await ask('GET', '/prices'), [200, null]);
      assert.deepEqual(await ask('POST', '/elsewhere'), [200, null]);
    });

    it('refuses an old token with the one that was seen', async () => {
      assert.deepEqual(await ask('PUT', '/prices', '"34"'), [200, 34]);
      assert.deepEqual(await ask('PUT', '/prices', '"34"'), [200, 34]);
      const problem = { status: 412, title: 'the token 33 is older than 34', seen: 34 };
      assert.deepEqual(await ask('PUT', '/prices', '"33"'), [412, problem]);
      assert.deepEqual(await ask('PUT', '/prices', '"35"'), [200, 35]);
      assert.deepEqual(reached, [34, 34, 35]);
    });

    it('refuses a late writer after a newer reader', async () => {
      assert.equal(await status('GET', '/prices', '"34";shared'), 200);
      assert.equal(await status('GET', '/prices', '"33"; shared'), 200);
      assert.equal(await status('PUT', '/prices', '"33"'), 412);
      assert.equal(await status('PUT', '/prices', '"35";shared'), 400);
    });

    it('compares permits by number', async () => {
      assert.equal(await status('PUT', '/prices', '"34";permit=1'), 200);
      assert.equal(await status('PUT', '/prices', '"33";permit=2'), 200);
      assert.equal(await status('PUT', '/prices', '"33";permit=1'), 412);
      assert.equal(await status('PUT', '/prices', '"33"'), 412);
      assert.equal(await status('PUT', '/prices', '"36"'), 200);
      assert.equal(await status('PUT', '/prices', '"35";permit=3'), 412);
    });

    it('refuses another form, and two headers', async () => {
      assert.equal(await status('PUT', '/prices', '33'), 400);
      assert.equal(await status('PUT', '/prices', ''), 400);
      assert.equal(await status('PUT', '/prices', '"33"', '"34"'), 400);
      assert.deepEqual(reached, []);
    });

    it('keeps a newer holder waiting until the request of the older one is done', async () => {
      const { promise, resolve } = withResolvers();
      heldUp = promise;
      const older = ask('PUT', '/prices', '"33"');
      await eventually('the older one is served', () => reached.length === 1);
      const newer = ask('PUT', '/prices', '"34"');
      await eventually('the newer one has arrived', () => fence.arrived === 2);
      // A reader without a token is served meanwhile, so the server had time for the newer one.
      assert.equal(await status('GET', '/prices'), 200);
      assert.deepEqual(reached, [33, undefined]);
      resolve();
      assert.deepEqual(await Promise.all([older, newer]), [
        [200, 33],
        [200, 34],
      ]);
      assert.equal(await status('PUT', '/prices', '"33"'), 412);
    });

    it('does not let a request through when the fence fails', async () => {
      process.once('warning', () => {});
      fence.isBroken = true;
      assert.equal(await status('PUT', '/prices', '"33"'), 500);
      assert.deepEqual(reached, []);
    });
  });
}

function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

describe('a grant', () => {
  it('is read from the header that it makes', () => {
    const grants: Grant[] = [
      { token: 1, mode: 'exclusive' },
      { token: 2 ** 53 - 1, mode: 'shared' },
      { token: 1795234602884304, mode: 'permit', permit: 65535 },
    ];
    for (const grant of grants) assert.deepEqual(parseFencingToken(formatFencingToken(grant)), grant);
  });

  it('is not read from another form', () => {
    const parameters = ['write', 'permit', 'permit=0', 'permit=65536', 'shared;permit=1'].map((word) => `"33";${word}`);
    for (const wrong of [
      '33',
      '""',
      '"033"',
      '"-1"',
      '"x"',
      '"9007199254740992"',
      '"33", "34"',
      "'33'",
      '"٣"',
      ...parameters,
    ]) {
      assert.throws(() => parseFencingToken(wrong), { name: 'BadArgument' }, wrong);
    }
  });

  it('that is refused has both tokens', () => {
    assert.equal(new Fenced(33, 34).message, 'the token 33 is older than 34');
  });
});
