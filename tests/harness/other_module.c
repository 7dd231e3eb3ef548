/* Another module: its command CALL runs the command that follows it, without a user and without a connection. */
#include <stddef.h>

typedef int (*Command)(void *ctx, void **argv, int argc);

static void *(*call)(void *ctx, const char *command, const char *format, ...);
static int (*reply)(void *ctx, void *reply);
static const char *(*text)(void *string, size_t *len);

static int run(void *ctx, void **argv, int argc) {
    return reply(ctx, call(ctx, text(argv[1], NULL), "v", argv + 2, (size_t)argc - 2));
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
    get("RedisModule_StringPtrLen", &text);
    name(ctx, "other", 1, 1);
    return create(ctx, "other.call", run, "write", 0, 0, 0);
}
