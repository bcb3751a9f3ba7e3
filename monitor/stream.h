/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that do not end: each client of a stream gets every text that is published from then on.
 *
 * A text is kept once for all streams, until each has sent it. A stream that is still busy with a
 * text when the next one is published leaves out what was published in between and continues with
 * the newest. A client that reads so slowly that it falls LW_STREAM_BEHIND texts behind is cut off,
 * so that clients cost a bounded amount of memory. Between texts a stream is suspended and costs no
 * time.
 *
 * lw_streams_add() and the sending belong to the thread of libmicrohttpd (MHD). Any thread may call
 * the other functions. */
#ifndef LW_MONITOR_STREAM_H
#define LW_MONITOR_STREAM_H

#include "base/bytes.h"

#include <microhttpd.h>

enum { LW_STREAMS = 16, LW_STREAM_BEHIND = 10, LW_STREAM_SEND_BYTES = 256 << 10 };

struct lw_streams;

struct lw_streams *lw_streams_open(void);
/* Returns the answer of a new stream, which begins with these bytes; NULL if LW_STREAMS are open.
 * `fd` is the connection's socket. */
struct MHD_Response *lw_streams_add(struct lw_streams *all, struct MHD_Connection *c, int fd,
                                    struct lw_bytes first);
void lw_streams_publish(struct lw_streams *all, struct lw_bytes text); /* copies the text */
int lw_streams_count(struct lw_streams *all);
/* Ends all streams, and those that are added later. Must be called before MHD's daemon is stopped,
 * and lw_streams_close() after it. */
void lw_streams_end(struct lw_streams *all);
void lw_streams_close(struct lw_streams *all);

#endif
