/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: HTTP responses that do not end. Each client of a stream gets every text that is
 * published after it has connected.
 *
 * Each text is stored once for all streams, until every stream has sent it. A stream that is still
 * sending a text when newer texts are published skips all of these but the newest. A client that
 * falls LW_STREAM_BEHIND texts behind is disconnected, so that the memory per client is bounded.
 * Between texts a stream is suspended and uses no CPU.
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
/* Makes a new stream, and returns its response, which begins with the bytes `first`. Returns NULL
 * if LW_STREAMS streams are already open. `fd` is the connection's socket. */
struct MHD_Response *lw_streams_add(struct lw_streams *all, struct MHD_Connection *c, int fd,
                                    struct lw_bytes first);
/* Makes a copy of the text the newest text, which all open streams then send. */
void lw_streams_publish(struct lw_streams *all, struct lw_bytes text);
int lw_streams_count(struct lw_streams *all);
/* Ends all streams, also those added later. Call this function before MHD's daemon is stopped, and
 * lw_streams_close() after the daemon was stopped. */
void lw_streams_end(struct lw_streams *all);
void lw_streams_close(struct lw_streams *all);

#endif
