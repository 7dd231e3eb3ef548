<?php
// Work under a lock that lasts as long as this process: the server renews its lease by itself.

require 'Predis/autoload.php'; // With Composer: 'vendor/autoload.php'.

// Not 'persistent', which outlives the page.
$holder = new Predis\Client(['host' => '127.0.0.1', 'port' => getenv('PORT') ?: 6379]);
$owner = bin2hex(random_bytes(16)); // New for each acquisition.
$words = ['LOCK.ACQUIRE', 'orders:import', $owner, 2000, 'KEEPALIVE', 3_600_000];
$token = $holder->executeRaw($words, $error);
if ($error || $token === null) {
    throw new RuntimeException($token ?? 'somebody else has the lock');
}
echo "token: $token\n";
sleep(600); // The work. $holder stays in scope.
$holder->executeRaw(['LOCK.RELEASE', 'orders:import', $owner, 'LEVEL', 1]);
