/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that each client of libcurl in the program shares. */
#ifndef LW_BASE_CURL_H
#define LW_BASE_CURL_H

#include "base/tls.h"

#include <curl/curl.h>

/* Makes a handle speak HTTP only: no redirect is followed, and no proxy is used, even if the
 * environment names one. */
void lw_curl_direct(CURL *easy);
/* Sets TLS 1.2 or later, the check of the server's certificate, and the client's certificate. With
 * a CA file, only its CAs are trusted. */
void lw_curl_tls(CURL *easy, const struct lw_tls *t);

#endif
