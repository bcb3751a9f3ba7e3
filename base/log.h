/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one line per event on stderr, text or JSON (log.format), written with one write(2) so
 * that the lines of several processes do not mix. Any thread may call these functions. Never log
 * payloads or secrets; log keys only at debug level. */
#ifndef LW_BASE_LOG_H
#define LW_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum lw_log_level { LW_LOG_DEBUG, LW_LOG_INFO, LW_LOG_WARN, LW_LOG_ERROR, LW_LOG_OFF };

/* Sets what the log shows from now on. `who` is the name of the process in each line, such as
 * "supervisor" or "worker 2"; at most 31 bytes of it are copied. */
void lw_log_setup(enum lw_log_level level, bool json, const char *who);
bool lw_log_on(enum lw_log_level level);
void lw_log(enum lw_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes a text as it stands in a text line of the log: as valid UTF-8, with escapes for control
 * characters and those that nobody sees or that change the order in which the rest is shown. What
 * does not fit into `size` bytes, of which at least 16 are needed, is cut off. */
void lw_log_plain(char *out, size_t size, const char *text);

/* A named value beside the text of a log line, for programs that read the log. In a text line it is
 * appended as name=value, quoted if necessary; in JSON it is a member of the object. */
struct lw_log_field {
    const char *name;
    const char *text; /* the value if it is a text; NULL if the value is `number` */
    long long number;
};
void lw_log_with(enum lw_log_level level, const struct lw_log_field *f, int n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Writes a line that may come many times, such as one about a single message or one that every call
 * during an outage repeats. Of the lines of one call site, at most `burst` are written in
 * LW_LOG_SOME_MS; the others are counted. The count is written with the next line of the site, or
 * when any line is written later than LW_LOG_SOME_MS. */
enum { LW_LOG_SOME_MS = 10000 };
struct lw_log_some {
    struct lw_log_some *next; /* all sites that have written a line */
    long long since_ms;       /* start of the current interval; boot clock */
    unsigned written, left_out;
    enum lw_log_level level;
    char last[120]; /* beginning of the last line that was left out */
};
void lw_log_some(struct lw_log_some *site, unsigned burst, enum lw_log_level level,
                 const struct lw_log_field *f, int n, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
#define lw_some(burst, level, f, n, ...)                              \
    do {                                                              \
        static struct lw_log_some site_;                              \
        lw_log_some(&site_, (burst), (level), (f), (n), __VA_ARGS__); \
    } while (0)
#define lw_warn_some(burst, ...) lw_some(burst, LW_LOG_WARN, NULL, 0, __VA_ARGS__)

#define lw_debug(...)                                                   \
    do {                                                                \
        if (lw_log_on(LW_LOG_DEBUG)) lw_log(LW_LOG_DEBUG, __VA_ARGS__); \
    } while (0)
#define lw_info(...) lw_log(LW_LOG_INFO, __VA_ARGS__)
#define lw_warn(...) lw_log(LW_LOG_WARN, __VA_ARGS__)
#define lw_error(...) lw_log(LW_LOG_ERROR, __VA_ARGS__)

#endif
