/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of this folder share: the command line, clocks, random numbers, Redis.
 *
 * Each program measures one bare thing, a limit that no queue can pass, and prints one line of JSON on stdout. All times are microseconds
 * of CLOCK_MONOTONIC, which other processes of the same machine read too (Java: System.nanoTime). Whatever goes wrong ends the program:
 * a text on stderr and status 1, status 2 for wrong usage. */
#ifndef LW_BENCH_LIMITS_TOOL_H
#define LW_BENCH_LIMITS_TOOL_H

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

/* One option, --name VALUE: a text, or a number from min to max. The variable holds the default; a
 * NULL text or a negative number means that the option is required. */
struct tool_option {
    const char *name, *help;
    const char **text; /* either `text` or `number` is set */
    int64_t *number;
    int64_t min, max;
};

/* Parses the command line; --help prints `about` (lines, each with a newline) and the options. */
void tool_options(int argc, char **argv, const char *about, const struct tool_option *options, size_t n);
_Noreturn void tool_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

int64_t tool_now_us(void);
int64_t tool_own_cpu_us(void);       /* of this process, user and system */
uint64_t tool_draw(uint64_t *state); /* splitmix64 */

/* Connects to a unix socket. The program ends if a command is not answered within 10 s. */
redisContext *tool_redis(const char *path);
/* Returns a reply that is not an error; the caller frees it. */
redisReply *tool_ask(redisContext *redis, const char *fmt, ...);
int64_t tool_redis_cpu_us(redisContext *redis); /* of the server, user and system */

#endif
