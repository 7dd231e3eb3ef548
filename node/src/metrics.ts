import { Closed, Guarded, NoQuorum, NotAcquired, PalisadeError, Unavailable } from './errors.js';
import type { LockKind, LockListener } from './listening.js';

type Labels = Record<string, string>;

interface Settings {
  name: string;
  help: string;
  labelNames: string[];
}

/** What {@link lockMetrics} needs of the module `prom-client`. */
export interface PromClient {
  Counter: new (settings: Settings) => { inc(labels: Labels): void };
  Gauge: new (settings: Settings) => { inc(labels: Labels): void; dec(labels: Labels): void };
  Histogram: new (settings: Settings & { buckets: number[] }) => { observe(labels: Labels, value: number): void };
}

const KIND = ['class', 'mode'];
const ENDED = [...KIND, 'outcome'];

/** From a free lock on a near node to a queue of minutes, in seconds. */
const BUCKETS = [0.001, 0.005, 0.025, 0.1, 0.5, 2, 10, 60, 300];

const REASONS = { held: 'contended', 'timed-out': 'timed_out', 'too-late': 'expired' };

/**
 * Returns a listener that counts locks in the default registry of prom-client, with the names of the crate for Rust
 * (docs/telemetry.md). Call it once, and give it to every `Palisade`.
 *
 * ```ts
 * import * as prometheus from 'prom-client';
 *
 * const locks = new Palisade(address, { listener: lockMetrics(prometheus), lockClass: 'orders' });
 * ```
 */
export function lockMetrics({ Counter, Gauge, Histogram }: PromClient): LockListener {
  const metric = (name: string, help: string, labelNames: string[]) => ({
    name: `palisade_client_${name}`,
    help,
    labelNames,
  });
  const acquisitions = new Counter(metric('acquisitions_total', 'Acquisitions, by how they ended', ENDED));
  const wait = new Histogram({ ...metric('wait_seconds', 'From the call to its end', ENDED), buckets: BUCKETS });
  const held = new Gauge(metric('held', 'Locks held now', KIND));
  const hold = new Histogram({
    ...metric('hold_seconds', 'From the grant to the release or the loss', KIND),
    buckets: BUCKETS,
  });
  const extensions = new Counter(metric('extensions_total', 'Extensions of held locks', ENDED));
  const losses = new Counter(metric('losses_total', 'Locks that were lost', [...KIND, 'reason']));

  const labels = (kind: LockKind) => ({ class: kind.lockClass, mode: kind.mode });
  const ended = (kind: LockKind, waited: number, outcome: string) => {
    acquisitions.inc({ ...labels(kind), outcome });
    wait.observe({ ...labels(kind), outcome }, waited / 1000);
  };
  const released = (kind: LockKind, heldFor: number) => {
    held.dec(labels(kind));
    hold.observe(labels(kind), heldFor / 1000);
  };
  return {
    acquired: (kind, waited) => {
      ended(kind, waited, 'granted');
      held.inc(labels(kind));
    },
    failed: (kind, waited, error) => ended(kind, waited, outcomeOf(error)),
    extended: (kind, isExtended) => extensions.inc({ ...labels(kind), outcome: isExtended ? 'extended' : 'failed' }),
    released,
    lost: (kind, heldFor, loss) => {
      released(kind, heldFor);
      losses.inc({ ...labels(kind), reason: loss.reason.replaceAll('-', '_') });
    },
  };
}

function outcomeOf(error: unknown): string {
  if (error instanceof NotAcquired) return REASONS[error.reason];
  if (error instanceof Guarded) return 'guarded';
  if (error instanceof NoQuorum || error instanceof Unavailable) return 'no_quorum';
  // A wait whose signal aborts rejects with the reason of the signal.
  return error instanceof Closed || !(error instanceof PalisadeError) ? 'cancelled' : 'refused';
}
