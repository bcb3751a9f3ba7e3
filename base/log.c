/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
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

/* Reads one character of UTF-8. Returns its length in bytes, or 0 if the bytes are not UTF-8. */
static size_t character(const unsigned char *p, unsigned *code) {
    if (*p < 0x80) return *code = *p, 1;
    size_t n = *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (*p < 0xc2 || *p > 0xf4) return 0;
    *code = *p & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (p[i] & 0x3f);
    }
    return *code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : n;
}

/* Returns true for a character that must not reach a terminal or another program as it is: C0 and
 * C1 controls, line and paragraph separators, the controls of writing direction, which change the
 * order in which the rest of the line is shown, and characters that nobody sees, with which two
 * different names look the same. The page (HIDDEN in app.js) marks the same ones. */
static bool is_control(unsigned c) {
    static const unsigned ranges[][2] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},      {0x61c, 0x61c},   {0x115f, 0x1160},
        {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f}, {0x3164, 0x3164},
        {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c <= ranges[i][1]) return c >= ranges[i][0];
    return false;
}

/* Writes a text into a line of the log, as valid UTF-8 whatever the text is. Control characters
 * become escapes, because a line break in the text could forge another line of the log. A byte that
 * is not UTF-8 becomes \xNN in a text line, and U+FFFD in JSON, which has no bytes. If `quoted` is
 * true, quotes and backslashes are escaped. */
static size_t put_text(char *out, size_t room, const char *text, bool json, bool quoted) {
    size_t n = 0;
    unsigned c = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p && n + 13 < room;) {
        size_t bytes = character(p, &c);
        if (!bytes && json) {
            n += (size_t)snprintf(out + n, room - n, "\xef\xbf\xbd");
        } else if (!bytes || (bytes == 1 && is_control(c) && !json)) {
            n += (size_t)snprintf(out + n, room - n, "\\x%02x", *p);
        } else if (is_control(c) && c > 0xffff) {
            n += (size_t)snprintf(out + n, room - n, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10),
                                  0xdc00 + (c & 0x3ff));
        } else if (is_control(c)) {
            n += (size_t)snprintf(out + n, room - n, "\\u%04x", c);
        } else if (quoted && (*p == '"' || *p == '\\')) {
            out[n++] = '\\';
            out[n++] = (char)*p;
        } else {
            memcpy(out + n, p, bytes);
            n += bytes;
        }
        p += bytes ? bytes : 1;
    }
    return n;
}

void lw_log_plain(char *out, size_t size, const char *text) {
    out[put_text(out, size, text, false, false)] = '\0';
}

/* Returns true if a text could be taken for fields, or for a text with fields behind it: it has a
 * word with an equals sign at its beginning or after a space, or begins with a quote. */
static bool imitates(const char *text) {
    if (*text == '"') return true;
    for (const char *at = text; (at = strchr(at, '=')); at++) {
        const char *word = at;
        while (word > text && (word[-1] == '_' || (word[-1] >= 'a' && word[-1] <= 'z'))) word--;
        if (word < at && (word == text || word[-1] == ' ')) return true;
    }
    return false;
}

static size_t put_field(char *out, size_t room, const struct lw_log_field *f, bool json) {
    if (room < 128) return 0; /* leave the field out if the line is nearly full */
    size_t n = (size_t)snprintf(out, room, json ? ",\"%.40s\":" : " %.40s=", f->name);
    if (!f->text) return n + (size_t)snprintf(out + n, room - n, "%lld", f->number);
    bool quote = json || !*f->text || strpbrk(f->text, " \"=\\");
    if (quote) out[n++] = '"';
    n += put_text(out + n, room - n - 1, f->text, json, quote);
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
        n += put_text(line + n, sizeof line - n - 4, text, true, true);
        line[n++] = '"';
    } else {
        n = (size_t)snprintf(line, sizeof line, "%s %-5s %s: ", when, level_name[level],
                             log_to.who);
        bool quote = imitates(text);
        if (quote) line[n++] = '"';
        n += put_text(line + n, sizeof line - n - 3, text, false, quote);
        if (quote) line[n++] = '"';
    }
    for (int i = 0; i < n_fields; i++)
        n += put_field(line + n, sizeof line - n - 3, &f[i], log_to.json);
    if (log_to.json) line[n++] = '}';
    line[n++] = '\n';
    /* a failed write to stderr cannot be reported anywhere */
    if (write(STDERR_FILENO, line, n) < 0) return;
}

/* --- lines that come many times --------------------------------------------------------------- */

/* `due_ms` is the time at which the first count of lines that were left out is due; 0: none. */
static struct {
    pthread_mutex_t lock;
    struct lw_log_some *sites;
    _Atomic long long due_ms;
} some = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((format(printf, 2, 3))) static void write_now(enum lw_log_level level,
                                                            const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    write_line(level, NULL, 0, fmt, ap);
    va_end(ap);
}

/* Begins a new interval of a site, and writes how many lines the last one left out. Under the
 * lock. */
static void begin_interval(struct lw_log_some *site, long long now) {
    if (site->left_out)
        write_now(site->level, "%u more lines in %lld ms were left out, such as: %s",
                  site->left_out, now - site->since_ms, site->last);
    site->since_ms = now;
    site->written = site->left_out = 0;
}

static void write_counts(void) {
    long long due = atomic_load(&some.due_ms);
    if (!due || lw_boot_ms() < due) return;
    pthread_mutex_lock(&some.lock);
    long long now = lw_boot_ms(), next = 0;
    for (struct lw_log_some *s = some.sites; s; s = s->next) {
        if (s->left_out && now - s->since_ms >= LW_LOG_SOME_MS) begin_interval(s, now);
        if (s->left_out && (!next || s->since_ms + LW_LOG_SOME_MS < next))
            next = s->since_ms + LW_LOG_SOME_MS;
    }
    atomic_store(&some.due_ms, next);
    pthread_mutex_unlock(&some.lock);
}

/* Returns true if the line may be written. Otherwise the caller passes it to left_out(). */
static bool may_write(struct lw_log_some *site, unsigned burst, enum lw_log_level level,
                      long long now) {
    if (!site->since_ms) {
        site->next = some.sites;
        some.sites = site;
        site->since_ms = now;
    }
    site->level = level;
    if (now - site->since_ms >= LW_LOG_SOME_MS) begin_interval(site, now);
    return site->written < burst && ++site->written;
}

void lw_log_some(struct lw_log_some *site, unsigned burst, enum lw_log_level level,
                 const struct lw_log_field *f, int n, const char *fmt, ...) {
    if (!lw_log_on(level)) return;
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&some.lock);
    bool writes = may_write(site, burst, level, lw_boot_ms());
    if (!writes) {
        vsnprintf(site->last, sizeof site->last, fmt, ap);
        if (!site->left_out++ && !atomic_load(&some.due_ms))
            atomic_store(&some.due_ms, site->since_ms + LW_LOG_SOME_MS);
    }
    pthread_mutex_unlock(&some.lock);
    if (writes) write_line(level, f, n, fmt, ap);
    va_end(ap);
    write_counts();
}

void lw_log(enum lw_log_level level, const char *fmt, ...) {
    if (!lw_log_on(level)) return;
    va_list ap;
    va_start(ap, fmt);
    write_line(level, NULL, 0, fmt, ap);
    va_end(ap);
    write_counts();
}

void lw_log_with(enum lw_log_level level, const struct lw_log_field *f, int n, const char *fmt,
                 ...) {
    if (!lw_log_on(level)) return;
    va_list ap;
    va_start(ap, fmt);
    write_line(level, f, n, fmt, ap);
    va_end(ap);
    write_counts();
}
