<?php
// A lock with phpredis: take it, be refused, wait, write under it, give it back, share it.

const KEY = 'orders:42';
const DATA = '{orders:42}:state'; // One hash slot, for the script on a cluster.

// Writes only if the token is that of the lock's current grant.
const GUARDED_SET = <<<'LUA'
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
return redis.error_reply('FENCED by a newer grant')
LUA;

function connect(float $readTimeout = 5): Redis
{
    $redis = new Redis();
    $redis->connect('127.0.0.1', (int) (getenv('PORT') ?: 6379));
    $redis->setOption(Redis::OPT_READ_TIMEOUT, $readTimeout); // In seconds.
    return $redis;
}

// New for each acquisition.
function newOwner(): string
{
    return bin2hex(random_bytes(16));
}

// Null is false here, and so is an answer that begins with ERR; of other errors phpredis makes exceptions by itself.
function run(Redis $redis, mixed ...$words): mixed
{
    $redis->clearLastError();
    $answer = $redis->rawCommand(...$words);
    $error = $redis->getLastError();
    return $error ? throw new RedisException($error) : $answer;
}

// The words of the error. The first is stable.
function refusal(callable $call): array
{
    try {
        return [$call()];
    } catch (RedisException $error) {
        return explode(' ', $error->getMessage());
    }
}

// Does $work under the lock, held for at most $ttl ms, after waiting for at most $wait ms.
function withLock(Redis $redis, string $key, callable $work, int $ttl = 10_000, int $wait = 30_000): mixed
{
    $owner = newOwner();
    $waiting = connect($wait / 1000 + 5); // Answers later than a read timeout are never seen.
    try {
        $grant = run($waiting, 'LOCK.ACQUIRE', $key, $owner, $ttl, 'WAIT', $wait, 'RETRY')
            ?: throw new RuntimeException("$key was not free within $wait ms");
        return $work($grant[0]);
    } finally {
        // LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
        run($redis, 'LOCK.RELEASE', $key, $owner, 'LEVEL', 1);
        $waiting->close();
    }
}

function say(string $what, mixed $answer): void
{
    echo "$what: ", json_encode($answer), "\n";
}

$redis = connect();
[$me, $you] = [newOwner(), newOwner()];

$token = run($redis, 'LOCK.ACQUIRE', KEY, $me, 10_000);
say('acquire', $token);
say('another owner', run($redis, 'LOCK.ACQUIRE', KEY, $you, 10_000));
say('again', refusal(fn () => run($redis, 'LOCK.ACQUIRE', KEY, $me, 10_000))[0]);
say('again with RETRY', run($redis, 'LOCK.ACQUIRE', KEY, $me, 10_000, 'RETRY'));
say('reenter', run($redis, 'LOCK.REENTER', KEY, $me));
say('extend', run($redis, 'LOCK.EXTEND', KEY, $me, 20_000));

// The server passes the lock on when it is released, here by another process: no polling.
$child = pcntl_fork();
if ($child === 0) {
    usleep(100_000);
    say('release', run(connect(), 'LOCK.RELEASE', KEY, $me, 'LEVEL', 1));
    exit;
}
$grant = run(connect(35), 'LOCK.ACQUIRE', KEY, $you, 10_000, 'WAIT', 30_000);
pcntl_waitpid($child, $status);
say('wait', $grant);

say('write with the current token', $redis->eval(GUARDED_SET, [KEY, DATA, $grant[0], 'paid'], 2));
say('write with the old token', refusal(fn () => $redis->eval(GUARDED_SET, [KEY, DATA, $token, 'open'], 2))[0]);
run($redis, 'LOCK.RELEASE', KEY, $you, 'LEVEL', 1);

// Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
say('read', run($redis, 'LOCK.ACQUIRE', KEY, $me, 10_000, 'SHARED'));
say('read as well', run($redis, 'LOCK.ACQUIRE', KEY, $you, 10_000, 'SHARED'));
say('write meanwhile', run($redis, 'LOCK.ACQUIRE', KEY, newOwner(), 10_000));
foreach ([$me, $you] as $reader) run($redis, 'LOCK.RELEASE', KEY, $reader);
say('permit', run($redis, 'LOCK.ACQUIRE', KEY, $me, 10_000, 'LIMIT', 2));
run($redis, 'LOCK.RELEASE', KEY, $me);

// A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
run($redis, 'LOCK.GUARD', 'ARM', 1500);
[$code, $leftMs] = refusal(fn () => run($redis, 'LOCK.ACQUIRE', KEY, $me, 10_000));
echo "guarded: $code, try again in $leftMs ms\n";
usleep((int) $leftMs * 1000);

$last = withLock($redis, KEY, function (int $token) {
    say('lock', $token);
    return $token;
});
say('after it', run($redis, 'LOCK.CHECK', KEY, $last));
