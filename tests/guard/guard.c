/* SPDX-License-Identifier: Apache-2.0 */
/* The deterministic guard counts what a message costs and compares each figure with a bound, so
 * that a regression is found without measuring time. The guard prints one line per figure, in the
 * form NAME FIGURE BOUND. The exit status is 1 if a figure is above its bound.
 *
 * Bounds are about 15 % above the figures that were counted when the bounds were set. A commit that
 * deliberately makes a message more expensive raises the bound; a commit that makes a message
 * cheaper lowers the bound. The instructions are counted by callgrind in a second run of this
 * program: `guard --run SHAPE` runs one shape and prints nothing. The number of instructions
 * depends on the compiler, so it has a bound only in optimised builds for x86-64. */
#include "tests/guard/fleet.h"

#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED
enum { HAS_CALLGRIND = 0 }; /* callgrind does not work together with sanitizers */
#else
enum { HAS_CALLGRIND = 1 };
#endif
#if defined __OPTIMIZE__ && !defined __OPTIMIZE_SIZE__ && defined __x86_64__
enum { JUDGES_INSTRUCTIONS = 1 };
#else
enum { JUDGES_INSTRUCTIONS = 0 };
#endif

struct bounds { /* upper bounds of the cost of one message */
    double commands, bytes, inside, allocations, instructions;
};

static const struct {
    struct fleet_shape shape;
    struct bounds most;
    /* Minimum share of the messages that must be parked. At least the same share must be drained.
     * If fewer messages are parked or drained, the shape does not test what it should. */
    double least_parked;
} guards[] = {
    /* Shape `uniform`, like the benchmark's workload W1: with this number of keys, nearly no
     * message finds its lane busy. */
    {{.name = "uniform",
      .workers = 1,
      .keys = 100000,
      .records = 11000,
      .ahead = 1024,
      .from = 3000,
      .to = 10000},
     {0.009, 96, 1.26, 0.02, 4450},
     0},
    /* Shape `on-board`: like `uniform`, with a board, on which the worker records outcomes in
     * shared memory. */
    {{.name = "on-board",
      .workers = 1,
      .keys = 100000,
      .records = 11000,
      .ahead = 1024,
      .from = 3000,
      .to = 10000,
      .board = true},
     {0.009, 96, 1.26, 0.02, 5000},
     0},
    /* Shape `few`: at most three messages at a time, as at a low rate. Each message asks gate when
     * it comes, and one settle tells of those that finished in 20 ms. */
    {{.name = "few",
      .workers = 1,
      .keys = 100000,
      .records = 3000,
      .ahead = 3,
      .from = 500,
      .to = 2500},
     {0.457, 292, 4.4, 0.02, 10870},
     0},
    /* Shape `traced`: like `on-board`, with one span per message, as tracing.ratio 1 makes for
     * messages that have no traceparent. */
    {{.name = "traced",
      .workers = 1,
      .keys = 100000,
      .records = 11000,
      .ahead = 1024,
      .from = 3000,
      .to = 10000,
      .board = true,
      .traced = true},
     {0.009, 96, 1.26, 1.2, 6900},
     0},
    /* Shape `one-key`: all messages have the same key and arrive at two workers. The workers
     * alternate: while one runs its messages, the other parks its messages. */
    {{.name = "one-key",
      .workers = 2,
      .keys = 1,
      .records = 4000,
      .ahead = 200,
      .from = 1000,
      .to = 3500},
     {0.0553, 321, 0.87, 1.19, 16950},
     0.3},
    /* Shape `some-keys`: a few keys, each in partitions of both workers. Messages are parked, and
     * lanes are released with a hint and claimed. */
    {{.name = "some-keys",
      .workers = 2,
      .keys = 200,
      .records = 4000,
      .ahead = 100,
      .from = 1000,
      .to = 3500},
     {0.067, 308, 4.6, 0.427, 12500},
     0.1},
    /* Shape `parked`: every lane is paused, so all messages are parked, and the number of free
     * handlers does not limit the number of messages in a call. */
    {{.name = "parked",
      .workers = 1,
      .keys = 2000,
      .records = 9000,
      .ahead = 9000,
      .paused = true,
      .from = 2000,
      .to = 8000},
     {0.0053, 317, 1.48, 0.02, 11430},
     0},
};
enum { GUARDS = sizeof guards / sizeof guards[0] };

static bool above;

static void judge(const char *shape, const char *name, double figure, double most) {
    bool bad = most >= 0 && figure > most;
    printf("%s.%s %.4f ", shape, name, figure);
    if (most < 0)
        puts("-");
    else
        printf("%.4f%s\n", most, bad ? " ABOVE" : "");
    above |= bad;
}

/* --- instructions ----------------------------------------------------------------------------- */

static _Noreturn void become_callgrind(const char *self, const char *shape, int out) {
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0) _exit(126);
    execlp("valgrind", "valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no",
           "--callgrind-out-file=/dev/null", self, "--run", shape, NULL);
    dprintf(STDERR_FILENO, "valgrind: %s; make deps-test installs it\n", strerror(errno));
    _exit(127);
}

static struct lw_buf read_all(int fd) {
    struct lw_buf b = {0};
    char some[4096];
    for (ssize_t n; (n = read(fd, some, sizeof some)) != 0;) {
        if (n > 0)
            lw_buf_add(&b, some, (size_t)n);
        else if (errno != EINTR)
            break;
    }
    lw_buf_add(&b, "", 1);
    return b;
}

/* A run of this program under callgrind: its process, and the pipe from which the number of
 * executed instructions is read. */
struct count {
    pid_t child;
    int fd;
};

static struct count count_instructions(const char *shape) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int fds[2];
    if (n < 0 || pipe2(fds, O_CLOEXEC) != 0) {
        perror("guard");
        exit(1);
    }
    self[n] = '\0';
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) become_callgrind(self, shape, fds[1]);
    close(fds[1]);
    return (struct count){child, fds[0]};
}

/* Returns how many instructions of the worker's code the run has executed. Ends the program if they
 * could not be counted. */
static double counted(const char *shape, const struct count *c) {
    int status = -1;
    struct lw_buf said = read_all(c->fd);
    close(c->fd);
    const char *at = strstr(said.p, "Collected : ");
    if (c->child < 0 || waitpid(c->child, &status, 0) != c->child || status != 0 || !at) {
        fprintf(stderr, "guard: %s under callgrind: status %d:\n%s", shape, status, said.p);
        exit(1);
    }
    double collected = strtod(at + strlen("Collected : "), NULL);
    lw_buf_free(&said);
    return collected;
}

/* --- all -------------------------------------------------------------------------------------- */

static void guard(size_t g, const struct count *c) {
    const struct fleet_shape *s = &guards[g].shape;
    const struct bounds *most = &guards[g].most;
    struct fleet_figures f;
    fleet_run(s, &f);
    double n = (double)f.messages;
    printf("# %s: %" PRIu64 " messages in %" PRIu64 " rounds, %" PRIu64 " parked, %" PRIu64
           " drained\n",
           s->name, f.messages, f.rounds, f.parked, f.drained);
    if ((double)f.parked < guards[g].least_parked * n ||
        (double)f.drained < guards[g].least_parked * n) {
        printf("%s: too few were parked or drained for this shape\n", s->name);
        above = true;
    }
    judge(s->name, "commands", (double)f.commands / n, most->commands);
    judge(s->name, "bytes", (double)f.bytes / n, most->bytes);
    judge(s->name, "inside", (double)f.inside / n, most->inside);
    judge(s->name, "allocations", (double)f.allocations / n, most->allocations);
    if (c)
        judge(s->name, "instructions", counted(s->name, c) / n,
              JUDGES_INSTRUCTIONS ? most->instructions : -1);
}

/* Tests a partition in which the lane of a few early records stays paused until all other records
 * are done. The worker must notice every offset that is done above the watermark, no matter how far
 * above. In the shapes `far` and `dense`, the offsets span more segments than one call reads, and
 * more records are parked in total than may wait at one time. */
static void far(void) {
    static const struct fleet_shape shapes[] = {{.name = "far",
                                                 .workers = 2,
                                                 .keys = 12,
                                                 .records = 8000,
                                                 .ahead = 200,
                                                 .stride = 20000,
                                                 .max_waiting = 150,
                                                 .stays = 100},
                                                {.name = "dense",
                                                 .workers = 2,
                                                 .keys = 12,
                                                 .records = 8000,
                                                 .ahead = 200,
                                                 .stride = 300,
                                                 .max_waiting = 150,
                                                 .stays = 100},
                                                {.name = "full",
                                                 .workers = 2,
                                                 .keys = 12,
                                                 .records = 16000,
                                                 .ahead = 200,
                                                 .part_records = 500,
                                                 .stays = 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fleet_figures f;
        fleet_run(&shapes[i], &f);
        printf("# %s: what others had was done while one lane stayed\n", shapes[i].name);
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--run") == 0) {
        for (size_t g = 0; g < GUARDS; g++)
            if (strcmp(argv[2], guards[g].shape.name) == 0) {
                struct fleet_figures f;
                fleet_run(&guards[g].shape, &f);
                return 0;
            }
    }
    if (argc == 2 && strcmp(argv[1], "--far") == 0) {
        far();
        return 0;
    }
    if (argc != 1) {
        fputs("usage: guard | guard --run SHAPE | guard --far\n", stderr);
        return 2;
    }
    far();
    /* Start all runs under callgrind before waiting for the first one, so that they run at the same
     * time. */
    struct count counts[GUARDS];
    for (size_t g = 0; g < GUARDS && HAS_CALLGRIND; g++)
        counts[g] = count_instructions(guards[g].shape.name);
    for (size_t g = 0; g < GUARDS; g++) guard(g, HAS_CALLGRIND ? &counts[g] : NULL);
    return above ? 1 : 0;
}
