/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of `handler test`: a file of JSON Lines. A line has the members of `queue export`
 * and `dead export`, or fewer: see cli/handler/page.md. */
#ifndef LW_CLI_HANDLER_MESSAGES_H
#define LW_CLI_HANDLER_MESSAGES_H

#include "config/config.h"
#include "queue/key.h"

enum { HANDLER_MESSAGES_MAX = 10000, HANDLER_NO_NEXT = -1 };

/* The result of a delivery. The word for each stands in handler_result_words. */
enum handler_result {
    RESULT_NONE, /* there is no result yet, or none is expected */
    RESULT_DONE,
    RESULT_RETRY,
    RESULT_DEAD,
    RESULT_BACK,    /* given back, because its lease ended or its fence is stale */
    RESULT_SKIPPED, /* the message has no key, and key.missing is skip */
    RESULT_CRASHED, /* the handler's process died while it had the message */
    RESULT_STUCK,   /* the handler did not end its run of the message in time */
    RESULT_N
};
extern const char *const handler_result_words[RESULT_N];

struct handler_message {
    const char *topic;
    int32_t partition;
    int64_t offset, timestamp_ms;
    struct lw_bytes record_key, payload; /* p is NULL if the value is null */
    struct lw_bytes key;                 /* the primary key, found by key.from */
    struct lw_header *headers;
    size_t n_headers;
    int attempt;
    size_t line;
    /* result of a message without a key, which no handler gets; else RESULT_NONE */
    enum handler_result decided;
    char *why; /* reason of `decided` */
    enum handler_result expect;
    const char *expect_reason; /* text that the reason must contain; NULL: any reason will do */
    /* index of the next message of the same key; HANDLER_NO_NEXT: none */
    int next;
    bool first; /* true: no earlier message has the same key */
};

struct handler_messages {
    struct handler_message *m;
    size_t n, cap;
    json_t *documents; /* owns the strings to which the messages point */
    void **owned;      /* owns everything else to which the messages point */
    size_t n_owned, cap_owned;
};

/* Reads the file, and finds each message's key as the configuration says. Reports every error, with
 * file and line, and returns -1 if there is one. */
int handler_messages_read(struct handler_messages *all, const struct lw_config *c, const char *path,
                          struct lw_problems *problems);
void handler_messages_free(struct handler_messages *all);

#endif
