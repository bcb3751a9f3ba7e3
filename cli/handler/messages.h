/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the messages for `handler test` from a file of JSON Lines. A line has the members that
 * `queue export` and `dead export` write, or fewer. cli/handler/page.md explains the format. */
#ifndef LW_CLI_HANDLER_MESSAGES_H
#define LW_CLI_HANDLER_MESSAGES_H

#include "config/config.h"
#include "queue/key.h"

enum { HANDLER_MESSAGES_MAX = 10000, HANDLER_NO_NEXT = -1 };

/* Lists the results of a delivery. Four of them are the outcomes of enum lw_outcome
 * (queue/codes.h), from which result_of() in rig.c makes them. The others exist only in a test of a
 * handler. handler_result_words has the word for each result. */
enum handler_result {
    RESULT_NONE, /* there is no result yet, or none is expected */
    RESULT_DONE,
    RESULT_RETRY,
    RESULT_DEAD,
    RESULT_BACK,    /* the message was given back, because its lease ended or its fence is stale */
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
    struct lw_bytes record_key, payload; /* the member p is NULL if the JSON value is null */
    struct lw_bytes key;                 /* the primary key, found by the setting key.from */
    struct lw_header *headers;
    size_t n_headers;
    int attempt;
    size_t line;
    /* `decided` is the result of a message without a valid key, which is given to no handler. It is
     * RESULT_NONE if the message has a valid key. */
    enum handler_result decided;
    char *why; /* the reason for the result in `decided` */
    enum handler_result expect;
    /* a text that must be part of the result's reason; NULL: every reason is right */
    const char *expect_reason;
    /* `next` is the index of the next message of the same key, or HANDLER_NO_NEXT if there is
     * none. */
    int next;
    bool first; /* true: no earlier message has the same key */
};

struct handler_messages {
    struct handler_message *m;
    size_t n, cap;
    json_t *documents; /* JSON documents that own the strings to which the messages point */
    void **owned;      /* all memory to which the messages point, except the documents */
    size_t n_owned, cap_owned;
};

/* Reads the file, and finds the key of each message by the configured rule. Reports every error
 * with file and line. Returns -1 if there is an error. */
int handler_messages_read(struct handler_messages *all, const struct lw_config *c, const char *path,
                          struct lw_problems *problems);
void handler_messages_free(struct handler_messages *all);

#endif
