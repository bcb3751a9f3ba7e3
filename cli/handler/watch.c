/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the files that `latchwork handler test` uses and all other files in their folders, and
 * waits until one of them changes. */
#include "cli/handler/private.h"

#include "base/bytes.h"
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 16, QUIET_MS = 200, LOOK_MS = 100, EVENTS = 4096 };

/* A file that the test uses, and its state when it was last examined. */
struct named {
    char path[PATH_MAX];
    struct timespec changed;
    ino_t inode;
    off_t size;
};

struct handler_watch {
    int fd;
    struct named files[FILES];
    int n_files;
    int folders[FILES];
    /* `binary` is the path of the plugin, or the first word of the command if that word is a path.
     * Otherwise it is "". */
    char binary[PATH_MAX];
    bool changed;
    char name[NAME_MAX + 1]; /* name of the file that changed first */
};

struct handler_watch *handler_watch_open(struct lw_err *err) {
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0) {
        lw_fail(err, "--watch: inotify: %s", strerror(errno));
        return NULL;
    }
    struct handler_watch *w = lw_alloc(sizeof *w);
    w->fd = fd;
    return w;
}

void handler_watch_close(struct handler_watch *w) {
    if (!w) return;
    close(w->fd);
    free(w);
}

/* --- named files ------------------------------------------------------------------------------ */

/* Reads the state of a file. Returns true if the state has changed since the last call. */
static bool look(struct named *f) {
    struct stat st = {0};
    if (stat(f->path, &st)) st = (struct stat){0};
    bool same = st.st_ino == f->inode && st.st_size == f->size &&
                st.st_mtim.tv_sec == f->changed.tv_sec && st.st_mtim.tv_nsec == f->changed.tv_nsec;
    f->inode = st.st_ino;
    f->size = st.st_size;
    f->changed = st.st_mtim;
    return !same;
}

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void note(struct handler_watch *w, const char *name) {
    if (!w->changed) snprintf(w->name, sizeof w->name, "%.*s", NAME_MAX, name);
    w->changed = true;
}

static void add(struct handler_watch *w, const char *path) {
    if (w->n_files == FILES || strlen(path) >= PATH_MAX) return;
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (slash == path) snprintf(folder, sizeof folder, "/");
    struct named *f = &w->files[w->n_files];
    snprintf(f->path, sizeof f->path, "%s", path);
    look(f);
    w->folders[w->n_files++] =
        inotify_add_watch(w->fd, folder, IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE);
}

/* Adds the files of the handler to the watched files. They are the plugin, and each file that a
 * word of the command names by a relative path. */
static void add_handler(struct handler_watch *w, const struct lw_config *c) {
    const json_t *path = json_object_get(c->handler.json, "path"),
                 *command = json_object_get(c->handler.json, "command"), *word;
    size_t i;
    const char *binary = json_string_value(path ? path : json_array_get(command, 0));
    if (binary && strchr(binary, '/')) snprintf(w->binary, sizeof w->binary, "%s", binary);
    if (json_is_string(path)) add(w, json_string_value(path));
    json_array_foreach(command, i, word) {
        const char *text = json_string_value(word);
        if (text && text[0] != '/' && access(text, F_OK) == 0) add(w, text);
    }
}

static void drain(struct handler_watch *w, bool counts) {
    _Alignas(struct inotify_event) char events[EVENTS];
    ssize_t n;
    while ((n = read(w->fd, events, sizeof events)) > 0) {
        const struct inotify_event *e;
        for (char *p = events; p < events + n; p += sizeof *e + e->len) {
            e = (const struct inotify_event *)(const void *)p;
            bool ours = e->len && e->name[0] != '.' && e->name[strlen(e->name) - 1] != '~';
            if (counts && ours) note(w, e->name);
        }
    }
}

void handler_watch_begin(struct handler_watch *w, const char *config, const char *messages,
                         const struct lw_config *c) {
    for (int i = 0; i < w->n_files; i++)
        if (w->folders[i] >= 0) inotify_rm_watch(w->fd, w->folders[i]);
    w->n_files = 0;
    w->binary[0] = '\0';
    w->changed = false;
    drain(w, false);
    add(w, config);
    add(w, messages);
    if (c) add_handler(w, c);
}

void handler_watch_run_over(struct handler_watch *w) {
    drain(w, false);
    for (int i = 0; i < w->n_files; i++)
        if (look(&w->files[i])) note(w, w->files[i].path);
}

/* --- sources ---------------------------------------------------------------------------------- */

static bool is_source(const char *name) {
    static const char *const ends[] = {".go", ".c", ".cc", ".cpp", ".rs", NULL};
    const char *end = strrchr(name, '.');
    for (size_t i = 0; end && ends[i]; i++)
        if (strcmp(end, ends[i]) == 0) return true;
    return false;
}

const char *handler_watch_unbuilt(const struct handler_watch *w, const char *name) {
    const char *slash = strrchr(w->binary, '/');
    if (!slash || !is_source(name)) return NULL;
    char path[PATH_MAX + NAME_MAX];
    struct stat source, binary;
    snprintf(path, sizeof path, "%.*s/%s", (int)(slash - w->binary), w->binary, name);
    if (stat(path, &source) || stat(w->binary, &binary)) return NULL;
    bool newer = source.st_mtim.tv_sec != binary.st_mtim.tv_sec
                     ? source.st_mtim.tv_sec > binary.st_mtim.tv_sec
                     : source.st_mtim.tv_nsec > binary.st_mtim.tv_nsec;
    return newer ? w->binary : NULL;
}

/* --- waiting ---------------------------------------------------------------------------------- */

const char *handler_watch_wait(struct handler_watch *w, const volatile sig_atomic_t *stop) {
    while (!w->changed && !*stop) {
        struct pollfd fd = {w->fd, POLLIN, 0};
        poll(&fd, 1, LOOK_MS);
        drain(w, true);
    }
    for (bool quiet = false; !quiet && !*stop;) {
        struct pollfd fd = {w->fd, POLLIN, 0};
        quiet = poll(&fd, 1, QUIET_MS) == 0;
        drain(w, true);
    }
    /* An editor may write a temporary file and rename it. So if a file that the test uses has
     * changed, its name is returned instead of the name of the temporary file. */
    for (int i = 0; i < w->n_files; i++)
        if (look(&w->files[i]))
            snprintf(w->name, sizeof w->name, "%.*s", NAME_MAX, file_name(w->files[i].path));
    w->changed = false;
    return *stop ? NULL : w->name;
}
