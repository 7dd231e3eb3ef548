/* Work under a lock that lasts as long as this process: the server renews its lease by itself. */

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

int main(void) {
    const char *port = getenv("PORT");
    redisContext *node = redisConnect("127.0.0.1", port ? atoi(port) : 6379);
    unsigned char owner[16]; /* New for each acquisition. */
    if (node == NULL || node->err || getrandom(owner, sizeof owner, 0) != sizeof owner) return EXIT_FAILURE;
    redisReply *reply = redisCommand(node, "LOCK.ACQUIRE orders:import %b 2000 KEEPALIVE 3600000", owner, sizeof owner);
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER) return EXIT_FAILURE; /* Somebody else has it, or an error. */
    printf("token: %lld\n", reply->integer);
    fflush(stdout);
    freeReplyObject(reply);
    sleep(600); /* The work. The context stays as it is: not freed, not reconnected. */
    freeReplyObject(redisCommand(node, "LOCK.RELEASE orders:import %b LEVEL 1", owner, sizeof owner));
    redisFree(node);
}
