/* SPDX-License-Identifier: Apache-2.0 */
/* Every path of the API below /api/v1/: who answers, what may be asked, and what comes back. */
#include "cli/api/private.h"

const struct api_param api_params[] = {
    {API_P_KEY, "key", "[s]", "only this primary key; may be given several times"},
    {API_P_MATCH, "match", "s", "only keys that match this glob: * ? [a-z]"},
    {API_P_TOPIC, "topic", "s", "only messages of this topic; for lanes, that of the oldest message"},
    {API_P_PARTITION, "partition", "i", "only messages of this partition; for lanes, that of the oldest message"},
    {API_P_OLDER_THAN, "older_than", "s", "only what arrived longer ago: 90s, 15m, 2h, 3d"},
    {API_P_ATTEMPTS, "attempts", "i", "only what was tried at least this number of times"},
    {API_P_REASON, "reason", "s", "only dead letters whose whole reason matches this glob"},
    {API_P_ERROR, "error", "s", "only dead letters whose reason contains this text"},
    {API_P_WHERE, "where", "[s]", "only messages whose JSON payload passes this test, such as /total>100; may be given several times"},
    {API_P_FROM, "from", "s", "only since then: 2026-11-21T12:00:00Z, or 1h (ago)"},
    {API_P_TO, "to", "s", "only before then, in the same forms"},
    {API_P_ORDER, "order", "s", "oldest (default) or newest"},
    {API_P_LIMIT, "limit", "i", "maximum number of rows, 1 to 500 (default: 100)"},
    {API_P_CURSOR, "cursor", "s", "the `next` of the page before"},
};
const size_t api_n_params = sizeof api_params / sizeof *api_params;

const struct api_shape api_shapes[] = {
    {"Error", "{error:s}"},
    {"Lane", "{key?:s,key_base64?:s,shard:i,waiting:i,age_ms:i,oldest:s?,attempts:i,paused:b,backoff:b,holder?:s?,holder_base64?:s,"
             "fence?:i,since_ms?:i,until_ms?:i,due_ms?:i}"},
    {"LaneMessages", "{key?:s,key_base64?:s,shard:i,waiting:i,age_ms:i,oldest:s?,attempts:i,paused:b,backoff:b,holder?:s?,"
                     "holder_base64?:s,fence?:i,since_ms?:i,until_ms?:i,due_ms?:i,messages:[Message],more:b}"},
    {"Message", "{topic?:s,partition?:i,offset?:i,tstype?:s,ts?:i,headers?:[s?],headers_base64?:[s?],key?:s?,key_base64?:s,payload?:s?,"
                "payload_base64?:s,payload_size?:i,identity?:s,replay?:i,first_ms?:i,dedup?:s,dedup_base64?:s,envelope?:s,"
                "envelope_base64?:s,attempts:i,lane?:s,lane_base64?:s,shard:i,due_ms?:i,age_ms?:i,id?:s,reason?:s?,reason_base64?:s,"
                "tried_first_ms?:i,died_ms?:i,edited_by?:s,edited_by_base64?:s,edited_ms?:i,original_payload?:s?,"
                "original_payload_base64?:s}"},
    {"Holder", "{worker?:s,worker_base64?:s,host:s?,pid:i?,since_ms:i,lease_left_ms:i,fence:i}"},
    {"Counters", "{done:i,dead:i,dropped:i,skipped:i,received:i,redelivered:i,parked:i,drained:i,retried:i,reruns:i,stale:i,commits:i,"
                 "epochs_lost:i,leases_lost:i,locks_granted:i,locks_busy:i,redis_commands:i,redis_round_trips:i}"},
    {"Worker", "{worker:i,pid:i,state:s,kafka:s?,why:s,starts:i,turned_ms_ago:i?,waiting:i,in_handler:i,counts:Counters}"},
    {"Partition", "{topic:s,partition:i,worker:i,committed:i,watermark:i,log_end:i,unfinished:i,waiting:i,blocked_ms:i}"},
    {"Shard", "{shard:i,up:b,lanes:i,ready:i,dead:i,paused:i,oldest_ms:i}"},
    {"KeyResult", "{key?:s,key_base64?:s,result:s}"},
    {"Replayed", "{results:[{identity:s,result:s,job?:i}],summary:o}"},
};
const size_t api_n_shapes = sizeof api_shapes / sizeof *api_shapes;

/* A path with a "*" stands behind the paths that it would hide. */
const struct api_route api_routes[] = {
    {.path = "",
     .fn = api_index,
     .help = "The paths, and whether anything may be changed.",
     .answer = "{name:s,version:s,get:[s],post:[s],writable:b}",
     .offline = true},
    {.path = "version", .help = "The version of the program.", .answer = "{name:s,version:s}"},
    {.path = "stats",
     .help = "Sums over the workers of this supervisor, and the state of each shard some seconds ago.",
     .answer = "{name:s,version:s,started_ms:i,workers:i,ready:i,partitions:i,lag:i,unfinished:i,waiting:i,in_handler:i,counters:Counters,"
               "shards:[Shard]}"},
    {.path = "workers", .help = "Each worker of this supervisor.", .answer = "[Worker]"},
    {.path = "partitions", .help = "Each partition that a worker of this supervisor owns.", .answer = "[Partition]"},
    {.path = "counters", .help = "The counters since the start.", .answer = "Counters"},
    {.path = "lanes",
     .fn = api_lanes,
     .help = "Lanes that have waiting messages or are paused, in no order.",
     .params = API_LANE_FILTER | API_PAGE,
     .answer = "{lanes:[Lane],next:s?}"},
    {.path = "lanes/*",
     .fn = api_lane,
     .help = "One lane with the oldest of its messages.",
     .params = API_P_LIMIT,
     .answer = "LaneMessages"},
    {.path = "keys/*",
     .fn = api_key,
     .help = "What is known about a key: its holder, what waits behind it in order, and its newest dead letters.",
     .params = API_P_LIMIT,
     .answer = "{key?:s,key_base64?:s,shard:i,lane:Lane?,holder:Holder?,paused:{by?:s,at_ms?:i}?,waiting:i,messages:[Message],more:b,dead:["
               "Message],"
               "dead_complete:b}"},
    {.path = "dead",
     .fn = api_dead,
     .help = "Dead letters in Redis, shard after shard, with the first 256 bytes of their payloads.",
     .params = API_DEAD_FILTER | API_P_ORDER | API_PAGE,
     .answer = "{dead:[Message],next:s?}"},
    {.path = "dead/*", .fn = api_dead_one, .help = "One dead letter with its payload.", .answer = "Message"},
    {.post = true, .path = "lanes/*/pause", .fn = api_pause, .help = "Pauses one lane.", .body = "{execute?:b}", .answer = "KeyResult"},
    {.post = true, .path = "lanes/*/resume", .fn = api_resume, .help = "Resumes one lane.", .body = "{execute?:b}", .answer = "KeyResult"},
    {.post = true,
     .path = "lanes/*/break",
     .fn = api_break,
     .help = "Ends the lock of a lane, whoever holds it, and raises its fence. Without execute: says who holds it.",
     .body = "{execute?:b}",
     .answer = "{key?:s,key_base64?:s,shard?:i,waiting?:i,age_ms?:i,oldest?:s?,attempts?:i,paused?:b,backoff?:b,holder?:s?,"
               "holder_base64?:s,fence?:i,since_ms?:i,until_ms?:i,due_ms?:i,result:s}"},
    {.post = true,
     .path = "dead/*/replay",
     .fn = api_replay,
     .help = "Puts one dead letter back into its lane. Without execute: a dry run.",
     .body = "{execute?:b}",
     .answer = "Replayed"},
};
const size_t api_n_routes = sizeof api_routes / sizeof *api_routes;
