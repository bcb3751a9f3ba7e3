/* SPDX-License-Identifier: Apache-2.0 */
/* Expands ${VAR}, ${VAR:-default} and ${file:PATH} in strings. PATH itself may contain ${VAR} and
 * ${VAR:-default}. $${ stands for a literal ${. */
#include "config/option.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct expansion {
    struct lw_loader *l;
    const char *path;
    struct lw_buf out;
    /* true if the text is the PATH of a ${file:PATH}, which must not contain another ${file:…} */
    bool in_path;
    bool from_file, failed;
};

const struct lw_expanded *lw_was_expanded(const struct lw_loader *l, const json_t *v) {
    for (size_t i = 0; i < l->n_expanded; i++)
        if (l->expanded[i].string == v) return &l->expanded[i];
    return NULL;
}

bool lw_unusable(const struct lw_loader *l, const json_t *v) {
    const struct lw_expanded *was = lw_was_expanded(l, v);
    return was && was->failed;
}

static void remember(struct lw_loader *l, json_t *v, char *raw, const struct expansion *x) {
    l->expanded = lw_realloc(l->expanded, (l->n_expanded + 1) * sizeof *l->expanded);
    l->expanded[l->n_expanded++] =
        (struct lw_expanded){json_incref(v), raw, x->from_file, x->failed};
}

void lw_expand_free(struct lw_loader *l) {
    for (size_t i = 0; i < l->n_expanded; i++) {
        json_decref(l->expanded[i].string);
        free(l->expanded[i].raw);
    }
    free(l->expanded);
    l->expanded = NULL;
    l->n_expanded = 0;
}

/* Reports a problem. `what` is a format string with one %s, which `name` replaces. */
#define FAIL(x, what, name) \
    ((x)->failed = true, lw_problem((x)->l->problems, "%s: " what, (x)->path, name))

static void file_problem(struct expansion *x, const char *path, const char *why) {
    x->failed = true;
    lw_problem(x->l->problems, "%s: file %.200s: %s", x->path, path, why);
}

/* Opens a file for reading. Returns -1 with *why if the file cannot be opened or is a named pipe,
 * because a pipe cannot be read again at the next reload. O_NONBLOCK keeps open() from blocking on
 * a named pipe. */
static int open_file(const char *path, const char **why) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)) {
        *why = "is a named pipe, which cannot be read again at a reload; expected a file";
        close(fd);
        return -1;
    }
    if (fd < 0) *why = strerror(errno);
    return fd;
}

/* Appends the content of a file, which may have up to LW_SECRET_FILE_MAX bytes. `shown` is the path
 * as it stands in the configuration. Error messages show this path, because the values of variables
 * must not be printed. */
static void put_file(struct expansion *x, const char *path, const char *shown) {
    char buf[LW_SECRET_FILE_MAX + 1];
    size_t n = 0;
    ssize_t got = -1;
    const char *why = "";
    x->from_file = true;
    int fd = open_file(path, &why);
    while (fd >= 0 && n < sizeof buf && (got = read(fd, buf + n, sizeof buf - n)) > 0)
        n += (size_t)got;
    if (fd >= 0 && got < 0) why = strerror(errno);
    if (fd >= 0) close(fd);
    if (got < 0)
        file_problem(x, shown, why);
    else if (n >= sizeof buf)
        file_problem(x, shown, "larger than 64 KiB");
    else if (memchr(buf, '\0', n))
        file_problem(x, shown, "holds a NUL byte");
    else {
        if (n && buf[n - 1] == '\n') n--;
        if (n && buf[n - 1] == '\r') n--;
        lw_buf_add(&x->out, buf, n);
    }
}

static bool is_name(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(s[i] == '_' || (s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= 'a' && s[i] <= 'z') ||
              (i && s[i] >= '0' && s[i] <= '9')))
            return false;
    return n > 0;
}

static void expand_text(struct expansion *x, const char *p);

static bool is_file(const char *body) { return !strncmp(body, "file:", 5); }

static void put_file_of(struct expansion *x, const char *text) {
    struct expansion path = {.l = x->l, .path = x->path, .in_path = true};
    expand_text(&path, text);
    lw_buf_add(&path.out, "", 1);
    if (path.failed)
        x->failed = true;
    else
        put_file(x, path.out.p, text);
    lw_buf_free(&path.out);
}

/* Expands one reference, whose text stands between ${ and }. */
static void put_reference(struct expansion *x, const char *body) {
    if (is_file(body)) {
        if (x->in_path)
            FAIL(x, "${%.100s} in the path of a file: write ${VAR} or ${VAR:-default} there", body);
        else
            put_file_of(x, body + 5);
        return;
    }
    size_t n = strcspn(body, ":");
    bool has_default = body[n] && body[n + 1] == '-';
    if (!is_name(body, n) || (body[n] && !has_default)) {
        FAIL(x,
             "${%.100s}: write ${VAR}, ${VAR:-default} or ${file:PATH}, and $${ for a literal ${",
             body);
        return;
    }
    char *name = lw_memdup(body, n);
    const char *value = getenv(name);
    if ((!value || !*value) && has_default) value = body + n + 2;
    if (value)
        lw_buf_addf(&x->out, "%s", value);
    else
        FAIL(x, "variable %.200s is not set (a default is given with ${VAR:-default})", name);
    free(name);
}

/* Returns the } that ends the reference whose text begins at `body`, or NULL if there is none. */
static const char *end_of(const char *body) {
    bool nests = is_file(body);
    for (const char *p = body; p && *p; p++) {
        if (*p == '}') return p;
        if (nests && !strncmp(p, "${", 2) && !(p = strchr(p, '}'))) return NULL;
    }
    return NULL;
}

static void expand_text(struct expansion *x, const char *p) {
    while (*p) {
        const char *end;
        if (!strncmp(p, "$${", 3)) {
            lw_buf_add(&x->out, "${", 2);
            p += 3;
        } else if (strncmp(p, "${", 2)) {
            lw_buf_add(&x->out, p++, 1);
        } else if ((end = end_of(p + 2))) {
            char *body = lw_memdup(p + 2, (size_t)(end - p - 2));
            put_reference(x, body);
            free(body);
            p = end + 1;
        } else {
            FAIL(x, "a ${ without its }%s (write $${ for a literal ${)", "");
            return;
        }
    }
}

static void expand_string(struct lw_loader *l, const char *path, json_t *v) {
    const char *raw = json_string_value(v);
    if (!strstr(raw, "${")) return;
    struct expansion x = {.l = l, .path = path};
    expand_text(&x, raw);
    if (x.out.n > LW_CONFIG_BYTES_MAX) FAIL(&x, "what was put in is longer than 1 MiB%s", "");
    char *was = lw_strdup(raw);
    if (!x.failed && json_string_setn(v, x.out.n ? x.out.p : "", x.out.n))
        FAIL(&x, "what was put in is not UTF-8%s", "");
    remember(l, v, was, &x);
    lw_buf_free(&x.out);
}

/* Expands every string in v and in the values below it. The JSON parser limits the depth of the
 * recursion. */
void lw_expand(struct lw_loader *l, const char *path, json_t *v) {
    char below[256];
    const char *name;
    json_t *item;
    size_t i;
    if (json_is_string(v)) expand_string(l, path, v);
    json_object_foreach(v, name, item) {
        snprintf(below, sizeof below, "%s%s%.100s", path, *path ? "." : "", name);
        lw_expand(l, below, item);
    }
    json_array_foreach(v, i, item) {
        snprintf(below, sizeof below, "%.200s[%zu]", path, i);
        lw_expand(l, below, item);
    }
}
