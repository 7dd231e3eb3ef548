export type { ExistingClient } from './address.js';
export type { Connecting } from './connection.js';
export { DualLock, type OldLock } from './dual.js';
export { Election, Leadership } from './election.js';
export {
  BadArgument,
  Closed,
  Fenced,
  Guarded,
  type Holder,
  LockLost,
  Misconfigured,
  NoQuorum,
  NotAcquired,
  PalisadeError,
  ServerError,
  Unavailable,
  UnexpectedReply,
} from './errors.js';
export { type Fence, formatFencingToken, type Grant, MemoryFence, parseFencingToken } from './fencing.js';
export type { FencedClient, GateOptions, SendingClient } from './gated.js';
export type { LockKind, LockListener } from './listening.js';
export { Lock, Permit } from './lock.js';
export type { Loss, LossReason, Released } from './loss.js';
export { lockMetrics, type PromClient } from './metrics.js';
export { fencing, fencingFetch, type Pass } from './middleware.js';
export type { Key, LockOptions } from './options.js';
export { type AdoptOptions, type Once, Palisade, type PalisadeOptions } from './palisade.js';
export type { Leader } from './proclamation.js';
export { Semaphore } from './semaphore.js';
