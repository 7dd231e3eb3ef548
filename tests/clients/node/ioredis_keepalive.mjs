// Work under a lock that lasts as long as this process: the server renews its lease by itself.

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

// A connection of its own. When it breaks, the lock will be lost: the work stops.
const holder = new Redis({ port: Number(process.env.PORT ?? 6379), retryStrategy: null });
holder.on('close', () => process.exit(1));

const owner = randomBytes(16).toString('hex'); // New for each acquisition.
const token = await holder.call('LOCK.ACQUIRE', 'orders:import', owner, 2000, 'KEEPALIVE', 3_600_000);
if (token === null) throw new Error('somebody else has the lock');
console.log('token:', token);
await sleep(600_000); // The work. It may keep the event loop busy all the time.
await holder.call('LOCK.RELEASE', 'orders:import', owner, 'LEVEL', 1);
process.exit();
