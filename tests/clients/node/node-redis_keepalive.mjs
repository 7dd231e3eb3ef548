// Work under a lock that lasts as long as this process: the server renews its lease by itself.

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

// A connection of its own. When it breaks, the lock will be lost: the work stops.
const holder = createClient({ socket: { port: Number(process.env.PORT ?? 6379), reconnectStrategy: false } });
holder.on('error', (error) => { console.error(error.message); process.exit(1); });
await holder.connect();

const owner = randomBytes(16).toString('hex'); // New for each acquisition.
const token = await holder.sendCommand(['LOCK.ACQUIRE', 'orders:import', owner, '2000', 'KEEPALIVE', '3600000']);
if (token === null) throw new Error('somebody else has the lock');
console.log('token:', token);
await sleep(600_000); // The work. It may keep the event loop busy all the time.
await holder.sendCommand(['LOCK.RELEASE', 'orders:import', owner, 'LEVEL', '1']);
await holder.close();
