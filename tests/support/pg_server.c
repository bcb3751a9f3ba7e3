/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/pg_server.h"

#include "tests/support/server_process.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READY_TRIES = 3000, READY_PAUSE_MS = 10 };

struct lw_test_pg {
    char dir[LW_TEST_DIR];
    char bin[256]; /* folder of PostgreSQL's programs */
    char url[256], bouncer_url[256];
    /* The user who runs the server. If the test runs as root, this is another user, because
     * PostgreSQL refuses to run as root. */
    uid_t uid;
    gid_t gid;
    char user[64];
    pid_t pid, bouncer;
};

static bool fail(const char *what, const char *why) {
    fprintf(stderr, "PostgreSQL: %s: %s\n", what, why);
    return false;
}

/* Starts a program as the server's user. The program's output goes to a file in the server's
 * folder. */
static pid_t start(const struct lw_test_pg *pg, const char *log, char *const *argv) {
    pid_t parent = getpid(), pid = fork();
    if (pid) return pid;
    char path[LW_TEST_DIR + 32];
    snprintf(path, sizeof path, "%s/%s", pg->dir, log);
    if (geteuid() == 0 && (setgroups(0, NULL) || setgid(pg->gid) || setuid(pg->uid))) _exit(126);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    if (chdir(pg->dir)) _exit(127);
    lw_test_exec(parent, SIGQUIT, argv[0], argv);
}

/* Finds the folder of PostgreSQL's programs, which distributions do not put into PATH. Sets pg->bin
 * to the folder of the newest version below /usr/lib/postgresql. If there is none, pg->bin stays
 * empty, and the programs are looked up in PATH. */
static void find_programs(struct lw_test_pg *pg) {
    glob_t g;
    const char *newest = NULL;
    if (glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            if (!newest || strverscmp(g.gl_pathv[i], newest) > 0) newest = g.gl_pathv[i];
    if (newest)
        snprintf(pg->bin, sizeof pg->bin, "%.*s", (int)(strlen(newest) - strlen("postgres")),
                 newest);
    globfree(&g);
}

static bool find_user(struct lw_test_pg *pg) {
    const struct passwd *p = geteuid() == 0 ? getpwnam("postgres") : getpwuid(geteuid());
    if (!p) return fail("user postgres", "there is none");
    pg->uid = p->pw_uid;
    pg->gid = p->pw_gid;
    snprintf(pg->user, sizeof pg->user, "%s", p->pw_name);
    return true;
}

static bool make_dir(struct lw_test_pg *pg) {
    if (!lw_test_dir_make(pg->dir, "pg")) return false;
    if (geteuid() == 0 && chown(pg->dir, pg->uid, pg->gid)) return fail(pg->dir, strerror(errno));
    snprintf(pg->url, sizeof pg->url, "postgres://%s@/postgres?host=%s", pg->user, pg->dir);
    snprintf(pg->bouncer_url, sizeof pg->bouncer_url, "postgres://%s@/postgres?host=%s&port=6432",
             pg->user, pg->dir);
    return true;
}

static bool run_initdb(const struct lw_test_pg *pg) {
    char program[300], data[LW_TEST_DIR + 8];
    snprintf(program, sizeof program, "%sinitdb", pg->bin);
    snprintf(data, sizeof data, "%s/data", pg->dir);
    char *argv[] = {
        program,         (char *)"-D", data,           (char *)"-N",         (char *)"-A",
        (char *)"trust", (char *)"-E", (char *)"UTF8", (char *)"--locale=C", NULL};
    pid_t pid = start(pg, "initdb.log", argv);
    int status = -1;
    if (pid > 0) waitpid(pid, &status, 0);
    if (status == 0) return true;
    lw_test_log_show(pg->dir, "initdb.log");
    return fail("initdb", "failed");
}

static bool wait_ready(const char *url, pid_t pid) {
    for (int i = 0; i < READY_TRIES; i++) {
        PGconn *conn = PQconnectdb(url);
        bool ok = PQstatus(conn) == CONNECTION_OK;
        PQfinish(conn);
        if (ok) return true;
        if (waitpid(pid, NULL, WNOHANG) == pid) return false;
        nanosleep(&(struct timespec){.tv_nsec = READY_PAUSE_MS * 1000000L}, NULL);
    }
    return false;
}

bool lw_test_pg_launch(struct lw_test_pg *pg) {
    char program[300], data[LW_TEST_DIR + 8];
    snprintf(program, sizeof program, "%spostgres", pg->bin);
    snprintf(data, sizeof data, "%s/data", pg->dir);
    char *argv[] = {program,
                    (char *)"-D",
                    data,
                    (char *)"-k",
                    pg->dir,
                    (char *)"-c",
                    (char *)"listen_addresses=",
                    (char *)"-c",
                    (char *)"fsync=off",
                    (char *)"-c",
                    (char *)"shared_buffers=32MB",
                    (char *)"-c",
                    (char *)"max_connections=40",
                    (char *)"-c",
                    (char *)"deadlock_timeout=500ms",
                    NULL};
    pg->pid = start(pg, "postgres.log", argv);
    if (pg->pid > 0 && wait_ready(pg->url, pg->pid)) return true;
    lw_test_log_show(pg->dir, "postgres.log");
    return fail("server", "does not answer");
}

struct lw_test_pg *lw_test_pg_start(void) {
    struct lw_test_pg *pg = calloc(1, sizeof *pg);
    if (!pg) return NULL;
    pg->pid = pg->bouncer = -1;
    find_programs(pg);
    if (find_user(pg) && make_dir(pg) && run_initdb(pg) && lw_test_pg_launch(pg)) return pg;
    lw_test_pg_stop(pg);
    return NULL;
}

static void end(pid_t *pid, int sig) {
    if (*pid <= 0) return;
    kill(*pid, sig);
    waitpid(*pid, NULL, 0);
    *pid = -1;
}

void lw_test_pg_kill(struct lw_test_pg *pg) { end(&pg->pid, SIGQUIT); }

void lw_test_pg_stop(struct lw_test_pg *pg) {
    if (!pg) return;
    end(&pg->bouncer, SIGKILL);
    end(&pg->pid, SIGQUIT);
    lw_test_dir_remove(pg->dir);
    free(pg);
}

const char *lw_test_pg_url(const struct lw_test_pg *pg, bool bouncer) {
    return bouncer ? pg->bouncer_url : pg->url;
}
pid_t lw_test_pg_pid(const struct lw_test_pg *pg) { return pg->pid; }

bool lw_test_pg_bouncer(struct lw_test_pg *pg) {
    char ini[LW_TEST_DIR + 32];
    snprintf(ini, sizeof ini, "%s/pgbouncer.ini", pg->dir);
    FILE *f = fopen(ini, "w");
    if (!f) return fail(ini, strerror(errno));
    /* With auth_type any, PgBouncer takes the user name from the configuration of the database. */
    fprintf(f,
            "[databases]\npostgres = host=%s user=%s\n[pgbouncer]\nlisten_addr =\nunix_socket_dir "
            "= %s\nlisten_port = 6432\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 2\n",
            pg->dir, pg->user, pg->dir);
    fclose(f);
    if (chmod(ini, 0644)) return fail(ini, strerror(errno));
    char *argv[] = {(char *)"/usr/sbin/pgbouncer", ini, NULL};
    pg->bouncer = start(pg, "pgbouncer.log", argv);
    if (pg->bouncer > 0 && wait_ready(pg->bouncer_url, pg->bouncer)) return true;
    lw_test_log_show(pg->dir, "pgbouncer.log");
    return fail("PgBouncer", "does not answer");
}
