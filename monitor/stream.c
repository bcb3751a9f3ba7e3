/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/stream.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { BLOCK_BYTES = 16 << 10 };

/* A published text, shared by the streams that send it. */
struct text {
    int users;
    size_t n;
    char p[];
};

struct stream {
    struct lw_streams *all;
    struct MHD_Connection *connection;
    struct stream *next;
    struct text *text; /* the text that is being sent */
    /* `seen` is the number of the published text that the stream is sending. Until the stream sends
     * its first published text, `seen` is the number of the text that was the newest when the
     * stream was added. */
    uint64_t seen;
    size_t sent; /* number of bytes of `text` that MHD has taken */
    /* `behind` is the number of texts published since the stream began to send its current text */
    int fd, behind;
    bool suspended;
};

struct lw_streams {
    pthread_mutex_t lock; /* guards the fields below it, and all streams */
    struct stream *first;
    int n;
    struct text *newest; /* the newest published text; NULL: none has been published yet */
    uint64_t published;  /* number of texts published so far; the newest text has this number */
    bool ending;
};

static struct text *text_new(struct lw_bytes bytes) {
    struct text *t = lw_alloc(sizeof *t + bytes.n);
    t->users = 1;
    t->n = bytes.n;
    if (bytes.n) memcpy(t->p, bytes.p, bytes.n);
    return t;
}

static void text_drop(struct text *t) {
    if (t && !--t->users) free(t);
}

struct lw_streams *lw_streams_open(void) {
    struct lw_streams *all = lw_alloc(sizeof *all);
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

/* If the stream has sent all of its current text, continues with the newest text, or suspends the
 * stream if there is no newer text. Returns true if there is something to send. */
static bool has_more(struct lw_streams *all, struct stream *s) {
    if (s->sent < s->text->n) return true;
    s->behind = 0;
    if (s->seen == all->published) {
        s->suspended = true;
        MHD_suspend_connection(s->connection);
        return false;
    }
    text_drop(s->text);
    s->text = all->newest;
    s->text->users++;
    s->seen = all->published;
    s->sent = 0;
    return s->text->n > 0;
}

static ssize_t send_some(void *cls, uint64_t position, char *to, size_t max) {
    struct stream *s = cls;
    struct lw_streams *all = s->all;
    ssize_t n = 0;
    (void)position;
    pthread_mutex_lock(&all->lock);
    assert(!s->suspended && s->sent <= s->text->n);
    if (all->ending) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (has_more(all, s)) {
        size_t rest = s->text->n - s->sent;
        n = (ssize_t)(rest < max ? rest : max);
        memcpy(to, s->text->p + s->sent, (size_t)n);
        s->sent += (size_t)n;
    }
    pthread_mutex_unlock(&all->lock);
    return n;
}

/* MHD calls this function when the connection has ended. */
static void forget(void *cls) {
    struct stream *s = cls;
    struct lw_streams *all = s->all;
    pthread_mutex_lock(&all->lock);
    struct stream **at = &all->first;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    all->n--;
    text_drop(s->text);
    pthread_mutex_unlock(&all->lock);
    free(s);
}

static struct stream *stream_new(struct lw_streams *all, struct MHD_Connection *c, int fd,
                                 struct lw_bytes first) {
    struct stream *s = lw_alloc(sizeof *s);
    *s = (struct stream){.all = all,
                         .connection = c,
                         .fd = fd,
                         .text = text_new(first),
                         .seen = all->published,
                         .next = all->first};
    all->first = s;
    all->n++;
    return s;
}

/* Limits how many bytes the kernel buffers for a client that does not read. */
static void bound_socket(int fd) {
    int bytes = LW_STREAM_SEND_BYTES;
    /* if setsockopt fails, the system's default limit remains */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

struct MHD_Response *lw_streams_add(struct lw_streams *all, struct MHD_Connection *c, int fd,
                                    struct lw_bytes first) {
    pthread_mutex_lock(&all->lock);
    struct stream *s = all->n < LW_STREAMS ? stream_new(all, c, fd, first) : NULL;
    pthread_mutex_unlock(&all->lock);
    if (!s) return NULL;
    bound_socket(fd);
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, send_some, s, forget);
    if (!r) forget(s);
    return r;
}

static void wake(struct stream *s) {
    if (!s->suspended) return;
    s->suspended = false;
    MHD_resume_connection(s->connection);
}

void lw_streams_publish(struct lw_streams *all, struct lw_bytes text) {
    pthread_mutex_lock(&all->lock);
    text_drop(all->newest);
    all->newest = text_new(text);
    all->published++;
    for (struct stream *s = all->first; s; s = s->next) {
        /* A shutdown of the socket makes MHD close the connection. */
        if (!s->suspended && ++s->behind > LW_STREAM_BEHIND) shutdown(s->fd, SHUT_RDWR);
        wake(s);
    }
    pthread_mutex_unlock(&all->lock);
}

int lw_streams_count(struct lw_streams *all) {
    pthread_mutex_lock(&all->lock);
    int n = all->n;
    pthread_mutex_unlock(&all->lock);
    return n;
}

void lw_streams_end(struct lw_streams *all) {
    pthread_mutex_lock(&all->lock);
    all->ending = true;
    for (struct stream *s = all->first; s; s = s->next) wake(s);
    pthread_mutex_unlock(&all->lock);
}

void lw_streams_close(struct lw_streams *all) {
    if (!all) return;
    assert(!all->first);
    text_drop(all->newest);
    pthread_mutex_destroy(&all->lock);
    free(all);
}
