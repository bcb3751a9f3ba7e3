/* SPDX-License-Identifier: Apache-2.0 */
/* judge: counts in a journal (bench/journal.h) the handlings that overlap or are out of order, and
 * computes times.
 *
 *     judge FOLDER [--produced FILE]
 *
 * Reads all files of FOLDER except *.progress, and prints one JSON object. A handling is one line
 * of the journal.
 *   handled, distinct    number of handlings, and of different (partition, offset) among them
 *   duplicates           handled − distinct
 *   keys                 number of different keys
 *   overlaps             handlings that began while another handling of the same key was running
 *   misordered           handlings that began after a handling of the same key and partition with a
 *                        larger offset had begun. A message that is handled again counts as a
 *                        duplicate, not as misordered.
 *   first_us, last_us    start of the first handling, end of the handling that ended last
 *   mean_us              mean time of a handling
 *   busiest              the key with the most handlings, and the count and mean duration of these
 *                        handlings. Count times duration is the shortest time in which one handler
 *                        per key can finish.
 *   latency_us           with --produced: for each message in FILE, the time from PRODUCED_US to
 *                        the start and to the end of its first handling, as n, p50, p90, p99, max.
 *                        FILE has lines `PARTITION OFFSET PRODUCED_US`.
 *   missing              with --produced: number of messages that were never handled
 * The exit status is 1 if a line is malformed or if a file cannot be read. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, KEY_MAX = 512 };

struct handling {
    int64_t start_us, end_us, offset;
    const char *key;
    uint64_t hash;
    int32_t partition;
};

struct produced {
    int64_t at_us, offset;
    int32_t partition;
};

static struct {
    struct handling *p;
    size_t n, cap;
} all;
static struct {
    struct produced *p;
    size_t n, cap;
} made;

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void die(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs("judge: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void *grow(void *p, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return p;
    *cap = *cap ? *cap * 2 : 4096;
    if (!(p = realloc(p, *cap * size))) die("out of memory");
    return p;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Reads the number at *text, and moves *text past the separator after the number. Returns false if
 * there is no number, or if another character than the separator follows it. */
static bool take(char **text, char separator, int64_t *out) {
    char *end;
    errno = 0;
    long long n = strtoll(*text, &end, 10);
    if (errno || end == *text || *end != separator) return false;
    *out = n;
    *text = separator ? end + 1 : end;
    return true;
}

static uint64_t fnv(const char *p) {
    uint64_t h = 14695981039346656037ULL;
    for (; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211ULL;
    return h;
}

static bool read_handling(char *line) {
    struct handling h = {0};
    int64_t partition;
    if (!take(&line, ' ', &h.start_us) || !take(&line, ' ', &h.end_us)) return false;
    char *space = strchr(line, ' ');
    if (!space || space == line || space - line > KEY_MAX) return false;
    *space = 0;
    char *rest = space + 1;
    if (!take(&rest, ' ', &partition) || !take(&rest, 0, &h.offset)) return false;
    if (partition < 0 || partition > INT32_MAX || h.offset < 0 || h.end_us < h.start_us)
        return false;
    h.partition = (int32_t)partition;
    h.hash = fnv(line);
    if (!(h.key = strdup(line))) die("out of memory");
    all.p = grow(all.p, all.n, &all.cap, sizeof *all.p);
    all.p[all.n++] = h;
    return true;
}

static bool read_produced(char *line) {
    struct produced m = {0};
    int64_t partition;
    if (!take(&line, ' ', &partition) || !take(&line, ' ', &m.offset) || !take(&line, 0, &m.at_us))
        return false;
    if (partition < 0 || partition > INT32_MAX) return false;
    m.partition = (int32_t)partition;
    made.p = grow(made.p, made.n, &made.cap, sizeof *made.p);
    made.p[made.n++] = m;
    return true;
}

static void read_file(const char *path, bool (*one)(char *)) {
    FILE *f = fopen(path, "re");
    if (!f) die("%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t cap = 0, number = 0;
    for (ssize_t n; (n = getline(&line, &cap, f)) > 0;) {
        number++;
        if (line[n - 1] != '\n')
            die("%s:%zu: torn: the process did not close its journal", path, number);
        line[n - 1] = 0;
        if (!one(line)) die("%s:%zu: not of the form", path, number);
    }
    if (ferror(f)) die("%s: %s", path, strerror(errno));
    free(line);
    fclose(f);
}

static void read_folder(const char *folder) {
    DIR *d = opendir(folder);
    if (!d) die("%s: %s", folder, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        char path[PATH_BYTES];
        const char *dot = strrchr(e->d_name, '.');
        if (e->d_name[0] == '.' || (dot && !strcmp(dot, ".progress"))) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path)
            die("%s: too long a name", e->d_name);
        read_file(path, read_handling);
    }
    closedir(d);
}

/* --- judging ---------------------------------------------------------------------------------- */

static int order(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_key(const struct handling *a, const struct handling *b) {
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return strcmp(a->key, b->key);
}

static int by_key_start(const void *x, const void *y) {
    const struct handling *a = x, *b = y;
    int c = by_key(a, b);
    if (!c) c = order(a->start_us, b->start_us);
    return c ? c : order(a->end_us, b->end_us);
}

static int by_source_start(const void *x, const void *y) {
    const struct handling *a = x, *b = y;
    int c = order(a->partition, b->partition);
    if (!c) c = by_key(a, b);
    if (!c) c = order(a->start_us, b->start_us);
    if (!c) c = order(a->end_us, b->end_us);
    /* If two handlings have equal times, their order is unknown, so they count as ordered by
     * offset. */
    return c ? c : order(a->offset, b->offset);
}

static int by_identity(const void *x, const void *y) {
    const struct handling *a = x, *b = y;
    int c = order(a->partition, b->partition);
    if (!c) c = order(a->offset, b->offset);
    return c ? c : order(a->start_us, b->start_us);
}

static int by_produced(const void *x, const void *y) {
    const struct produced *a = x, *b = y;
    int c = order(a->partition, b->partition);
    return c ? c : order(a->offset, b->offset);
}

static int by_size(const void *x, const void *y) {
    return order(*(const int64_t *)x, *(const int64_t *)y);
}

static void judge_keys(void) {
    qsort(all.p, all.n, sizeof *all.p, by_key_start);
    size_t keys = 0, overlaps = 0, most = 0;
    int64_t most_us = 0, sum_us = 0, first = INT64_MAX, last = 0;
    const char *busiest = "";
    for (size_t i = 0; i < all.n;) {
        int64_t busy_until = INT64_MIN, us = 0;
        size_t begin = i;
        do {
            const struct handling *h = &all.p[i];
            overlaps += h->start_us < busy_until;
            if (h->end_us > busy_until) busy_until = h->end_us;
            if (h->start_us < first) first = h->start_us;
            if (h->end_us > last) last = h->end_us;
            us += h->end_us - h->start_us;
        } while (++i < all.n && !by_key(&all.p[i], &all.p[begin]));
        keys++;
        sum_us += us;
        if (i - begin > most) most = i - begin, most_us = us, busiest = all.p[begin].key;
    }
    printf("\"keys\":%zu,\"overlaps\":%zu,\"first_us\":%" PRId64 ",\"last_us\":%" PRId64
           ",\"mean_us\":%.1f,\"busiest\":{\"key\":\"",
           keys, overlaps, all.n ? first : 0, last, all.n ? (double)sum_us / (double)all.n : 0);
    for (const char *c = busiest; *c; c++)
        putchar(*c == '"' || *c == '\\' || (unsigned char)*c < 0x20 ? '?' : *c);
    printf("\",\"count\":%zu,\"mean_us\":%.1f}", most, most ? (double)most_us / (double)most : 0);
}

static bool again(const struct handling *a, const struct handling *b) {
    return a->partition == b->partition && a->offset == b->offset;
}

/* Keeps only the first handling of each message, because repeated handlings do not count for the
 * order. Returns the number of handlings that were removed. */
static size_t keep_firsts(void) {
    qsort(all.p, all.n, sizeof *all.p, by_identity);
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++)
        if (!n || !again(&all.p[n - 1], &all.p[i])) all.p[n++] = all.p[i];
    size_t duplicates = all.n - n;
    all.n = n;
    return duplicates;
}

static size_t count_misordered(void) {
    size_t wrong = 0;
    qsort(all.p, all.n, sizeof *all.p, by_source_start);
    int64_t largest = -1;
    for (size_t i = 0; i < all.n; i++) {
        const struct handling *h = &all.p[i];
        if (!i || h[-1].partition != h->partition || by_key(&h[-1], h)) largest = -1;
        wrong += h->offset < largest;
        if (h->offset > largest) largest = h->offset;
    }
    return wrong;
}

static void print_spread(const char *name, int64_t *us, size_t n) {
    qsort(us, n, sizeof *us, by_size);
    printf("\"%s\":{\"p50\":%" PRId64 ",\"p90\":%" PRId64 ",\"p99\":%" PRId64 ",\"max\":%" PRId64
           "}",
           name, us[n / 2], us[n * 9 / 10], us[n * 99 / 100], us[n - 1]);
}

/* Computes and prints the latencies. `all`, the handlings, must be sorted by identity. This
 * function sorts `made`, the messages of --produced, in the same way, so that one pass can match
 * the two arrays. */
static void judge_latency(void) {
    qsort(made.p, made.n, sizeof *made.p, by_produced);
    int64_t *to_start = calloc(made.n + 1, sizeof *to_start),
            *to_end = calloc(made.n + 1, sizeof *to_end);
    if (!to_start || !to_end) die("out of memory");
    size_t n = 0, h = 0;
    for (size_t i = 0; i < made.n; i++) {
        struct handling wanted = {
            .partition = made.p[i].partition, .offset = made.p[i].offset, .start_us = INT64_MIN};
        while (h < all.n && by_identity(&all.p[h], &wanted) < 0) h++;
        if (h == all.n || !again(&all.p[h], &wanted)) continue;
        to_start[n] = all.p[h].start_us - made.p[i].at_us;
        to_end[n++] = all.p[h].end_us - made.p[i].at_us;
    }
    printf(",\"missing\":%zu,\"latency_us\":{\"n\":%zu", made.n - n, n);
    if (n) {
        putchar(',');
        print_spread("start", to_start, n);
        putchar(',');
        print_spread("end", to_end, n);
    }
    putchar('}');
    free(to_start);
    free(to_end);
}

int main(int argc, char **argv) {
    if (argc != 2 && !(argc == 4 && !strcmp(argv[2], "--produced"))) {
        fputs("usage: judge FOLDER [--produced FILE]\n", stderr);
        return 2;
    }
    read_folder(argv[1]);
    if (argc == 4) read_file(argv[3], read_produced);
    printf("{\"handled\":%zu,", all.n);
    judge_keys();
    size_t duplicates = keep_firsts();
    printf(",\"distinct\":%zu,\"duplicates\":%zu", all.n, duplicates);
    if (argc == 4) judge_latency();
    printf(",\"misordered\":%zu}\n", count_misordered());
    return 0;
}
