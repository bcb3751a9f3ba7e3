/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    enum lw_log_level level;
    bool json;
    char who[32];
} log_to = {.level = LW_LOG_INFO, .who = "latchwork"};

static const char *const level_name[] = {"debug", "info", "warn", "error", "off"};

void lw_log_setup(enum lw_log_level level, bool json, const char *who) {
    log_to.level = level;
    log_to.json = json;
    snprintf(log_to.who, sizeof log_to.who, "%s", who);
}

bool lw_log_on(enum lw_log_level level) { return level >= log_to.level; }

/* Writes a text into a line of the log. Control characters are replaced, because a line break in
 * the text could forge another line of the log. In JSON, quotes are escaped as well. */
static size_t put_text(char *out, size_t room, const char *text, bool json) {
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p && n + 7 < room; p++) {
        if (json && (*p == '"' || *p == '\\')) {
            out[n++] = '\\';
            out[n++] = (char)*p;
        } else if (*p < 0x20 || *p == 0x7f) {
            n += (size_t)snprintf(out + n, room - n, json ? "\\u%04x" : "\\x%02x", *p);
        } else {
            out[n++] = (char)*p;
        }
    }
    return n;
}

static size_t put_field(char *out, size_t room, const struct lw_log_field *f, bool json) {
    if (room < 128) return 0; /* leave the field out if the line is nearly full */
    size_t n = (size_t)snprintf(out, room, json ? ",\"%.40s\":" : " %.40s=", f->name);
    if (!f->text) return n + (size_t)snprintf(out + n, room - n, "%lld", f->number);
    bool quote = json || !*f->text || strpbrk(f->text, " \"=\\");
    if (quote) out[n++] = '"';
    n += put_text(out + n, room - n - 1, f->text, quote);
    if (quote) out[n++] = '"';
    return n;
}

__attribute__((format(printf, 4, 0))) static void write_line(enum lw_log_level level,
                                                             const struct lw_log_field *f,
                                                             int n_fields, const char *fmt,
                                                             va_list ap) {
    char text[2048], line[8192], when[40];
    vsnprintf(text, sizeof text, fmt, ap);
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    size_t w = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when + w, sizeof when - w, ".%03ldZ", ts.tv_nsec / 1000000);
    size_t n;
    if (log_to.json) {
        n = (size_t)snprintf(line, sizeof line,
                             "{\"time\":\"%s\",\"level\":\"%s\",\"who\":\"%s\",\"text\":\"", when,
                             level_name[level], log_to.who);
        n += put_text(line + n, sizeof line - n - 4, text, true);
        line[n++] = '"';
    } else {
        n = (size_t)snprintf(line, sizeof line, "%s %-5s %s: ", when, level_name[level],
                             log_to.who);
        n += put_text(line + n, sizeof line - n - 2, text, false);
    }
    for (int i = 0; i < n_fields; i++)
        n += put_field(line + n, sizeof line - n - 3, &f[i], log_to.json);
    if (log_to.json) line[n++] = '}';
    line[n++] = '\n';
    /* a failed write to stderr cannot be reported anywhere */
    if (write(STDERR_FILENO, line, n) < 0) return;
}

void lw_log(enum lw_log_level level, const char *fmt, ...) {
    if (!lw_log_on(level)) return;
    va_list ap;
    va_start(ap, fmt);
    write_line(level, NULL, 0, fmt, ap);
    va_end(ap);
}

void lw_log_with(enum lw_log_level level, const struct lw_log_field *f, int n, const char *fmt,
                 ...) {
    if (!lw_log_on(level)) return;
    va_list ap;
    va_start(ap, fmt);
    write_line(level, f, n, fmt, ap);
    va_end(ap);
}
