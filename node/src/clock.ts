/**
 * Returns milliseconds on a clock that nobody sets: CLOCK_MONOTONIC on Linux. It stands still while the machine sleeps;
 * Node.js has no cheap access to the clock that does not. The README says what follows from that.
 */
export function now(): number {
  return performance.now();
}

/** Maximum drift between clocks, and maximum loss through rounding to milliseconds on both sides. */
const DRIFT = 0.01;
const ROUNDING_MS = 2;

/** Longest delay that `setTimeout` accepts, in milliseconds. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * Returns until when a holder may rely on a lease of `ttl` ms, requested at `sent` and granted after a wait of `waited`
 * ms. The server's clock counts both, and may be faster than this one.
 */
export function validUntil(sent: number, waited: number, ttl: number): number {
  return sent + (waited + ttl) * (1 - DRIFT) - ROUNDING_MS;
}

/** Starts a timer that does not keep the process alive. A delay longer than Node.js accepts fires early. */
export function backgroundTimer(run: () => void, ms: number): NodeJS.Timeout {
  return setTimeout(run, Math.min(Math.max(ms, 0), TIMER_MAX_MS)).unref();
}

/** Resolves after `ms`, or earlier when `signal` aborts. Never rejects. */
export function pause(
  ms: number,
  options: { signal?: AbortSignal | undefined; background?: boolean | undefined } = {},
): Promise<void> {
  const { signal } = options;
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    if (options.background) timer.unref();
    signal?.addEventListener('abort', done);
  });
}

/**
 * Settles as `promise`, or rejects with the reason of `signal` if that aborts first. `promise` may then reject
 * unhandled.
 */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
