// The driver of the package for Node.js: conformance/README.md, "Drivers", says what it is asked and answers.

import { createInterface } from 'node:readline';
import { createClient } from '../../node/node_modules/redis/dist/index.js';
import { Fenced, LockLost, NotAcquired, Palisade, PalisadeError } from '../../node/dist/index.mjs';

// What is a warning and not thrown is told by the answers.
process.removeAllListeners('warning');

let locks;
let adopter;
let address;
const held = new Map();
const aborts = new Map();

const CLASSES = {
  Guarded: 'guarded',
  NoQuorum: 'unavailable',
  Unavailable: 'unavailable',
  Misconfigured: 'misconfigured',
  BadArgument: 'bad-argument',
  ServerError: 'server',
  UnexpectedReply: 'unexpected-reply',
  Closed: 'closed',
};

function failed(error) {
  if (error instanceof NotAcquired) return { error: 'not-acquired', reason: error.reason, holder: error.holder?.note };
  if (error instanceof LockLost) return { error: 'lost', reason: error.loss.reason };
  if (error instanceof Fenced) return { error: 'fenced', seen: error.seen };
  if (error instanceof PalisadeError) {
    return { error: CLASSES[error.name] ?? error.name, message: error.message, retry_after_ms: error.retryAfter };
  }
  if (error?.name === 'AbortError') return { error: 'cancelled' };
  return { error: 'other', message: String(error) };
}

async function take(request, taking) {
  const { ttl_ms: ttl, wait_ms: wait, note, extend: autoExtend, as, id } = request;
  const controller = new AbortController();
  aborts.set(id, controller);
  const lock = await taking({ ttl, wait, note, autoExtend, signal: controller.signal });
  held.set(as, lock);
  return { token: lock.token, number: lock.number };
}

const DO = {
  open(request) {
    address = request.address;
    for (const client of [locks, adopter]) client?.close().catch(() => {});
    held.clear();
    // The machine of the run may be busy.
    [locks, adopter] = [1, 2].map(() => new Palisade(address, { answerWithin: 10_000 }));
  },
  lock: (request) => take(request, (options) => locks.lock(request.key, options)),
  read: (request) => take(request, (options) => locks.readLock(request.key, options)),
  write: (request) => take(request, (options) => locks.writeLock(request.key, options)),
  permit: (request) => take(request, (options) => locks.semaphore(request.key, request.limit).acquire(options)),
  look({ of }) {
    const lock = held.get(of);
    return { valid_for_ms: lock.validFor, valid: lock.isValid, token: lock.token };
  },
  extend: ({ of }) => held.get(of).extend(),
  async reenter({ of, as }) {
    const inner = await held.get(of).reenter();
    held.set(as, inner);
    return { token: inner.token };
  },
  release: async ({ of }) => ({ was_held: { freed: true, 'not-held': false, unknown: null }[await held.get(of).release()] }),
  async adopt({ of, as }) {
    const lock = held.get(of);
    // One that was released already is not there any more.
    const { owner, token } = lock.isValid ? await lock.handOver() : lock;
    const adopted = await adopter.adopt(lock.key, owner, token);
    held.set(as, adopted);
    return { token: adopted.token };
  },
  downgrade: ({ of }) => held.get(of).downgrade(),
  async leave({ of }) {
    await held.get(of)[Symbol.asyncDispose]();
    return { left: true };
  },
  async gated({ of, words, gate, held: isHeld }) {
    const data = await createClient({ url: address }).connect();
    try {
      return { said: await held.get(of).fenced(data, { gate, held: isHeld }).sendCommand(words) };
    } finally {
      data.destroy();
    }
  },
  async campaign({ as, key, value, ttl_ms: ttl }) {
    const leadership = await locks.election(key).campaign(value, { ttl });
    held.set(as, leadership);
    return { term: leadership.term };
  },
  async leader({ key }) {
    const leader = await locks.election(key).leader();
    return { value: leader?.value.toString() ?? null, term: leader?.term ?? null };
  },
  all({ as, keys, ttl_ms: ttl }) {
    return new Promise((acquired, failed) => {
      const work = () => new Promise((over) => acquired(held.set(as, { over })));
      held.set(`${as}: over`, locks.withLocks(keys, { ttl }, work).catch(failed));
    }).then(() => {});
  },
  async release_all({ of }) {
    held.get(of).over();
    await held.get(`${of}: over`);
  },
  async resign({ of }) {
    await held.get(of).resign();
  },
  once: async ({ key, min_hold_ms: minHold }) => ({ ran: (await locks.once(key, minHold, () => {})).ran }),
  until_lost: async ({ of }) => ({ reason: (await held.get(of).lost).reason }),
  cancel({ of }) {
    aborts.get(of).abort();
  },
  close: () => locks.close(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const run = async () => (DO[request.do] ? await DO[request.do](request) : { error: 'unsupported' });
  run()
    .catch(failed)
    .then((answer) => process.stdout.write(`${JSON.stringify({ id: request.id, ...answer })}\n`));
}
