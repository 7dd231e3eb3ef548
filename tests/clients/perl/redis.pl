#!/usr/bin/perl
# A lock with Perl's Redis: take it, be refused, wait, write under it, give it back, share it.
use v5.36;
use Redis;
use Time::HiRes qw(sleep);

my ($KEY, $DATA) = ('orders:42', '{orders:42}:state');    # One hash slot, for the script on a cluster.

# Writes only if the token is that of the lock's current grant.
my $GUARDED_SET = <<'LUA';
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
return redis.error_reply('FENCED by a newer grant')
LUA

sub connection { Redis->new(server => '127.0.0.1:' . ($ENV{PORT} // 6379), encoding => undef) }

# New for each acquisition.
sub new_owner {
    open my $random, '<:raw', '/dev/urandom' or die $!;
    read $random, my $bytes, 16;
    return unpack 'H*', $bytes;
}

# A command is a method. A dot in its name makes it one that is called by a variable. Null is undef.
sub run ($redis, $command, @words) { scalar $redis->$command(@words) }

# The words of the error, which follows the name of the command. The first is stable.
sub refusal ($call) {
    my $answer = eval { $call->() };
    return $answer unless $@;
    return split ' ', $@ =~ s/^\[.*?\] //r;
}

# Calls $work with the fencing token of the lock, held for at most ttl ms, after waiting for at most wait ms.
sub with_lock ($redis, $key, $work, %limits) {
    my ($ttl, $wait) = ($limits{ttl} // 10_000, $limits{wait} // 30_000);
    my $owner = new_owner();
    my $done  = eval {
        # A command that waits holds up all others on its connection: waits get a connection of their own.
        my $grant = run(connection(), 'LOCK.ACQUIRE', $key, $owner, $ttl, 'WAIT', $wait, 'RETRY');
        die "$key was not free within $wait ms\n" unless $grant;
        $work->($grant->[0]);
        1;
    };
    my $error = $@;
    # LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
    run($redis, 'LOCK.RELEASE', $key, $owner, 'LEVEL', 1);
    die $error unless $done;
}

sub say_answer ($what, $answer) { say "$what: ", $answer // 'undef' }

my $redis = connection();
my ($me, $you) = (new_owner(), new_owner());

my $token = run($redis, 'LOCK.ACQUIRE', $KEY, $me, 10_000);
say_answer 'acquire',          $token;
say_answer 'another owner',    run($redis, 'LOCK.ACQUIRE', $KEY, $you, 10_000);
say_answer 'again',            (refusal sub { run($redis, 'LOCK.ACQUIRE', $KEY, $me, 10_000) })[0];
say_answer 'again with RETRY', run($redis, 'LOCK.ACQUIRE', $KEY, $me, 10_000, 'RETRY');
say_answer 'reenter',          run($redis, 'LOCK.REENTER', $KEY, $me);
say_answer 'extend',           run($redis, 'LOCK.EXTEND', $KEY, $me, 20_000);

# The server passes the lock on when it is released: no polling. With a callback this asks now, and is answered later.
my ($waiting, $grant, $acquire) = (connection(), undef, 'LOCK.ACQUIRE');
$waiting->$acquire($KEY, $you, 10_000, 'WAIT', 30_000, sub ($answer, $error) { $grant = $answer // die $error });
sleep 0.1;
say_answer 'release', run($redis, 'LOCK.RELEASE', $KEY, $me, 'LEVEL', 1);
$waiting->wait_all_responses;
say_answer 'wait', "[@$grant]";

say_answer 'write with the current token', $redis->eval($GUARDED_SET, 2, $KEY, $DATA, $grant->[0], 'paid');
say_answer 'write with the old token', (refusal sub { $redis->eval($GUARDED_SET, 2, $KEY, $DATA, $token, 'open') })[0];
run($redis, 'LOCK.RELEASE', $KEY, $you, 'LEVEL', 1);

# Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
say_answer 'read',            run($redis, 'LOCK.ACQUIRE', $KEY, $me,  10_000, 'SHARED');
say_answer 'read as well',    run($redis, 'LOCK.ACQUIRE', $KEY, $you, 10_000, 'SHARED');
say_answer 'write meanwhile', run($redis, 'LOCK.ACQUIRE', $KEY, new_owner(), 10_000);
run($redis, 'LOCK.RELEASE', $KEY, $_) for $me, $you;
my $permit = run($redis, 'LOCK.ACQUIRE', $KEY, $me, 10_000, 'LIMIT', 2);
say_answer 'permit', "[@$permit]";
run($redis, 'LOCK.RELEASE', $KEY, $me);

# A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
run($redis, 'LOCK.GUARD', 'ARM', 1500);
my ($code, $left_ms) = refusal sub { run($redis, 'LOCK.ACQUIRE', $KEY, $me, 10_000) };
say "guarded: $code, try again in $left_ms ms";
sleep $left_ms / 1000;

my $last;
with_lock($redis, $KEY, sub ($token) { say_answer 'lock', $last = $token });
say_answer 'after it', run($redis, 'LOCK.CHECK', $KEY, $last);
$redis->quit;
