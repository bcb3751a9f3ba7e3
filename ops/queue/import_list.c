/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `latchwork queue import --from-list`: moves the messages of a plain Redis list to a
 * topic of this application. Other queueing schemes use such a list together with a lock. Their
 * producers LPUSH the payloads, so the oldest message is at the right end of the list.
 *
 *     NAME ──RPOPLPUSH──> NAME:importing ──produce──> the topic ──acknowledged──> removed
 *                                        └─no key, refused by Kafka──> NAME:refused
 *
 * A message is always in a list until Kafka has acknowledged it. If the command is killed, the next
 * import begins with the messages in NAME:importing, so a message may be produced twice, but no
 * message is lost. Consumers of the old scheme may continue during the import, because they never
 * get a message that is already in NAME:importing. */
#include "ops/queue/queue.h"

#include "base/clock.h"
#include "kafka/source.h"
#include "ops/job.h"
#include "queue/key.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 64,
    CONNECT_MS = 5000,
    ANSWER_MS = 10000,
    ACK_MS = 90000,
    CLOSE_MS = 5000,
    NAME_MAX_BYTES = 512
};

struct import {
    struct ops *o;
    struct ops_job job;
    struct lw_redis *redis;
    struct lw_sink *sink;
    struct lw_rule rule; /* the rule that finds the key of a message */
    const char *list;
    char importing[NAME_MAX_BYTES + 16], refused[NAME_MAX_BYTES + 16];
    int64_t n; /* number of messages that were read; the report names each message by its number */
    int64_t n_refused; /* number of messages that were put into the list NAME:refused */
    bool unsent; /* true: Kafka refused a message that it may accept later, so the import stops */
};

/* The state of one message that is being produced. */
struct sent {
    struct import *im;
    char name[NAME_MAX_BYTES + 32];
    const redisReply *element;
    enum lw_letter_end end;
};

/* Returns `r` if it is a reply without an error. Returns NULL with o->err if the server of the list
 * did not reply, or replied with an error. */
static redisReply *good(struct import *im, const char *command, redisReply *r) {
    if (!r) return lw_fail(&im->o->err, "the list's Redis: %s", im->redis->why), NULL;
    if (r->type != REDIS_REPLY_ERROR) return r;
    lw_fail(&im->o->err, "the list's Redis refused %s: %s", command, r->str);
    freeReplyObject(r);
    return NULL;
}

static int64_t length(struct import *im, const char *list) {
    redisReply *r = good(im, "LLEN", lw_redis_ask(im->redis, "LLEN %s", list));
    int64_t n = r ? r->integer : -1;
    if (r) freeReplyObject(r);
    return n;
}

/* Returns up to `n` elements of the list from left to right, beginning at index `from`. Returns
 * NULL with o->err on failure. */
static redisReply *range(struct import *im, const char *list, int64_t from, int64_t n) {
    redisReply *r = good(im, "LRANGE",
                         lw_redis_ask(im->redis, "LRANGE %s %lld %lld", list, (long long)from,
                                      (long long)(from + n - 1)));
    for (size_t i = 0; r && i < r->elements; i++)
        if (r->element[i]->type != REDIS_REPLY_STRING) {
            lw_fail(
                &im->o->err,
                "malformed reply to LRANGE from the list's Redis: expected an array of strings");
            freeReplyObject(r);
            return NULL;
        }
    return r;
}

/* --- one message ------------------------------------------------------------------------------ */

static enum lw_key_result key_of(struct import *im, const redisReply *e, struct lw_buf *scratch,
                                 struct lw_bytes *key, struct lw_err *err) {
    struct lw_record record = {.payload = lw_bytes(e->str, e->len)};
    enum lw_key_result found = lw_key_find(&im->rule, &record, scratch, key, err);
    if (found == LW_KEY_MISSING && im->rule.from == LW_KEY_MESSAGE) {
        err->text[0] = '\0';
        lw_fail(err,
                "a list element has no record key; name the place of the key in the payload, as in "
                "--list-key json:/id");
    }
    return found;
}

static void answered(void *ctx, enum lw_letter_end how, const char *reason) {
    struct sent *s = ctx;
    struct import *im = s->im;
    s->end = how;
    if (how == LW_SENT)
        ops_job_done(&im->job, s->name, 'T', "");
    else
        ops_job_problem(&im->job, s->name, reason);
    if (how == LW_SENT_LATER) im->unsent = true;
}

/* Produces one message, or only counts it in a dry run. Returns 0, 1 if the import must end after
 * this message, or -1 on failure. */
static int take(struct import *im, struct sent *s) {
    struct ops *o = im->o;
    struct lw_buf scratch = {0};
    struct lw_bytes key;
    struct lw_err err = {0};
    s->end = LW_SENT_NEVER; /* the result for a message that has no key */
    if (key_of(im, s->element, &scratch, &key, &err) != LW_KEY_OK) {
        lw_buf_free(&scratch);
        return ops_job_problem(&im->job, s->name, err.text);
    }
    int stop = ops_job_take(&im->job);
    if (im->job.dry) {
        lw_buf_free(&scratch);
        return ops_job_done(&im->job, s->name, 'T', "") || stop;
    }
    struct lw_header origin = {lw_bytes_of("latchwork-list"), lw_bytes_of(im->list)};
    s->end = LW_SENT_LATER;
    int refused =
        lw_sink_send(im->sink, o->args.to_topic, key, lw_bytes(s->element->str, s->element->len),
                     &origin, 1, answered, s, &o->err);
    lw_buf_free(&scratch);
    if (refused < 0) return -1;
    if (refused > 0) {
        s->end = LW_SENT_NEVER;
        stop = ops_job_problem(&im->job, s->name, o->err.text) || stop;
        o->err.text[0] = '\0';
    }
    return stop;
}

/* --- a page ----------------------------------------------------------------------------------- */

/* Moves up to n messages from the list NAME to NAME:importing, oldest first. They are added after
 * the messages that are already in NAME:importing. */
static int fetch(struct import *im, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        lw_redis_append(im->redis, "RPOPLPUSH %s %s", im->list, im->importing);
    int bad = 0;
    for (int64_t i = 0; i < n; i++) {
        redisReply *r = good(im, "RPOPLPUSH", lw_redis_reply(im->redis));
        if (!r && im->redis->err) return -1;
        if (!r) bad = -1;
        if (r) freeReplyObject(r);
    }
    return bad;
}

/* Removes the oldest message from NAME:importing. A message that can never be produced goes to
 * NAME:refused. */
static int settle(struct import *im, const struct sent *s) {
    bool never = s->end == LW_SENT_NEVER;
    redisReply *r =
        never ? good(im, "RPOPLPUSH",
                     lw_redis_ask(im->redis, "RPOPLPUSH %s %s", im->importing, im->refused))
              : good(im, "LTRIM", lw_redis_ask(im->redis, "LTRIM %s 0 -2", im->importing));
    if (!r) return -1;
    im->n_refused += never;
    freeReplyObject(r);
    return 0;
}

/* Produces the messages in `page`, oldest first. Then removes the messages that Kafka acknowledged
 * or refused permanently from NAME:importing, up to the first message that must be sent again. A
 * dry run only counts the messages. Returns 0 if the import may go on, 1 if it must end, and -1 on
 * failure. */
static int produce_page(struct import *im, redisReply *page) {
    struct sent *sent = lw_alloc(page->elements * sizeof *sent);
    size_t n = 0;
    int stop = 0;
    while (!stop && n < page->elements) {
        struct sent *s = &sent[n++];
        *s = (struct sent){.im = im, .element = page->element[page->elements - n]};
        snprintf(s->name, sizeof s->name, "%s#%" PRId64, im->list, ++im->n);
        stop = take(im, s);
    }
    /* If acknowledgements are missing, librdkafka still refers to `sent`, so the sink is closed
     * before `sent` is freed. */
    if (im->sink && lw_sink_wait(im->sink, 0, ACK_MS) > 0) {
        lw_sink_close(im->sink, CLOSE_MS);
        im->sink = NULL;
        stop = lw_fail(&im->o->err,
                       "Kafka did not acknowledge all messages within %d s; the others are in %s",
                       ACK_MS / 1000, im->importing);
    }
    for (size_t i = 0; !im->job.dry && i < n && sent[i].end != LW_SENT_LATER; i++)
        if (settle(im, &sent[i])) stop = -1;
    free(sent);
    return stop;
}

static int import_pages(struct import *im) {
    int stop = 0;
    while (!stop) {
        int64_t left = length(im, im->importing), more = length(im, im->list);
        if (left < 0 || more < 0) return -1;
        if (left + more == 0) return 0;
        if (left < PAGE && fetch(im, more < PAGE - left ? more : PAGE - left)) return -1;
        redisReply *page = range(im, im->importing, -PAGE, PAGE);
        if (!page) return -1;
        /* NAME:importing is empty, because other consumers of the list took the remaining
         * messages */
        if (page->elements == 0) return freeReplyObject(page), 0;
        stop = produce_page(im, page);
        freeReplyObject(page);
        if (!stop && im->unsent)
            stop =
                lw_fail(&im->o->err, "Kafka accepts no messages now; the rest stays in the list");
        if (!stop) stop = ops_tick(im->o);
    }
    return stop;
}

/* Reads the messages of one list for a dry run, oldest first, and changes nothing. */
static int look_at_pages(struct import *im, const char *list) {
    int stop = 0;
    for (int64_t at = length(im, list); !stop && at > 0; at -= PAGE) {
        redisReply *page = range(im, list, at > PAGE ? at - PAGE : 0, at > PAGE ? PAGE : at);
        if (!page) return -1;
        stop = produce_page(im, page);
        freeReplyObject(page);
        if (!stop) stop = ops_tick(im->o);
    }
    return stop;
}

/* --- the command ------------------------------------------------------------------------------ */

/* Connects to the Redis of the list: the server of --list-redis or, without this option, the server
 * of the application's first shard. */
static int find_redis(struct ops *o, struct lw_redis_url *at) {
    if (o->args.list_redis) return lw_redis_url_parse(o->args.list_redis, at, &o->err);
    struct lw_redis_servers servers = {0};
    int bad = lw_config_servers(o->c, &servers, &o->err) ||
              lw_redis_servers_find(&servers, 0, CONNECT_MS, at, &o->err);
    lw_redis_servers_free(&servers);
    return bad ? -1 : 0;
}

static int connect_to_list(struct import *im) {
    struct lw_redis_url at;
    if (find_redis(im->o, &at)) return -1;
    im->redis = lw_redis_open(&at, "latchwork-import", CONNECT_MS, ANSWER_MS, &im->o->err);
    lw_redis_url_free(&at);
    return im->redis ? 0 : -1;
}

/* Parses the option --list-key. Without this option, the key rule of the configuration is used. */
static int choose_rule(struct import *im) {
    struct ops *o = im->o;
    im->rule = o->c->key.from;
    const char *text = o->args.list_key;
    if (!text) return 0;
    if (strncmp(text, "json:", 5) != 0 || (text[5] && text[5] != '/'))
        return lw_fail(&o->err,
                       "--list-key is \"%.100s\"; expected json:/POINTER, such as json:/id", text);
    im->rule = (struct lw_rule){.from = LW_KEY_JSON, .arg = (char *)(uintptr_t)text + 5};
    return 0;
}

static int check_topic(struct ops *o) {
    if (!o->args.to_topic && o->c->kafka.n_topics == 1) o->args.to_topic = o->c->kafka.topics[0];
    return o->args.to_topic
               ? 0
               : lw_fail(&o->err,
                         "the configuration has several topics; name one with --to-topic NAME");
}

int queue_import_list(struct ops *o) {
    static struct import im;
    im = (struct import){.o = o, .list = o->args.from_list};
    if (!im.list[0] || strlen(im.list) > NAME_MAX_BYTES) {
        lw_fail(&o->err, "--from-list: expected a name of 1 to %d bytes", NAME_MAX_BYTES);
        return OPS_USAGE;
    }
    snprintf(im.importing, sizeof im.importing, "%s:importing", im.list);
    snprintf(im.refused, sizeof im.refused, "%s:refused", im.list);
    if (choose_rule(&im) || check_topic(o)) return OPS_USAGE;
    if (connect_to_list(&im)) return OPS_FAILED;
    int status = OPS_FAILED;
    if (ops_job_begin(o, &im.job, OPS_PUT) == 0) {
        if (!im.job.dry) im.sink = lw_sink_open(o->c, &o->err);
        int stop = -1;
        if (im.job.dry && !(stop = look_at_pages(&im, im.importing)))
            stop = look_at_pages(&im, im.list);
        if (im.sink) stop = import_pages(&im);
        if (im.sink) lw_sink_close(im.sink, CLOSE_MS);
        status = ops_job_end(&im.job, stop);
        if (im.n_refused && !o->args.json)
            printf("%" PRId64 " refused, in %s\n", im.n_refused, im.refused);
    }
    lw_redis_close(im.redis);
    return status;
}
