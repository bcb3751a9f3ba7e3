/* SPDX-License-Identifier: Apache-2.0 */
/* Answers GET messages/IDENTITY: reads one record of the application's topics from Kafka, for the
 * questions "which key has this message?" and "what is in it?". A message of the fast path, and one
 * that holds a partition's commit back, may be nowhere else. */
#include "api/private.h"
#include "ops/kafka.h"

#include <string.h>

struct one_record {
    struct api_call *k;
    json_t *v;
};

static int take_record(struct ops *o, struct ops_message *m, void *ctx) {
    struct one_record *one = ctx;
    (void)o;
    one->v = api_message_json(one->k, m, API_PAYLOAD_MAX);
    return 1;
}

int api_message(struct api_call *k) {
    char topic[256], text[320], *word = text;
    int32_t partition;
    int64_t offset, replay;
    struct one_record one = {k, NULL};
    struct ops *o = k->o;
    if (ops_identity_parse(k->segment[1], topic, &partition, &offset, &replay) ||
        !ops_is_consumed(k->c, lw_bytes_of(topic))) {
        lw_http_error(k->a, 404,
                      "%.200s: expected TOPIC/PARTITION/OFFSET with a topic of kafka.topics",
                      k->segment[1]);
        return 0;
    }
    /* a replay has the payload of its record, unless it was edited before */
    snprintf(text, sizeof text, "%s/%d/%lld", topic, partition, (long long)offset);
    o->args.words = &word, o->args.n_words = 1;
    int stop = ops_read_kafka(o, take_record, &one);
    o->args.words = NULL, o->args.n_words = 0;
    if (one.v)
        api_put(k, one.v);
    else if (stop >= 0)
        lw_http_error(k->a, 404, "%s is not in the log: it was deleted, or was never written",
                      text);
    return one.v ? 0 : stop;
}
