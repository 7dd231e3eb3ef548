/* Another module. Its command CALL runs the command that follows it, without a user and without a connection. WAIT does so
 * too, and lets that command block (Redis from 7.2). AS runs a command as a user of this module: name, keys, command. From
 * REACT on the module acquires every lock whose lease ends, and breaks every lock that is released. */
#include <stddef.h>
#include <string.h>

typedef int (*Command)(void *ctx, void **argv, int argc);

static void *(*call)(void *ctx, const char *command, const char *format, ...);
static int (*reply)(void *ctx, void *reply);
static int (*reply_null)(void *ctx);
static int (*reply_type)(void *reply);
static const char *(*text)(void *string, size_t *len);
static void *(*create_user)(const char *name);
static int (*set_acl)(void *user, const char *rule);
static void (*set_user)(void *ctx, void *user);
static void (*free_reply)(void *reply);
static int (*subscribe)(void *ctx, int kinds, int (*on_event)(void *ctx, int kind, const char *event, void *key));

static int run(void *ctx, void **argv, int argc) {
    return reply(ctx, call(ctx, text(argv[1], NULL), "v", argv + 2, (size_t)argc - 2));
}

static int run_blocking(void *ctx, void **argv, int argc) {
    void *told = call(ctx, text(argv[1], NULL), "KEv", argv + 2, (size_t)argc - 2);
    /* 12 is a promise: the command blocks, and answers later. */
    return told == NULL || reply_type(told) == 12 ? reply_null(ctx) : reply(ctx, told);
}

static int run_as(void *ctx, void **argv, int argc) {
    void *user = create_user(text(argv[1], NULL));
    set_acl(user, "on"), set_acl(user, "+@all"), set_acl(user, text(argv[2], NULL));
    set_user(ctx, user);
    return reply(ctx, call(ctx, text(argv[3], NULL), "CEv", argv + 4, (size_t)argc - 4));
}

static int on_event(void *ctx, int kind, const char *event, void *key) {
    void *told = NULL;
    (void)kind;
    if (strcmp(event, "lock.expire") == 0) told = call(ctx, "LOCK.ACQUIRE", "!scc", key, "other", "60000");
    if (strcmp(event, "lock.release") == 0) told = call(ctx, "LOCK.BREAK", "!s", key);
    if (told != NULL) free_reply(told);
    return 0;
}

static int react(void *ctx, void **argv, int argc) {
    (void)argv, (void)argc;
    subscribe(ctx, 1 << 13, on_event); /* REDISMODULE_NOTIFY_MODULE */
    return reply_null(ctx);
}

int RedisModule_OnLoad(void **ctx, void **argv, int argc) {
    int (*get)(const char *name, void *function) = (int (*)(const char *, void *))ctx[0];
    void (*name)(void *ctx, const char *name, int version, int api);
    int (*create)(void *ctx, const char *name, Command run, const char *flags, int first, int last, int step);
    (void)argv, (void)argc;
    get("RedisModule_SetModuleAttribs", &name);
    get("RedisModule_CreateCommand", &create);
    get("RedisModule_Call", &call);
    get("RedisModule_ReplyWithCallReply", &reply);
    get("RedisModule_ReplyWithNull", &reply_null);
    get("RedisModule_CallReplyType", &reply_type);
    get("RedisModule_StringPtrLen", &text);
    get("RedisModule_CreateModuleUser", &create_user);
    get("RedisModule_SetModuleUserACL", &set_acl);
    get("RedisModule_SetContextUser", &set_user);
    get("RedisModule_FreeCallReply", &free_reply);
    get("RedisModule_SubscribeToKeyspaceEvents", &subscribe);
    name(ctx, "other", 1, 1);
    create(ctx, "other.react", react, "write", 0, 0, 0);
    create(ctx, "other.wait", run_blocking, "write", 0, 0, 0);
    create(ctx, "other.as", run_as, "write", 0, 0, 0);
    return create(ctx, "other.call", run, "write", 0, 0, 0);
}
