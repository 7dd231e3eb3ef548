#!/usr/bin/perl
# Work under a lock that lasts as long as this process: the server renews its lease by itself.
use v5.36;
use Redis;

$| = 1;
my $holder = Redis->new(server => '127.0.0.1:' . ($ENV{PORT} // 6379), encoding => undef);    # Without `reconnect`.
open my $random, '<:raw', '/dev/urandom' or die $!;
read $random, my $bytes, 16;
my $owner = unpack 'H*', $bytes;                                                              # New for each acquisition.

my ($acquire, $release) = ('LOCK.ACQUIRE', 'LOCK.RELEASE');
my $token = $holder->$acquire('orders:import', $owner, 2000, 'KEEPALIVE', 3_600_000) // die "somebody else has the lock\n";
say "token: $token";
sleep 600;    # The work. $holder stays in scope.
$holder->$release('orders:import', $owner, 'LEVEL', 1);
