/* A lock with hiredis: take it, be refused, wait, write under it, give it back, share it. */

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define KEY "orders:42"
#define DATA "{orders:42}:state" /* One hash slot, for the script on a cluster. */

struct owner {
    unsigned char bytes[16];
};

/* New for each acquisition. */
static struct owner new_owner(void) {
    struct owner owner;
    if (getrandom(&owner, sizeof owner, 0) != sizeof owner) exit(EXIT_FAILURE);
    return owner;
}

/* %b takes bytes and their number. */
#define OWNER(owner) (owner).bytes, sizeof(owner).bytes

/* One request, one answer. No answer at all: the connection is broken and cannot be used again. */
static redisReply *ask(redisContext *node, const char *format, ...) {
    va_list words;
    va_start(words, format);
    redisReply *reply = redisvCommand(node, format, words);
    va_end(words);
    if (reply == NULL) {
        fprintf(stderr, "%s\n", node->errstr);
        exit(EXIT_FAILURE);
    }
    return reply;
}

static long long integer_of(const redisReply *reply) {
    return reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
}

static void print(const char *what, redisReply *reply) {
    switch (reply->type) {
    case REDIS_REPLY_INTEGER: printf("%s: %lld\n", what, reply->integer); break;
    case REDIS_REPLY_NIL: printf("%s: nil\n", what); break;
    /* The first word of an error is stable. */
    case REDIS_REPLY_ERROR: printf("%s: %.*s\n", what, (int)strcspn(reply->str, " "), reply->str); break;
    case REDIS_REPLY_STATUS: printf("%s: %s\n", what, reply->str); break;
    case REDIS_REPLY_ARRAY:
        printf("%s: [%lld", what, integer_of(reply->element[0]));
        for (size_t n = 1; n < reply->elements; n++) printf(", %lld", integer_of(reply->element[n]));
        printf("]\n");
    }
    freeReplyObject(reply);
}

/* Writes only if the token is that of the lock's current grant. */
static redisReply *guarded_set(redisContext *node, long long token, const char *value) {
    return ask(node, "EVAL %s 2 " KEY " " DATA " %lld %s",
               "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end "
               "return redis.error_reply('FENCED by a newer grant')",
               token, value);
}

/* The token of the lock, held for at most ttl ms, after waiting for at most wait ms; 0: it was not to be had. */
static long long lock(redisContext *node, const char *key, struct owner owner, int ttl, int wait) {
    redisReply *reply = redisCommand(node, "LOCK.ACQUIRE %s %b %d WAIT %d RETRY", key, OWNER(owner), ttl, wait);
    long long token = reply != NULL && reply->type == REDIS_REPLY_ARRAY ? integer_of(reply->element[0]) : 0;
    freeReplyObject(reply);
    return token;
}

/* LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up. */
static redisReply *unlock(redisContext *node, const char *key, struct owner owner) {
    return ask(node, "LOCK.RELEASE %s %b LEVEL 1", key, OWNER(owner));
}

int main(void) {
    int port = getenv("PORT") ? atoi(getenv("PORT")) : 6379;
    redisContext *node = redisConnect("127.0.0.1", port);
    /* A command that waits holds up all others on its connection: waits get a connection of their own. */
    redisContext *waiting = redisConnect("127.0.0.1", port);
    if (node == NULL || node->err || waiting == NULL || waiting->err) return EXIT_FAILURE;

    struct owner me = new_owner(), you = new_owner();

    redisReply *reply = ask(node, "LOCK.ACQUIRE " KEY " %b 10000", OWNER(me));
    long long token = integer_of(reply);
    print("acquire", reply);
    print("another owner", ask(node, "LOCK.ACQUIRE " KEY " %b 10000", OWNER(you)));
    print("again", ask(node, "LOCK.ACQUIRE " KEY " %b 10000", OWNER(me)));
    print("again with RETRY", ask(node, "LOCK.ACQUIRE " KEY " %b 10000 RETRY", OWNER(me)));
    print("reenter", ask(node, "LOCK.REENTER " KEY " %b", OWNER(me)));
    print("extend", ask(node, "LOCK.EXTEND " KEY " %b 20000", OWNER(me)));

    /* The server passes the lock on when it is released: no polling. This asks now, and reads the answer later. */
    redisAppendCommand(waiting, "LOCK.ACQUIRE " KEY " %b 10000 WAIT 30000", OWNER(you));
    for (int sent = 0; !sent;) redisBufferWrite(waiting, &sent);
    usleep(100 * 1000);
    print("release", unlock(node, KEY, me));
    if (redisGetReply(waiting, (void **)&reply) != REDIS_OK) return EXIT_FAILURE;
    long long newer = integer_of(reply->element[0]);
    print("wait", reply);

    print("write with the current token", guarded_set(node, newer, "paid"));
    print("write with the old token", guarded_set(node, token, "open"));
    freeReplyObject(unlock(node, KEY, you));

    /* Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number. */
    struct owner writer = new_owner();
    print("read", ask(node, "LOCK.ACQUIRE " KEY " %b 10000 SHARED", OWNER(me)));
    print("read as well", ask(node, "LOCK.ACQUIRE " KEY " %b 10000 SHARED", OWNER(you)));
    print("write meanwhile", ask(node, "LOCK.ACQUIRE " KEY " %b 10000", OWNER(writer)));
    freeReplyObject(unlock(node, KEY, me));
    freeReplyObject(unlock(node, KEY, you));
    print("permit", ask(node, "LOCK.ACQUIRE " KEY " %b 10000 LIMIT 2", OWNER(me)));
    freeReplyObject(unlock(node, KEY, me));

    /* A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here. */
    freeReplyObject(ask(node, "LOCK.GUARD ARM 1500"));
    reply = ask(node, "LOCK.ACQUIRE " KEY " %b 10000", OWNER(me));
    int left_ms = 0;
    if (reply->type == REDIS_REPLY_ERROR && sscanf(reply->str, "GUARDED %d", &left_ms) == 1)
        printf("guarded: GUARDED, try again in %d ms\n", left_ms);
    freeReplyObject(reply);
    usleep(left_ms * 1000);

    struct owner last = new_owner();
    token = lock(waiting, KEY, last, 10000, 30000);
    if (token != 0) printf("lock: %lld\n", token);
    /* In any case: it may have been granted, and the answer lost. */
    freeReplyObject(unlock(node, KEY, last));
    if (token == 0) return EXIT_FAILURE;
    print("after it", ask(node, "LOCK.CHECK " KEY " %lld", token));

    redisFree(waiting);
    redisFree(node);
    return EXIT_SUCCESS;
}
