// Tests wait for conditions, not for time to pass.

import { setTimeout as sleep } from 'node:timers/promises';

const PATIENCE_MS = 15_000;

/** Waits until `condition` holds. */
export async function eventually(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const until = performance.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (performance.now() > until) throw new Error(`not within ${PATIENCE_MS} ms: ${what}`);
    await sleep(5);
  }
}

/** Returns the value of `promise`, or throws if that takes too long. */
export async function soon<T>(promise: Promise<T>): Promise<T> {
  const given = new AbortController();
  const late = sleep(PATIENCE_MS, undefined, given).then(() => {
    throw new Error(`nothing came of it within ${PATIENCE_MS} ms`);
  });
  late.catch(() => {});
  try {
    return await Promise.race([promise, late]);
  } finally {
    given.abort();
  }
}

/** Blocks the event loop: meanwhile no timer runs, and no answer is read. */
export function busy(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}
