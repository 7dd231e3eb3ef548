// Redlock by the npm package redlock over ioredis, driven by palisade-bench.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

// What `make setup-peers` installed.
const require = createRequire(join(process.env.PEERS_NODE, "package.json"));
const { Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const versionOf = (name) => {
  let folder = dirname(require.resolve(name));
  for (;;) {
    try {
      const { name: found, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      if (found === name && version) return `${name} ${version.replace(/^v/, "")}`;
    } catch {}
    folder = dirname(folder);
  }
};

const within = (ms, promise) => {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("too slow")), ms)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

let newLocks, locks, ttl;

const hello = async ({ ports, ttl_ms }) => {
  newLocks = () => new Redlock(ports.map((port) => new Redis(port, "127.0.0.1")));
  [locks, ttl] = [newLocks(), ttl_ms];
  return { version: `${versionOf("redlock")} (npm), ${versionOf("ioredis")}, Node ${process.versions.node}` };
};

const slice = async ({ tasks, ms, most_s }) => {
  const start = process.hrtime.bigint();
  const end = start + BigInt(ms) * 1_000_000n;
  const [acquire_ns, release_ns] = [[], []];
  let failed = 0;
  const task = async () => {
    while (process.hrtime.bigint() < end) {
      try {
        const asked = process.hrtime.bigint();
        const lock = await within(most_s * 1_000, locks.acquire([randomUUID()], ttl, { retryCount: 0 }));
        const held = process.hrtime.bigint();
        acquire_ns.push(Number(held - asked));
        await within(most_s * 1_000, lock.release());
        release_ns.push(Number(process.hrtime.bigint() - held));
      } catch {
        failed += 1;
      }
    }
  };
  await Promise.all(Array.from({ length: tasks }, task));
  return { acquire_ns, release_ns, failed, elapsed_ns: Number(process.hrtime.bigint() - start) };
};

// Clients among which one lock goes round. Whoever gives it back queues again when the next one has it.
const round = { delays_ns: [], turns: [] };
const begun = new Promise((resolve) => (round.begin = resolve));

const client = async (n, name, [min, max]) => {
  for (const own = newLocks(); ; ) {
    const lock = await own.acquire([name], ttl, { retryCount: -1 });
    const now = process.hrtime.bigint();
    if (round.taken) {
      round.delays_ns.push(Number(now - round.released));
      round.taken();
    }
    round.turns[n] += 1;
    round.first?.();
    await begun;
    await new Promise((resolve) => setTimeout(resolve, (min + Math.random() * (max - min)) * 1_000));
    const byNext = new Promise((resolve) => (round.taken = resolve));
    round.released = process.hrtime.bigint();
    await lock.release();
    await byNext;
  }
};

const start = async ({ name, waiters, hold_s }) => {
  round.turns = Array(waiters + 1).fill(0);
  const first = new Promise((resolve) => (round.first = resolve));
  client(0, name, hold_s);
  await first;
  for (let n = 1; n <= waiters; n += 1) client(n, name, hold_s);
  return {};
};

const go = async () => {
  round.begin();
  return {};
};

const result = async () => ({ delays_ns: round.delays_ns, turns: round.turns });

const answers = { hello, slice, start, go, result };
for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  console.log(JSON.stringify(await answers[question.do](question)));
}
process.exit(0);
