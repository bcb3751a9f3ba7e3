/* SPDX-License-Identifier: Apache-2.0 */
/* The single table of configuration keys, with their types, ranges and defaults. Loading,
 * suggestions, the command `check` and the reference page use it. */
#include "base/nearest.h"
#include "config/option.h"

#include <stddef.h>
#include <stdio.h>

#define AT(field) offsetof(struct lw_config, field)

/* Lists of the words that a key accepts, each list in the order of the key's enum. */
static const char *const missing_words[] = {"dead", "skip", "own", NULL};
static const char *const busy_words[] = {"park", "latest", NULL};
static const char *const stop_words[] = {"leave", "stay", NULL};
static const char *const order_words[] = {"block", "skip", NULL};
static const char *const level_words[] = {"debug", "info", "warn", "error", "off", NULL};
static const char *const log_key_words[] = {"hash", "plain", "none", NULL};
static const char *const payload_words[] = {"show", "mask", "hide", NULL};
static const char *const format_words[] = {"text", "json", NULL};

const struct lw_option lw_options[] = {
    {.path = "name",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_name,
     .show = lw_show_name,
     .form = "string of 1 to 64 of A–Z a–z 0–9 . _ -",
     .dflt = "\"latchwork\"",
     .help = "Names the application in Redis, in the log and, unless `group.id` says otherwise, as "
             "consumer group. Workers of one name "
             "share their "
             "lanes."},
    {.path = "workers",
     .kind = LW_OPT_INT,
     .at = AT(workers),
     .min = 1,
     .max = 256,
     .dflt = "2",
     .help = "How many worker processes this supervisor runs. `workers` × `handler.threads` is at "
             "most 4096."},
    {.path = "kafka.topics",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_topics,
     .show = lw_show_topics,
     .form = "list of 1 to 64 topic names",
     .required = true,
     .help = "The topics to consume. Names only, no patterns: a topic that comes into being must "
             "not join a running group unasked."},
    {.path = "kafka.properties",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_properties,
     .show = lw_show_properties,
     .form = "object of librdkafka properties",
     .dflt = "{}",
     .help = "Passed to librdkafka. Defaults: `bootstrap.servers` 127.0.0.1:9092, `group.id` = "
             "`name`, `auto.offset.reset` earliest, "
             "`session.timeout.ms` 15000. A property that would break the guarantees is refused "
             "with the reason. Values of password "
             "and secret properties are never shown. `group.instance.id` gives each worker an id "
             "of its own: that text, the worker's "
             "number and a hash of `kafka.topics`; each supervisor of a group needs another text, "
             "such as `${HOSTNAME}`. "
             "`group.protocol` `consumer` (KIP-848) needs librdkafka 2.15 and Kafka 4.0; "
             "`session.timeout.ms`, `heartbeat.interval.ms` and "
             "`partition.assignment.strategy` are the broker's then."},
    {.path = "kafka.member_id",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_member_id,
     .show = lw_show_member_id,
     .form = "string of 1 to 100 of A–Z a–z 0–9 . _ -, or `off`",
     .dflt_text = "the host's name",
     .help = "Names this supervisor in the consumer group. Each worker's `group.instance.id` "
             "consists of `name`, this name, the number of "
             "the supervisor on its host, the worker's number and a hash of `kafka.topics`, so a "
             "restarted worker gets its partitions "
             "back at once. Set it if the host's name changes at a restart. `off`: workers are "
             "dynamic members; when one dies, the whole "
             "group waits `session.timeout.ms`. With `group.protocol` `consumer` it is `off` "
             "unless it is set."},
    {.path = "kafka.on_stop",
     .kind = LW_OPT_EITHER,
     .at = AT(kafka.stay),
     .words = stop_words,
     .dflt = "\"leave\"",
     .help =
         "What an orderly stop does with the supervisor's place in the group. `leave`: a rebalance "
         "gives its partitions to the others "
         "at once. `stay`: they wait up to `session.timeout.ms` for the next run with the same "
         "`kafka.member_id`, and nobody else "
         "notices. A worker with an id of its own always stays with `group.protocol` `consumer`."},
    {.path = "redis.url",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_urls,
     .show = lw_show_urls,
     .form = "URL, or list of URLs",
     .dflt = "\"redis://127.0.0.1:6379/0\"",
     .unless = {"redis.sentinel", "redis.cluster"},
     .help = "`redis://[user:password@]host[:port][/db]`, `rediss://…` for TLS, or "
             "`unix:///path[?db=N]`. Of a list, shard s lives on "
             "server s mod their number. Put "
             "passwords in with `${VAR}` or `${file:PATH}`; they are never shown."},
    {.path = "redis.shards",
     .kind = LW_OPT_INT,
     .at = AT(redis.shards),
     .min = 1,
     .max = 1024,
     .dflt_text = "the number of URLs",
     .help = "How many shards the lanes are spread over. All workers of a name must agree. Needed "
             "with `redis.cluster`: as many as it has "
             "masters, or a small multiple."},
    {.path = "redis.db",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_db,
     .show = lw_show_db,
     .max = 1000000,
     .form = "0 to 1000000",
     .dflt_text = "0",
     .help = "The database, with `redis.sentinel`. A cluster has no other than 0. A URL says it "
             "itself, as `/N`."},
    {.path = "redis.username",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.username),
     .max = 255,
     .help = "The ACL user, for URLs without one, for the master that Sentinels name, and for "
             "cluster nodes. Needs `redis.password`."},
    {.path = "redis.password",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.password),
     .max = 4096,
     .secret = true,
     .help = "The password that belongs to it: `${VAR}` or `${file:PATH}`. It is read when the "
             "program starts and at a reload (SIGHUP), "
             "and is never shown."},
    {.path = "redis.tls.ca_file",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.tls.ca_file),
     .max = 4096,
     .dflt_text = "the system's CAs",
     .help = "For `rediss://`: the CAs that may sign a server's certificate, in PEM. The files of "
             "`redis.tls` are read anew for each "
             "connection, so that a certificate can be replaced at any time. With `redis.sentinel` "
             "or `redis.cluster`, TLS is spoken "
             "if `redis.tls` is given; `\"tls\": {}` is enough."},
    {.path = "redis.tls.cert_file",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.tls.cert_file),
     .max = 4096,
     .help = "The client's certificate, in PEM, with those of its CAs below the root, for servers "
             "that ask for one."},
    {.path = "redis.tls.key_file",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.tls.key_file),
     .max = 4096,
     .dflt_text = "`redis.tls.cert_file`",
     .help = "Its private key, in PEM, without a passphrase."},
    {.path = "redis.tls.server_name",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.tls.server_name),
     .max = 255,
     .dflt_text = "the host of the URL",
     .help = "The name, or address, that a server's certificate must carry. Sentinels name the "
             "master by its address, unless they have "
             "`resolve-hostnames` and `announce-hostnames`."},
    {.path = "redis.tls.verify",
     .kind = LW_OPT_CUSTOM,
     .at = AT(redis.tls.no_verify),
     .take = lw_take_tls_verify,
     .show = lw_show_tls_verify,
     .form = "`true` or `false`",
     .dflt = "true",
     .help =
         "`false` accepts any certificate: whoever is in between can read and change everything."},
    {.path = "redis.sentinel.addresses",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_addresses,
     .show = lw_show_addresses,
     .form = "list of 1 to 64 `host[:port]`",
     .help = "The Sentinels, in place of `redis.url`; their port is 26379 if none is given. Before "
             "each connection they are asked, "
             "one after the other, for the address of the master. All shards live on it."},
    {.path = "redis.sentinel.master",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.sentinel.master),
     .max = 255,
     .help = "The master's name in `sentinel monitor NAME …`. Needed with `redis.sentinel`."},
    {.path = "redis.sentinel.username",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.sentinel.username),
     .max = 255,
     .help = "The ACL user of the Sentinels, which have users of their own. Needs "
             "`redis.sentinel.password`."},
    {.path = "redis.sentinel.password",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.sentinel.password),
     .max = 4096,
     .secret = true,
     .help = "The password of the Sentinels, if they ask for one. `redis.password` is that of the "
             "master."},
    {.path = "redis.sentinel.tls.ca_file",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.sentinel.tls.ca_file),
     .max = 4096,
     .dflt_text = "the system's CAs",
     .help = "As `redis.tls.ca_file`, for the Sentinels. They are spoken to over TLS if "
             "`redis.sentinel.tls` is given; `\"tls\": {}` is "
             "enough."},
    {.path = "redis.sentinel.tls.cert_file",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.sentinel.tls.cert_file),
     .max = 4096,
     .help = "As `redis.tls.cert_file`, for the Sentinels."},
    {.path = "redis.sentinel.tls.key_file",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.sentinel.tls.key_file),
     .max = 4096,
     .dflt_text = "`redis.sentinel.tls.cert_file`",
     .help = "As `redis.tls.key_file`, for the Sentinels."},
    {.path = "redis.sentinel.tls.server_name",
     .kind = LW_OPT_TEXT,
     .at = AT(redis.sentinel.tls.server_name),
     .max = 255,
     .dflt_text = "the host of the address",
     .help = "As `redis.tls.server_name`, for the Sentinels."},
    {.path = "redis.sentinel.tls.verify",
     .kind = LW_OPT_CUSTOM,
     .at = AT(redis.sentinel.tls.no_verify),
     .take = lw_take_tls_verify,
     .show = lw_show_sentinel_verify,
     .form = "`true` or `false`",
     .dflt = "true",
     .help = "As `redis.tls.verify`, for the Sentinels."},
    {.path = "redis.cluster",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_nodes,
     .show = lw_show_nodes,
     .form = "list of 1 to 64 `host[:port]`",
     .help = "Nodes of a Redis Cluster or Valkey Cluster, in place of `redis.url`; their port is "
             "6379 if none is given. Any of them is asked "
             "for the others, so a few are enough. Each shard is one slot, and the shards spread "
             "over the masters. All nodes are spoken to "
             "with `redis.username` and `redis.password`, and over TLS if `redis.tls` is given."},
    {.path = "key.from",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_key_from,
     .show = lw_show_key_from,
     .form = "`message-key`, `header:NAME` or `json:/pointer`",
     .dflt = "\"message-key\"",
     .help = "Where a record's primary key stands. `json:` takes an RFC 6901 pointer into the "
             "payload; a JSON number or string counts as "
             "its text. All "
             "workers of a name must agree."},
    {.path = "key.missing",
     .kind = LW_OPT_WORD,
     .at = AT(key.missing),
     .words = missing_words,
     .dflt = "\"dead\"",
     .help = "What becomes of a record without a key: a dead letter (`dead`), nothing (`skip`), or "
             "a message that runs in no order and "
             "excludes no other (`own`): its key is then its identity, as `orders/3/1042`."},
    {.path = "group.from",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_group_from,
     .show = lw_show_group_from,
     .form = "`message-key`, `header:NAME` or `json:/pointer`",
     .dflt_text = "no groups",
     .help =
         "Where a record names its group, such as its tenant. Groups whose messages wait share the "
         "handlers of each worker by handler time; `limits.group` and `limits.groups` limit them. "
         "All records of a key should name the same one. Records without it are a group, too, of "
         "the name \"\". Without limits in the file, `latchwork group` can still limit and pause "
         "groups."},
    {.path = "group.weights",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_weights,
     .show = lw_show_weights,
     .form = "object NAME → weight from 1 to 1,000, of at most 1,000",
     .dflt_text = "1 for each",
     .help = "Groups that get another part of the handler time than others while they wait: one of "
             "the weight 3 gets three times as much as one of the weight 1."},
    {.path = "lock.ttl_ms",
     .kind = LW_OPT_INT64,
     .at = AT(lock.ttl_ms),
     .min = 200,
     .max = 3600000,
     .dflt = "10000",
     .help = "How long a lease lasts without renewal: a dead worker's keys move on after this "
             "time. Longer work is renewed."},
    {.path = "lock.max_run",
     .kind = LW_OPT_INT,
     .at = AT(lock.max_run),
     .min = 1,
     .max = 10000,
     .dflt = "64",
     .help = "How many messages of one key run under one lease before others that wait get their "
             "turn."},
    {.path = "lock.run_ahead",
     .kind = LW_OPT_INT,
     .at = AT(lock.run_ahead),
     .min = 1,
     .max = 64,
     .dflt = "64",
     .help = "How many messages of one key are granted at once and follow each other without "
             "asking Redis in between. 1: each is settled "
             "before the next "
             "starts, so a killed worker leaves one message of a key to run again at most; a hot "
             "key then waits for Redis after every "
             "message."},
    {.path = "queue.max_waiting",
     .kind = LW_OPT_INT64,
     .at = AT(queue.max_waiting),
     .min = 1,
     .max = 10000000,
     .dflt = "100000",
     .help = "How many unfinished messages a partition may have; at this bound it is held back, "
             "nothing is dropped."},
    {.path = "queue.on_busy",
     .kind = LW_OPT_WORD,
     .at = AT(queue.on_busy),
     .words = busy_words,
     .hint = "to discard a message that comes twice, set dedup.id and dedup.window_s",
     .dflt = "\"park\"",
     .help = "A message whose key is busy waits (`park`). With `latest`, a message that waits is "
             "dropped once a newer one of its key and partition is known, so that only the newest "
             "runs."},
    {.path = "limits.running",
     .kind = LW_OPT_INT,
     .at = AT(limits.fleet.running),
     .min = 1,
     .max = 1000000,
     .dflt_text = "no limit",
     .help = "How many messages the whole fleet may have in its handlers at once."},
    {.path = "limits.per_second",
     .kind = LW_OPT_INT,
     .at = AT(limits.fleet.per_second),
     .min = 1,
     .max = 1000000,
     .dflt_text = "no limit",
     .help = "How many messages the whole fleet may start in a second. Each attempt counts, also "
             "of replays. In any time of W seconds at most `burst` + `per_second` × (W + 0.1) "
             "messages start."},
    {.path = "limits.burst",
     .kind = LW_OPT_INT,
     .at = AT(limits.fleet.burst),
     .min = 1,
     .max = 1000000,
     .dflt_text = "a tenth of `limits.per_second`",
     .help = "How many starts that were not used in quiet times may be made up for at once."},
    {.path = "limits.group.running",
     .kind = LW_OPT_INT,
     .at = AT(limits.group.running),
     .min = 1,
     .max = 1000000,
     .dflt_text = "no limit",
     .help = "As `limits.running`, for the messages of each group."},
    {.path = "limits.group.per_second",
     .kind = LW_OPT_INT,
     .at = AT(limits.group.per_second),
     .min = 1,
     .max = 1000000,
     .dflt_text = "no limit",
     .help = "As `limits.per_second`, for the messages of each group."},
    {.path = "limits.group.burst",
     .kind = LW_OPT_INT,
     .at = AT(limits.group.burst),
     .min = 1,
     .max = 1000000,
     .dflt_text = "a tenth of `limits.group.per_second`",
     .help = "As `limits.burst`, for each group."},
    {.path = "limits.groups",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_groups,
     .show = lw_show_groups,
     .form = "object NAME → `running`, `per_second`, `burst`, of at most 1,000",
     .dflt_text = "none",
     .help = "Groups with limits of their own, in place of `limits.group`. The name \"\" is for "
             "records without a group."},
    {.path = "retry.max_attempts",
     .kind = LW_OPT_INT,
     .at = AT(retry.max_attempts),
     .min = 1,
     .max = 1000,
     .dflt = "5",
     .help = "Attempts before a message is dead; counts the first."},
    {.path = "retry.backoff_ms",
     .kind = LW_OPT_INT64,
     .at = AT(retry.backoff_ms),
     .min = 0,
     .max = 3600000,
     .dflt = "200",
     .help = "Wait before the second attempt; doubles from then on, with jitter."},
    {.path = "retry.backoff_max_ms",
     .kind = LW_OPT_INT64,
     .at = AT(retry.backoff_max_ms),
     .min = 0,
     .max = 86400000,
     .dflt = "30000",
     .help = "The longest wait between attempts."},
    {.path = "retry.max_age_s",
     .kind = LW_OPT_INT64,
     .at = AT(retry.max_age_s),
     .min = 1,
     .max = 2592000,
     .dflt = "86400",
     .help = "How long after its first failure a message may come back without an attempt "
             "(`\"counts\": false`). After that each retry counts."},
    {.path = "retry.order",
     .kind = LW_OPT_WORD,
     .at = AT(retry.order),
     .words = order_words,
     .dflt = "\"block\"",
     .help = "`block` keeps the lane behind its failing head; `skip` lets the next one go first."},
    {.path = "dead.to",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_dead_to,
     .show = lw_show_dead_to,
     .form = "`redis` or `topic:NAME`",
     .dflt = "\"redis\"",
     .help = "Where dead letters go. A topic outlives a wiped Redis."},
    {.path = "dedup.id",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_dedup_id,
     .show = lw_show_dedup_id,
     .form = "`offset`, `header:NAME` or `json:/pointer`",
     .dflt = "\"offset\"",
     .help = "What tells two messages apart. With a business id, a second message with it inside "
             "the window is dropped and counted."},
    {.path = "dedup.window_s",
     .kind = LW_OPT_INT64,
     .at = AT(dedup.window_s),
     .min = 0,
     .max = 31536000,
     .dflt = "0",
     .help = "How long business ids are remembered; 0 means that they are off."},
    {.path = "handler",
     .kind = LW_OPT_HANDLER,
     .show = lw_show_handler,
     .required = true,
     .form = "object",
     .help = "What is done with a message. Beside the keys below, each type has its own: "
             "[`exec`](../how-to/exec-handler.md), [`plugin`](../how-to/plugin.md), "
             "[`http`](../how-to/http-handler.md), [`insert`](../how-to/insert.md)."},
    {.path = "handler.type",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_handler_type,
     .form = "`exec`, `plugin`, `http` or `insert`",
     .required = true,
     .help = "`exec`: long-lived processes in any language; `plugin`: a shared object; `http`: a "
             "service behind a URL; `insert`: a row into "
             "SQLite or PostgreSQL."},
    {.path = "handler.threads",
     .kind = LW_OPT_INT,
     .at = AT(handler.threads),
     .min = 1,
     .max = 256,
     .dflt_text = "4; 1 for `insert` into SQLite",
     .help = "How many messages of different keys a worker runs at once. `exec` has `processes` "
             "instead, `http` has `in_flight`."},
    {.path = "handler.processes",
     .kind = LW_OPT_INT,
     .at = AT(handler.threads),
     .min = 1,
     .max = 256,
     .dflt_text = "4",
     .help = "`exec` only: how many handler processes a worker keeps."},
    {.path = "handler.in_flight",
     .kind = LW_OPT_INT,
     .at = AT(handler.in_flight),
     .min = 1,
     .max = 1000,
     .dflt_text = "1; 64 for `http`",
     .help = "`exec`: how many messages of different keys a process has at once; it may answer in "
             "any order. `processes` × `in_flight` is "
             "at most 10,000. `http`: how many requests a worker has under way at once."},
    {.path = "handler.batch",
     .kind = LW_OPT_INT,
     .at = AT(handler.batch),
     .min = 1,
     .max = 64,
     .dflt_text = "1; `lock.run_ahead` for `http` with `mode` `batch`",
     .help = "`exec`, and `http` with `mode` `batch`: how many messages of one key, in order, may "
             "go into one request. No more than "
             "`lock.run_ahead`."},
    {.path = "handler.timeout_ms",
     .kind = LW_OPT_INT64,
     .at = AT(handler.timeout_ms),
     .min = 0,
     .max = 86400000,
     .dflt = "30000",
     .help = "How long one message may take before it is given up and tried again; 0: no limit. "
             "The first message of an `exec` process waits for its start, which counts."},
    {.path = "shutdown.grace_ms",
     .kind = LW_OPT_INT64,
     .at = AT(shutdown.grace_ms),
     .min = 0,
     .max = 3600000,
     .dflt = "30000",
     .help = "How long a stopping worker, or a rebalance, waits for running handlers."},
    {.path = "http.listen",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_http_listen,
     .show = lw_show_http_listen,
     .form = "`address:port`, `[address]:port` or `off`",
     .dflt = "\"127.0.0.1:9464\"",
     .help = "Where metrics and health are served: a numeric address or `localhost`. Port 0: any "
             "free one, named in the log. Where the port is "
             "taken the run goes on without. There is no TLS, and without `http.read_tokens` no "
             "password: beyond loopback, put a "
             "[proxy](../how-to/monitor.md#put-the-page-behind-tls) in front."},
    {.path = "http.health_listen",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_http_listen,
     .show = lw_show_http_health_listen,
     .form = "as `http.listen`",
     .dflt_text = "off",
     .help = "A second address, which serves only `/metrics`, `/healthz` and `/readyz`. They show "
             "no keys and no payloads, so it may be open to probes and Prometheus while "
             "`http.listen` is not."},
    {.path = "http.token",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_http_token,
     .show = lw_show_http_token,
     .form = "string of 16 to 256 printable characters",
     .dflt_text = "none",
     .help = "Who sends it (`Authorization: Bearer TOKEN`) may also change things by the [HTTP "
             "API](http.md) and its page: pause and "
             "resume lanes, break locks, replay dead letters. It is the write token named `token`. "
             "Without a write token nothing can be "
             "changed. Put it in with `${VAR}` or `${file:PATH}`; it is never shown."},
    {.path = "http.read_tokens",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_http_read_tokens,
     .show = lw_show_http_read_tokens,
     .form = "object NAME → token of at most 32, each as `http.token`",
     .dflt_text = "none",
     .help = "Tokens that may read. If there is one, everything below `/api/v1` needs a token; "
             "metrics, health and the files of the page "
             "do not. A name has 1 to 64 of A–Z a–z 0–9 . _ -."},
    {.path = "http.write_tokens",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_http_write_tokens,
     .show = lw_show_http_write_tokens,
     .form = "object NAME → token of at most 32, each as `http.token`",
     .dflt_text = "none",
     .help = "Tokens that may read and change things. The audit records the name, so give each "
             "person or program a token of its own."},
    {.path = "http.hosts",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_http_hosts,
     .show = lw_show_http_hosts,
     .form = "list of at most 16 host names",
     .dflt_text = "none",
     .help = "Names that a request's `Host` may have beside an address, `localhost` and the "
             "machine's name: those of a reverse proxy. "
             "Without port."},
    {.path = "http.payloads",
     .kind = LW_OPT_WORD,
     .at = AT(http.payloads),
     .words = payload_words,
     .dflt_text = "`show`; beyond loopback without `http.read_tokens`: `hide`",
     .help = "What the HTTP API shows of payloads: everything (`show`), JSON without the values "
             "that `http.mask` names (`mask`; a payload "
             "that is no JSON is hidden), or nothing (`hide`). With `mask` and `hide` payloads "
             "cannot be edited over HTTP. Commands show "
             "payloads always."},
    {.path = "http.mask",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_http_mask,
     .show = lw_show_http_mask,
     .form = "list of at most 64 JSON pointers",
     .dflt_text = "none",
     .help = "The values of payloads that `http.payloads` `mask` hides, as `/customer/card`; with "
             "all that they contain."},
    {.path = "tracing.endpoint",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_tracing_endpoint,
     .show = lw_show_tracing_endpoint,
     .form = "URL",
     .dflt_text = "none: nothing is traced",
     .help = "Where spans are sent, by OTLP over HTTP with JSON, as `http://127.0.0.1:4318`. If "
             "the URL has no path, `/v1/traces` is added."},
    {.path = "tracing.ratio",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_tracing_ratio,
     .show = lw_show_tracing_ratio,
     .form = "0 to 1",
     .dflt = "1",
     .help = "The share of messages without a valid `traceparent` that begin a trace. It is "
             "decided from the message's identity, so that "
             "all workers decide alike. A message with a `traceparent` is traced if the sampled "
             "flag in it is set, whatever the ratio."},
    {.path = "tracing.headers",
     .kind = LW_OPT_CUSTOM,
     .take = lw_take_tracing_headers,
     .show = lw_show_tracing_headers,
     .form = "object NAME → value of at most 16",
     .dflt_text = "none",
     .help = "Headers of each request, as `{\"authorization\": \"Bearer ${file:PATH}\"}`. Their "
             "values are never shown."},
    {.path = "tracing.timeout_ms",
     .kind = LW_OPT_INT64,
     .at = AT(tracing.timeout_ms),
     .min = 100,
     .max = 60000,
     .dflt = "10000",
     .help = "Maximum time of one request. Requests never hold up a message."},
    {.path = "tracing.tls.ca_file",
     .kind = LW_OPT_TEXT,
     .at = AT(tracing.tls.ca_file),
     .max = 4096,
     .dflt_text = "the system's CAs",
     .help =
         "For `https://`: the CAs that may sign the certificate of `tracing.endpoint`, in PEM."},
    {.path = "tracing.tls.cert_file",
     .kind = LW_OPT_TEXT,
     .at = AT(tracing.tls.cert_file),
     .max = 4096,
     .help = "The client's certificate, in PEM, for endpoints that ask for one."},
    {.path = "tracing.tls.key_file",
     .kind = LW_OPT_TEXT,
     .at = AT(tracing.tls.key_file),
     .max = 4096,
     .dflt_text = "`tracing.tls.cert_file`",
     .help = "Its private key, in PEM, without a passphrase."},
    {.path = "tracing.service",
     .kind = LW_OPT_TEXT,
     .at = AT(tracing.service),
     .max = 255,
     .dflt_text = "`name`",
     .help = "The resource attribute `service.name` of the spans."},
    {.path = "tracing.keys",
     .kind = LW_OPT_WORD,
     .at = AT(tracing.keys),
     .words = log_key_words,
     .dflt = "\"none\"",
     .help = "How a message's key stands in its span: a hash of it (the same as in the log), the "
             "first 64 bytes of it, or not at all. "
             "Payloads are never sent."},
    {.path = "log.level",
     .kind = LW_OPT_WORD,
     .at = AT(log.level),
     .words = level_words,
     .dflt = "\"info\"",
     .help = "The least important lines to write."},
    {.path = "log.format",
     .kind = LW_OPT_EITHER,
     .at = AT(log.json),
     .words = format_words,
     .dflt = "\"text\"",
     .help = "One line or one JSON object per event, on stderr."},
    {.path = "log.keys",
     .kind = LW_OPT_WORD,
     .at = AT(log.keys),
     .words = log_key_words,
     .dflt = "\"hash\"",
     .help = "How a message's key stands in the lines that tell why it ended: a hash of it (the "
             "same on all machines), as it is, or not at "
             "all. "
             "Payloads are never logged."},
};
const size_t lw_n_options = sizeof lw_options / sizeof *lw_options;

const struct lw_option *lw_option_find(const char *path) {
    for (size_t i = 0; i < lw_n_options; i++)
        if (!strcmp(lw_options[i].path, path)) return &lw_options[i];
    return NULL;
}

bool lw_option_section(const char *path) {
    size_t n = strlen(path);
    for (size_t i = 0; i < lw_n_options; i++)
        if (!strncmp(lw_options[i].path, path, n) && lw_options[i].path[n] == '.') return true;
    return false;
}

static const char *leaf(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Finds the key most similar to `path`. If `same_section` is true, searches only the section that
 * `path` names; otherwise searches all sections. The caller searches all sections only if nothing
 * else was found. For example, a "ttl_ms" at the top level finds lock.ttl_ms in this way. */
static bool nearest_in(const char *path, bool same_section, char *out, size_t size) {
    const char *names[128];
    size_t at[128], n = 0, section = (size_t)(leaf(path) - path);
    for (size_t i = 0; i < lw_n_options && n < 126; i++) {
        const char *known = lw_options[i].path;
        bool same = (size_t)(leaf(known) - known) == section && !strncmp(known, path, section);
        if (same_section && !same) continue;
        at[n] = i;
        names[n++] = leaf(known);
    }
    const char *best = lw_nearest(leaf(path), names, n);
    for (size_t i = 0; best && i < n; i++) {
        if (names[i] != best) continue;
        snprintf(out, size, "%s", lw_options[at[i]].path);
        return true;
    }
    return false;
}

static bool nearest_section(const char *path, char *out, size_t size) {
    char sections[32][16];
    const char *names[32], *best = NULL;
    size_t n = 0;
    if (strchr(path, '.')) return false;
    for (size_t i = 0; i < lw_n_options && n < 32; i++) {
        size_t len = strcspn(lw_options[i].path, ".");
        if (!lw_options[i].path[len] || len >= sizeof *sections) continue;
        memcpy(sections[n], lw_options[i].path, len);
        sections[n][len] = '\0';
        if (n && !strcmp(sections[n], sections[n - 1])) continue;
        names[n] = sections[n];
        n++;
    }
    if ((best = lw_nearest(path, names, n))) snprintf(out, size, "%s", best);
    return best;
}

void lw_option_nearest(const char *path, char *out, size_t size) {
    *out = '\0';
    if (nearest_in(path, true, out, size) || nearest_section(path, out, size)) return;
    nearest_in(path, false, out, size);
}
