/* Preloaded into the program: the process that becomes its command takes START_TAKES_US microseconds to start. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void start(int count, char **arguments) {
    const char *time = getenv("START_TAKES_US");
    if (time && count > 0 && strcmp(arguments[0], "palisade-start") == 0) usleep(atoi(time));
}
