/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork handler new`, which writes the files of a project from the
 * templates. */
#include "cli/handler/handler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_LONGEST = 64 };
static const char mark[] = "@NAME@";

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Checks the name of a project, which is also used as the name of a folder, a topic, a consumer
 * group and a Go module. */
static bool good_name(const char *name) {
    size_t n = strlen(name);
    if (!is_letter(name[0]) || n > NAME_LONGEST) return false;
    for (size_t i = 0; i < n; i++)
        if (!is_letter(name[i]) && !(name[i] >= '0' && name[i] <= '9') && name[i] != '-' &&
            name[i] != '_')
            return false;
    return true;
}

/* Creates the folder of the project. An empty folder of this name is accepted. Any other existing
 * folder is an error. */
static int make_project(const char *folder) {
    if (mkdir(folder, 0777) == 0) return 0;
    return errno == EEXIST && rmdir(folder) == 0 ? mkdir(folder, 0777) : -1;
}

static void fill_in(struct lw_buf *out, const char *text, const char *name) {
    for (const char *at; (at = strstr(text, mark)); text = at + sizeof mark - 1) {
        lw_buf_add(out, text, (size_t)(at - text));
        lw_buf_add(out, name, strlen(name));
    }
    lw_buf_add(out, text, strlen(text));
}

static int fail(const char *path) {
    fprintf(stderr, "latchwork handler new: %s: %s\n", path, strerror(errno));
    return CLI_FAILED;
}

/* Creates the parent folders of a file. */
static int make_folders(char *path) {
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int bad = mkdir(path, 0777) && errno != EEXIST;
        *slash = '/';
        if (bad) return -1;
    }
    return 0;
}

static int write_file(const char *path, const struct lw_buf *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    size_t at = 0;
    while (at < text->n) {
        ssize_t n = write(fd, text->p + at, text->n - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        at += (size_t)n;
    }
    int e = errno;
    bool bad = close(fd) || at < text->n;
    if (at < text->n) errno = e;
    return bad ? -1 : 0;
}

static int write_template(const struct handler_template *t, const char *name) {
    struct lw_buf path = {0}, text = {0};
    lw_buf_addf(&path, "%s/", name);
    fill_in(&path, t->path, name);
    lw_buf_add(&path, "", 1);
    fill_in(&text, t->text, name);
    int status = make_folders(path.p) || write_file(path.p, &text) ? fail(path.p) : 0;
    if (!status) printf("  %s\n", path.p);
    lw_buf_free(&path);
    lw_buf_free(&text);
    return status;
}

static void tell_next(const char *lang, const char *name) {
    bool plugin = lang[0] == 'c', go = strcmp(lang, "go") == 0;
    printf("\nNext:\n\n  cd %s\n%s  latchwork handler test -c %s.json\n\nSee README.md for more.\n",
           name,
           plugin ? "  make\n"
           : go   ? "  go build -o handler .\n"
                  : "",
           name);
}

int handler_new(const struct handler_args *a) {
    const char *name = a->cli.words[0];
    if (!good_name(name))
        return cli_misuse(
            &a->cli,
            "NAME \"%.80s\": must be at most 64 letters, digits, - and _, beginning with a letter",
            name);
    if (make_project(name)) {
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) return fail(name);
        fprintf(stderr,
                "latchwork handler new: %s exists already and is not an empty folder; choose "
                "another name\n",
                name);
        return CLI_USAGE;
    }
    int status = 0;
    for (size_t i = 0; i < handler_n_templates && !status; i++)
        if (strcmp(handler_templates[i].lang, a->lang) == 0)
            status = write_template(&handler_templates[i], name);
    if (!status) tell_next(a->lang, name);
    return cli_written(&a->cli, status);
}
