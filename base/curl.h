/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that all users of libcurl in the program share. */
#ifndef LW_BASE_CURL_H
#define LW_BASE_CURL_H

#include "base/tls.h"

#include <curl/curl.h>

/* Restricts a handle to HTTP: it follows no redirect and uses no proxy, even if the environment
 * names one. */
void lw_curl_direct(CURL *easy);
/* Makes a handle require TLS 1.2 or later, verify the server's certificate (unless no_verify is
 * set), and use the client's certificate if there is one. If a CA file is given, only its CAs are
 * trusted. */
void lw_curl_tls(CURL *easy, const struct lw_tls *t);

#endif
