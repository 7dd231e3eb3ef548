/**
 * Milliseconds on a clock that nobody sets: CLOCK_MONOTONIC on Linux. It stands still while the machine sleeps; Node.js has no
 * cheap way to the clock that does not. The README says what follows from that.
 */
export function now(): number {
  return performance.now();
}

/** What clocks may drift apart, and what rounding to milliseconds can cost on both sides. */
const DRIFT = 0.01;
const ROUNDING_MS = 2;

/** Longest time that `setTimeout` takes. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * Until when a holder may rely on a lease of `ttl` ms that was asked for at `sent`, and granted after the server had counted
 * `waited` ms. The server's clock counts both, and it may be faster than this one.
 */
export function validUntil(sent: number, waited: number, ttl: number): number {
  return sent + (waited + ttl) * (1 - DRIFT) - ROUNDING_MS;
}

/** A timer that does not keep the process alive, and may be set for longer than Node.js takes: it fires early then. */
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

/** What `promise` comes to, unless `signal` aborts first: then its reason. `promise` may then reject unheard. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
