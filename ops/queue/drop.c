/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verbs `latchwork queue drop` and `import`. */
#include "base/clock.h"
#include "ops/queue/queue.h"
#include "ops/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- drop ------------------------------------------------------------------------------------- */

static int drop(struct ops *o, struct ops_message *m, void *ctx) {
    (void)o;
    return ops_job_drop(ctx, m);
}

int queue_drop(struct ops *o) {
    struct ops_job j;
    if (!ops_has_filter(o)) {
        fputs("latchwork queue drop: no messages named; use IDENTITY, --key, --match or another "
              "filter\n",
              stderr);
        return OPS_USAGE;
    }
    if (ops_job_begin(o, &j, OPS_DROP)) return OPS_FAILED;
    return ops_job_end(&j, ops_each_message(o, drop, &j));
}

/* --- import ----------------------------------------------------------------------------------- */

static int import_line(struct ops *o, struct ops_job *j, const char *line, size_t n, int64_t at) {
    struct lw_err err = {0};
    json_error_t why;
    char where[64];
    snprintf(where, sizeof where, "line %lld", (long long)at);
    json_t *v = json_loadb(line, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
    if (!v) return ops_job_problem(j, where, why.text);
    struct lw_buf text = {0}, scratch = {0};
    struct lw_envelope e = {0};
    struct lw_bytes key, lane;
    int stop = 0;
    if (ops_message_from_json(v, lw_wall_ms(), &text, &err) ||
        lw_envelope_decode(lw_bytes(text.p, text.n), &e, &err) ||
        ops_lane_of(o, &e, &scratch, &key, &lane, &err)) {
        stop = ops_job_problem(j, where, err.text);
    } else {
        e.key = key;
        /* With --again, the imported message gets a replay number and so a new identity. It then
         * runs even if the marks say that the original is finished. */
        if (o->args.again) {
            e.replay = j->number;
            e.dedup = lw_bytes("", 0);
        }
        stop = ops_job_put(j, &e, lane, false, NULL);
    }
    lw_envelope_clear(&e);
    lw_buf_free(&text);
    lw_buf_free(&scratch);
    json_decref(v);
    return stop;
}

int queue_import(struct ops *o) {
    struct ops_job j;
    if ((o->args.n_words == 1) == (o->args.from_list != NULL)) {
        lw_fail(&o->err, "use either FILE or --from-list NAME");
        return OPS_USAGE;
    }
    if (o->args.from_list) return queue_import_list(o);
    if (o->args.to_topic || o->args.list_redis || o->args.list_key) {
        lw_fail(&o->err, "--to-topic, --list-redis and --list-key need --from-list");
        return OPS_USAGE;
    }
    const char *name = o->args.words[0];
    FILE *in = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
    if (!in) {
        fprintf(stderr, "latchwork queue import: %s: %s\n", name, strerror(errno));
        return OPS_FAILED;
    }
    int status = OPS_FAILED;
    if (ops_job_begin(o, &j, OPS_PUT) == 0) {
        char *line = NULL;
        size_t cap = 0;
        ssize_t n;
        int stop = 0;
        struct stat st;
        if (fstat(fileno(in), &st) == 0 && S_ISREG(st.st_mode)) o->to_scan = st.st_size;
        for (int64_t at = 1; !stop && (n = getline(&line, &cap, in)) > 0; at++) {
            o->scanned += n;
            if (line[n - 1] == '\n') n--;
            if (n) stop = import_line(o, &j, line, (size_t)n, at);
            if (!stop) stop = ops_tick(o);
        }
        free(line);
        if (ferror(in)) stop = lw_fail(&o->err, "%s: %s", name, strerror(errno));
        status = ops_job_end(&j, stop);
    }
    if (in != stdin) fclose(in);
    return status;
}
