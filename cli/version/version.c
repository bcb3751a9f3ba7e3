/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the command `latchwork version`, which prints the versions of the program and its
 * libraries, and the abilities of these libraries. */
#include "cli/version/version.h"

#include "config/librdkafka.h"

#include <hiredis/hiredis.h>
#include <curl/curl.h>
#include <jansson.h>
#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <openssl/opensslv.h>
#include <pg_config.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

struct version_args {
    struct cli_args cli;
    bool verbose;
};

static const struct cli_option options[] = {
    {.name = "verbose",
     .brief = 'v',
     .kind = CLI_FLAG,
     .help = "also print the version of each library, and what this program can do with it",
     .at = offsetof(struct version_args, verbose)},
    CLI_JSON_OPTION("print one JSON object"),
    {0},
};

static const char *const examples[] = {"--verbose", NULL};
static const struct cli_status statuses[] = {
    {"0", "success", 0}, {"1", "stdout cannot be written", 0}, {"2", "usage error", 0}, {0}};

/* --- libraries -------------------------------------------------------------------------------- */

enum { LIBRARIES = 9, TEXT_MAX = 64 };

/* Describes one library. `loaded` is the version at run time, or "" if the library does not report
 * it. */
struct library {
    const char *name;
    char compiled[TEXT_MAX], loaded[TEXT_MAX];
};

static void number(char out[TEXT_MAX], unsigned a, unsigned b, unsigned c) {
    snprintf(out, TEXT_MAX, "%u.%u.%u", a, b, c);
}

static void find_libraries(struct library all[LIBRARIES]) {
    unsigned rd = RD_KAFKA_VERSION, xx = XXH_versionNumber(), mhd = (unsigned)MHD_VERSION,
             pq = (unsigned)PQlibVersion();
    memset(all, 0, LIBRARIES * sizeof *all);
    all[0].name = "librdkafka";
    number(all[0].compiled, rd >> 24, rd >> 16 & 0xff, rd >> 8 & 0xff);
    snprintf(all[0].loaded, TEXT_MAX, "%s", rd_kafka_version_str());
    all[1].name = "hiredis";
    number(all[1].compiled, HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    all[2].name = "jansson";
    snprintf(all[2].compiled, TEXT_MAX, "%s", JANSSON_VERSION);
    snprintf(all[2].loaded, TEXT_MAX, "%s", jansson_version_str());
    all[3].name = "sqlite3";
    snprintf(all[3].compiled, TEXT_MAX, "%s", SQLITE_VERSION);
    snprintf(all[3].loaded, TEXT_MAX, "%s", sqlite3_libversion());
    all[4].name = "libmicrohttpd";
    /* each byte holds two binary-coded decimal digits, which %x prints */
    snprintf(all[4].compiled, TEXT_MAX, "%x.%x.%x", mhd >> 24, mhd >> 16 & 0xff, mhd >> 8 & 0xff);
    snprintf(all[4].loaded, TEXT_MAX, "%s", MHD_get_version());
    all[5].name = "xxhash";
    number(all[5].compiled, XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE);
    number(all[5].loaded, xx / 10000, xx / 100 % 100, xx % 100);
    all[6].name = "openssl";
    sscanf(OPENSSL_VERSION_TEXT, "%*s %15s", all[6].compiled);
    sscanf(OpenSSL_version(OPENSSL_VERSION), "%*s %15s", all[6].loaded);
    all[7].name = "libpq";
    sscanf(PG_VERSION, "%15s", all[7].compiled);
    snprintf(all[7].loaded, TEXT_MAX, "%u.%u", pq / 10000, pq % 10000);
    all[8].name = "libcurl";
    snprintf(all[8].compiled, TEXT_MAX, "%s", LIBCURL_VERSION);
    snprintf(all[8].loaded, TEXT_MAX, "%s", curl_version_info(CURLVERSION_NOW)->version);
}

/* --- abilities -------------------------------------------------------------------------------- */

/* Lists abilities of librdkafka, each with a setting that needs it. An ability counts as present
 * unless Latchwork knows that the loaded version of librdkafka does not support the setting. */
static const struct {
    const char *name, *property, *value;
} abilities[] = {
    {"TLS", "security.protocol", "ssl"},
    {"SASL PLAIN", "sasl.mechanism", "PLAIN"},
    {"SASL SCRAM", "sasl.mechanism", "SCRAM-SHA-512"},
    {"SASL OAUTHBEARER", "sasl.mechanism", "OAUTHBEARER"},
    {"OAUTHBEARER by OIDC", "sasl.oauthbearer.method", "oidc"},
    {"SASL GSSAPI (Kerberos)", "sasl.mechanism", "GSSAPI"},
    {"new group protocol (KIP-848)", "group.protocol", "consumer"},
};
enum { ABILITIES = sizeof abilities / sizeof *abilities };

static bool can(size_t i) {
    struct lw_problems ignored = {0};
    bool refused = lw_librdkafka_judge(lw_librdkafka_loaded(), abilities[i].property,
                                       abilities[i].value, &ignored);
    lw_problems_free(&ignored);
    return !refused;
}

static void print_verbose(void) {
    struct library all[LIBRARIES];
    struct lw_buf limits = {0};
    find_libraries(all);
    lw_librdkafka_limits(lw_librdkafka_loaded(), "  ", &limits);
    printf("\n%-16s %-12s %s\n", "library", "compiled", "loaded");
    for (int i = 0; i < LIBRARIES; i++)
        printf("%-16s %-12s %s\n", all[i].name, all[i].compiled,
               all[i].loaded[0] ? all[i].loaded : "-");
    printf("\nKafka\n");
    for (size_t i = 0; i < ABILITIES; i++)
        printf("  %-30s %s\n", abilities[i].name, can(i) ? "yes" : "no");
    if (limits.n)
        printf("\nlimits of librdkafka %s\n%.*s", lw_librdkafka_loaded()->text, (int)limits.n,
               limits.p);
    lw_buf_free(&limits);
}

static void print_json(void) {
    struct library all[LIBRARIES];
    json_t *libraries = json_object(), *kafka = json_object();
    find_libraries(all);
    for (int i = 0; i < LIBRARIES; i++)
        json_object_set_new(libraries, all[i].name,
                            json_pack("{ss so}", "compiled", all[i].compiled, "loaded",
                                      all[i].loaded[0] ? json_string(all[i].loaded) : json_null()));
    for (size_t i = 0; i < ABILITIES; i++)
        json_object_set_new(kafka, abilities[i].name, json_boolean(can(i)));
    json_t *o =
        json_pack("{ss so so}", "version", LW_VERSION, "libraries", libraries, "kafka", kafka);
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
}

static int run(void *args) {
    const struct version_args *a = args;
    if (a->cli.json) {
        print_json();
    } else {
        printf("latchwork %s\n", LW_VERSION);
        if (a->verbose) print_verbose();
    }
    return cli_written(&a->cli, 0);
}

const struct cli_command cli_version = {
    .name = "version",
    .summary = "print the version; with --verbose also of each library",
    .about = "Prints the version of the program. With --verbose also the version of each library, "
             "compiled against and loaded, what the "
             "loaded librdkafka can do, and its known limits.",
    .options = options,
    .examples = examples,
    .statuses = statuses,
    .args_size = sizeof(struct version_args),
    .run = run,
};
