/* SPDX-License-Identifier: Apache-2.0 */
/* TLS over a socket that we create ourselves. The code uses OpenSSL directly, so TLS works even if
 * hiredis was built without it.
 *
 * Certificate files are read for each connection, so a replaced certificate is used from the next
 * connection on. The server's certificate and its name are verified unless no_verify is set. The
 * version is at least TLS 1.2. No function raises SIGPIPE. */
#ifndef LW_BASE_TLS_H
#define LW_BASE_TLS_H

#include "base/err.h"

#include <stdbool.h>

struct ssl_st; /* OpenSSL's type SSL */

struct lw_tls {
    bool on;
    bool no_verify;  /* true: accept any certificate */
    char *ca_file;   /* PEM file of the trusted CAs; NULL for the CAs of the system */
    char *cert_file; /* PEM file of the client's certificate; NULL for none */
    char *key_file;  /* PEM file of the client's key; NULL if the key is in cert_file */
    /* name that the server's certificate must have; NULL for the host of the URL */
    char *server_name;
};

/* Makes a deep copy of *from in *out. Returns -1 if an allocation failed; *out is then empty. */
int lw_tls_copy(const struct lw_tls *from, struct lw_tls *out, struct lw_err *err);
void lw_tls_free(struct lw_tls *t);

/* Creates the client's side of a TLS connection on fd, which the caller still owns. Sends nothing
 * yet. `host` is the host of the URL. Returns NULL with *err, which names the file if a file cannot
 * be used. The caller frees the result with SSL_free(). */
struct ssl_st *lw_tls_open(const struct lw_tls *t, const char *host, int fd, struct lw_err *err);

/* Sets *err to the meaning of a failed OpenSSL call. `result` is the value that the call returned,
 * and errno must not have changed since. Always returns -1. */
int lw_tls_fail(struct ssl_st *ssl, int result, struct lw_err *err);

#endif
