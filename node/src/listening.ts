import { warn } from './errors.js';
import type { Loss } from './loss.js';

/** A kind of locks. Metrics count by kind, since names of locks are unlimited. */
export interface LockKind {
  /** The option `lockClass`. */
  readonly lockClass: string;
  /** The mode as the lock was acquired. */
  readonly mode: 'exclusive' | 'shared' | 'permit';
}

/**
 * Receives the events of locks, for metrics: {@link lockMetrics}. Times are in milliseconds. What a method throws
 * becomes a warning.
 */
export interface LockListener {
  /** Reports a granted lock, `waited` after the call. */
  acquired?(kind: LockKind, waited: number): void;
  /** Reports an acquisition that failed, or was given up. */
  failed?(kind: LockKind, waited: number, error: unknown): void;
  /** Reports an extension in the background. One that failed is tried again while the lock is valid. */
  extended?(kind: LockKind, isExtended: boolean): void;
  /** Reports the release, or the hand-over, of a lock that was held until then. */
  released?(kind: LockKind, heldFor: number): void;
  /** Reports the loss of a lock. */
  lost?(kind: LockKind, heldFor: number, loss: Loss): void;
}

/** Calls the listener of one acquisition. */
export type Report = (what: (to: LockListener, kind: LockKind) => void) => void;

/** Returns what reports to `listener`, with the words of the mode. */
export function reporting(listener: LockListener | undefined, lockClass: string, words: readonly string[]): Report {
  const mode = words.length === 0 ? 'exclusive' : words[0] === 'SHARED' ? 'shared' : 'permit';
  return (what) => {
    if (listener === undefined) return;
    try {
      what(listener, { lockClass, mode });
    } catch (error) {
      warn(`a listener of locks failed: ${String(error)}`);
    }
  };
}
