/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the programs in this folder share: the command line, clocks, random numbers, Redis.
 *
 * Each program measures how fast one bare operation is, and prints one line of JSON on stdout. No
 * queue that needs this operation can be faster. All times are in µs of CLOCK_MONOTONIC, so that
 * they can be compared with the times of other processes on the same machine (Java reads this clock
 * by System.nanoTime). After any failure a program ends with a text on stderr and status 1, or
 * status 2 for wrong usage. */
#ifndef LW_BENCH_LIMITS_TOOL_H
#define LW_BENCH_LIMITS_TOOL_H

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

/* One option, --name VALUE. The value is a text, or a number from min to max. The variable that the
 * option sets contains the default. If the default is NULL or a negative number, the option is
 * required. */
struct tool_option {
    const char *name, *help;
    /* Either `text` or `number` points to the variable that the option sets. The other pointer is
     * NULL. */
    const char **text;
    int64_t *number;
    int64_t min, max;
};

/* Parses the command line. The option --help prints `about`, whose lines all end with a newline,
 * and the list of options. */
void tool_options(int argc, char **argv, const char *about, const struct tool_option *options,
                  size_t n);
_Noreturn void tool_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

int64_t tool_now_us(void);
int64_t tool_own_cpu_us(void);       /* returns the CPU time of this process, user and system */
uint64_t tool_draw(uint64_t *state); /* returns the generator's next number, by splitmix64 */

/* Connects to a unix socket. The program ends if any command is not answered within 10 s. */
redisContext *tool_redis(const char *path);
/* Sends a command and returns its reply, which the caller frees. The program ends if the reply
 * is an error. */
redisReply *tool_ask(redisContext *redis, const char *fmt, ...);
/* Returns the CPU time of the Redis server, user and system. */
int64_t tool_redis_cpu_us(redisContext *redis);

#endif
