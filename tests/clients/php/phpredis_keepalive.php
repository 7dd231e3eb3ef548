<?php
// Work under a lock that lasts as long as this process: the server renews its lease by itself.

$holder = new Redis();
$holder->connect('127.0.0.1', (int) (getenv('PORT') ?: 6379)); // Not pconnect, which outlives the page.
$owner = bin2hex(random_bytes(16)); // New for each acquisition.
$token = $holder->rawCommand('LOCK.ACQUIRE', 'orders:import', $owner, 2000, 'KEEPALIVE', 3_600_000);
if (!$token) {
    throw new RuntimeException($holder->getLastError() ?? 'somebody else has the lock');
}
echo "token: $token\n";
sleep(600); // The work. $holder stays in scope.
$holder->rawCommand('LOCK.RELEASE', 'orders:import', $owner, 'LEVEL', 1);
