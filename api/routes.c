/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all paths of the API below /api/v1/. Each row has the function that answers, the
 * allowed parameters, and the shape of the response. */
#include "api/job.h"
#include "monitor/metrics.h"

const struct api_param api_params[] = {
    {API_P_KEY, "key", "[s]",
     "only this primary key; lists of lanes and dead letters take several"},
    {API_P_MATCH, "match", "s", "only keys that match this glob: * ? [a-z]"},
    {API_P_TOPIC, "topic", "s",
     "only messages of this topic; for lanes, that of the oldest message"},
    {API_P_PARTITION, "partition", "i",
     "only messages of this partition; for lanes, that of the oldest message"},
    {API_P_OLDER_THAN, "older_than", "s", "only messages older than this: 90s, 15m, 2h, 3d"},
    {API_P_ATTEMPTS, "attempts", "i", "only messages with at least this number of attempts"},
    {API_P_REASON, "reason", "s", "only dead letters whose whole reason matches this glob"},
    {API_P_ERROR, "error", "s", "only dead letters whose reason contains this text"},
    {API_P_WHERE, "where", "[s]",
     "only messages whose JSON payload passes this test, such as /total>100; may be given several "
     "times"},
    {API_P_FROM, "from", "s",
     "only dead letters that died, or records produced, from then on: 2026-11-21T12:00:00Z, or 1h "
     "(ago)"},
    {API_P_TO, "to", "s", "only those before then, in the same forms"},
    {API_P_ORDER, "order", "s",
     "oldest or newest (default: oldest first in Redis, newest first in a topic)"},
    {API_P_OUTCOME, "outcome", "[s]",
     "only these outcomes: done, retry, dead, dropped, skipped or back; may be given several "
     "times"},
    {API_P_LIMIT, "limit", "i", "maximum number of rows, 1 to 500 (default: 100)"},
    {API_P_CURSOR, "cursor", "s", "the `next` of the page before"},
};
const size_t api_n_params = sizeof api_params / sizeof *api_params;

const struct api_shape api_shapes[] = {
    {"Error", "{error:s}"},
    {"Lane",
     "{key?:s,key_base64?:s,shard:i,waiting:i,age_ms:i,oldest:s?,attempts:i,paused:b,"
     "backoff:b,holder?:s?,holder_base64?:s,fence?:i,since_ms?:i,running:Running?,until_ms?:i,"
     "due_ms?:i}"},
    {"LaneMessages",
     "{key?:s,key_base64?:s,shard:i,waiting:i,age_ms:i,oldest:s?,attempts:i,paused:b,backoff:b,"
     "holder?:s?,holder_base64?:s,fence?:i,since_ms?:i,running:Running?,until_ms?:i,due_ms?:i,"
     "messages:[Message],more:b}"},
    {"Message",
     "{topic?:s,partition?:i,offset?:i,tstype?:s,ts?:i,headers?:[s?],headers_base64?:[s?],"
     "key?:s?,key_base64?:s,payload?:s?,payload_base64?:s,payload_size?:i,payload_masked?:b,"
     "payload_hidden?:b,identity?:s,replay?:i,first_ms?:i,dedup?:s,dedup_base64?:s,envelope?:s?,"
     "envelope_base64?:s,attempts:i,lane?:s,lane_base64?:s,shard:i,due_ms?:i,age_ms?:i,id?:s,"
     "reason?:s?,reason_base64?:s,tried_first_ms?:i,died_ms?:i,edited_by?:s,edited_by_base64?:s,"
     "edited_ms?:i,taken_ms?:i,original_payload?:s?,original_payload_base64?:s,original_payload_masked?:b,"
     "original_payload_hidden?:b}"},
    {"Holder", "{worker?:s,worker_base64?:s,host:s?,pid:i?,since_ms:i,lease_left_ms:i,fence:i,"
               "running:Running?}"},
    {"Running", "{identity:s,attempt:i,since_ms:i}"},
#define COUNTER(field) #field ":i,"
    {"Counters", "{" LW_API_COUNTERS(COUNTER) "}"},
#undef COUNTER
    {"Worker", "{worker:i,pid:i,state:s,kafka:s?,why:s,starts:i,turned_ms_ago:i?,waiting:i,"
               "in_handler:i,counts:Counters}"},
    {"Partition", "{topic:s,partition:i,worker:i,committed:i,watermark:i,log_end:i,unfinished:i,"
                  "waiting:i,blocked_ms:i,blocked_by:s?,unread:i,behind:i}"},
    {"Shard", "{shard:i,up:b,lanes:i,ready:i,dead:i,paused:i,oldest_ms:i}"},
    {"Supervisor", "{id?:s,id_base64?:s,state:s,problem:s?,this:b,heard_ms_ago:i?,host:s?,pid:i?,"
                   "version:s?,started_ms:i?,listen:s?,link:s?,workers:i?,ready:i?,partitions:i?,"
                   "lag:i?,waiting:i?,in_handler:i?,per_second:n?}"},
    {"FleetSums", "{supervisors:i,up:i,silent:i,unknown:i,workers:i,ready:i,partitions:i,lag:i,"
                  "waiting:i,in_handler:i,per_second:n}"},
    {"Outcome", "{at_ms:i,worker:i,topic:s,partition:i,offset:i,outcome:s,attempt:i,took_us:i,"
                "fence:i?,key?:s,key_base64?:s,key_cut?:b,reason?:s,reason_base64?:s,"
                "reason_cut?:b}"},
    {"Point", "{at_ms:i,received:i,done:i,retried:i,dead:i,skipped:i,dropped:i,parked:i,"
              "drained:i,lag:i,waiting:i,in_handler:i,dead_letters:i?,lanes:i?,handler_p50_us:i?,"
              "handler_p99_us:i?,end_to_end_p50_us:i?,end_to_end_p99_us:i?}"},
    {"Limits", "{running:i?,per_second:i?,burst:i?}"},
    {"Group", "{group?:s?,group_base64?:s,fleet:b,running:i,waiting:i,starts_per_second:n?,"
              "share:n?,limits:Limits,from:s?,own_limits:b,paused_ms:i?,limited_ms:i?,"
              "why:{reason:s,text:s}?,changed?:b}"},
    {"EachGroup", "{limits:Limits,from:s?,changed?:b}"},
    {"Lock", "{key?:s,key_base64?:s,shard:i,holder:Holder,waiting:i,paused:b}"},
    {"AuditEntry", "{at_ms:i,shard:i,event?:s,who?:s,who_base64?:s,job?:i,words?:o,done?:i,"
                   "taken?:i,asked_ms?:i,state?:s,key?:s,key_base64?:s,was?:s,was_base64?:s,"
                   "fence?:i}"},
    {"LedgerPartition", "{topic:s,partition:i,begin:i,end:i,group_offset:i,consumed:i,"
                        "committed:i,done:i,dead:i,waiting:i,in_hand:i,not_gated:i,listed:i,"
                        "replays:i}"},
    {"LedgerDifference",
     "{difference:s,text:s,shard?:i,topic?:s,partition?:i,offset?:i,replay?:i,lane?:s}"},
    {"Ledger", "{ok:b,differences:i,waiting:i,replays:i,lanes:i,locks:i,dead_letters:i,"
               "partitions:[LedgerPartition],wrong:[LedgerDifference],at_ms:i}"},
    {"Sample", "{name:s,result:s}"},
    {"DryRun", "{count:i,left_out:i,failed:i,scanned:i,complete:b,sample:[Sample]}"},
    {"Job", "{id:s,what:s,state:s,dry_run:b,by:s,started_ms:i,ended_ms?:i,done:i,total:i?,"
            "failed:i,left_out:i,scanned:i,to_scan:i?,number?:i,error?:s,sample:[Sample],"
            "result?:o}"},
    {"Count", "{count:i,scanned:i,complete:b}"},
    {"KeyResult", "{key?:s,key_base64?:s,result:s}"},
    {"Replayed", "{results:[{identity:s,result:s,job?:i}],summary:o}"},
};
const size_t api_n_shapes = sizeof api_shapes / sizeof *api_shapes;

/* The first matching path is used, so each path with a "*" stands after the more specific paths
 * that the "*" would match, too. */
const struct api_route api_routes[] = {
    {.path = "",
     .fn = api_index,
     .help = "The paths, and whether anything may be changed.",
     .answer = "{name:s,version:s,get:[s],post:[s],writable:b}",
     .offline = true},
    {.path = "openapi.json",
     .fn = api_openapi,
     .help = "This description.",
     .answer = "o",
     .offline = true},
    {.path = "version", .help = "The version of the program.", .answer = "{name:s,version:s}"},
    {.path = "session",
     .help = "What the sender may do; answered without a token, too.",
     .answer = "{name:s?,read:b,write:b,needs_token:b,payloads:s,version:s,application:s,"
               "dead_topic:s?}"},
    {.path = "stats",
     .help =
         "Sums over the workers of this supervisor, and the state of each shard some seconds ago.",
     .answer =
         "{name:s,version:s,started_ms:i,workers:i,ready:i,partitions:i,lag:i,unread:i,behind:i,unfinished:i,"
         "waiting:i,in_handler:i,counters:Counters,shards:[Shard]}"},
    {.path = "fleet",
     .help = "Each supervisor of the application by its last heartbeat, their sums, and who fell "
             "silent in the last hour.",
     .answer = "{known:b,why:s?,at_ms:i?,supervisors:[Supervisor]?,sums:FleetSums?,more:i?,"
               "complete:b}"},
    {.path = "workers", .help = "Each worker of this supervisor.", .answer = "[Worker]"},
    {.path = "partitions",
     .help = "Each partition that a worker of this supervisor owns.",
     .answer = "[Partition]"},
    {.path = "counters", .help = "The counters since the start.", .answer = "Counters"},
    {.path = "outcomes",
     .help = "The last outcomes of messages, newest first, as far as the workers of this "
             "supervisor remember them.",
     .params = API_P_KEY | API_P_MATCH | API_P_OUTCOME | API_P_LIMIT,
     .answer = "{outcomes:[Outcome],since_ms:i,complete:b,note:s}"},
    {.path = "point",
     .help = "The last point of the charts, of which there is one every five seconds.",
     .answer = "{every_ms:i,point:Point?}"},
    {.path = "events",
     .help =
         "Live figures as Server-sent events: first the history, then the present every second.",
     .answer = "s",
     .type = "text/event-stream"},
    {.path = "groups",
     .fn = api_groups,
     .help = "The fleet and its groups, those with most waiting lanes first: what runs and waits, "
             "and the limits in force.",
     .params = API_P_LIMIT,
     .answer = "{groups:[Group],each:EachGroup,more:i,complete:b}",
     .lengthy = true},
    {.path = "lanes",
     .fn = api_lanes,
     .help = "Lanes that have waiting messages or are paused, in no order.",
     .params = API_LANE_FILTER | API_PAGE,
     .answer = "{lanes:[Lane],next:s?}"},
    {.path = "lanes/count",
     .fn = api_lanes_count,
     .help =
         "The number of lanes that match the filters, as far as one second of search finds them.",
     .params = API_LANE_FILTER,
     .answer = "Count",
     .lengthy = true},
    {.path = "lanes/export",
     .fn = api_lanes_export,
     .help = "Waiting messages as JSON Lines, with their whole payloads.",
     .params = API_LANE_FILTER | API_P_WHERE | API_P_CURSOR,
     .answer = "Message",
     .type = "application/x-ndjson",
     .export = true,
     .lengthy = true},
    {.path = "lanes/*",
     .fn = api_lane,
     .help = "One lane with the oldest of its messages.",
     .params = API_P_LIMIT,
     .answer = "LaneMessages"},
    {.path = "keys/*",
     .fn = api_key,
     .help = "What is known about a key: its holder, what waits behind it in order, and its newest "
             "dead letters.",
     .params = API_P_LIMIT,
     .answer =
         "{key?:s,key_base64?:s,shard:i,lane:Lane?,holder:Holder?,why:{reason:s,text:s}?,paused:{by?:s,at_ms?:i}?,"
         "waiting:i,messages:[Message],more:b,dead:[Message],dead_complete:b}"},
    {.path = "messages/*",
     .fn = api_message,
     .help = "One record of the application's topics, by its identity, read from Kafka.",
     .answer = "Message",
     .offline = true,
     .lengthy = true},
    {.path = "dead",
     .fn = api_dead,
     .help = "Dead letters in Redis, shard after shard, and then in the topic dead.to, with the "
             "first 256 bytes of their payloads.",
     .params = API_DEAD_FILTER | API_P_ORDER | API_PAGE,
     .answer = "{dead:[Message],next:s?}"},
    {.path = "dead/count",
     .fn = api_dead_count,
     .help = "The number of dead letters that match the filters, as far as one second of search "
             "finds them.",
     .params = API_DEAD_FILTER,
     .answer = "Count",
     .lengthy = true},
    {.path = "dead/export",
     .fn = api_dead_export,
     .help = "Dead letters as JSON Lines, with their whole payloads.",
     .params = API_DEAD_FILTER | API_P_CURSOR,
     .answer = "Message",
     .type = "application/x-ndjson",
     .export = true,
     .lengthy = true},
    {.path = "dead/*",
     .fn = api_dead_one,
     .help = "One dead letter with its payload.",
     .answer = "Message",
     .searches = true},
    {.post = true,
     .path = "groups/*/set",
     .fn = api_group_set,
     .help = "Changes limits in force of a group; what runs goes on.",
     .body = "{running?:i?,per_second?:i?,burst?:i,execute?:b}",
     .answer = "Group"},
    {.post = true,
     .path = "groups/*/pause",
     .fn = api_group_pause,
     .help = "Pauses a group.",
     .body = "{execute?:b}",
     .answer = "Group"},
    {.post = true,
     .path = "groups/*/resume",
     .fn = api_group_resume,
     .help = "Resumes a group.",
     .body = "{execute?:b}",
     .answer = "Group"},
    {.post = true,
     .path = "each-group/set",
     .fn = api_group_set,
     .help = "Changes limits in force of each group that has none of its own.",
     .body = "{running?:i?,per_second?:i?,burst?:i,execute?:b}",
     .answer = "EachGroup"},
    {.post = true,
     .path = "fleet/set",
     .fn = api_group_set,
     .help = "Changes limits in force of the fleet; what runs goes on.",
     .body = "{running?:i?,per_second?:i?,burst?:i,execute?:b}",
     .answer = "Group"},
    {.post = true,
     .path = "fleet/pause",
     .fn = api_group_pause,
     .help = "Pauses the fleet.",
     .body = "{execute?:b}",
     .answer = "Group"},
    {.post = true,
     .path = "fleet/resume",
     .fn = api_group_resume,
     .help = "Resumes the fleet.",
     .body = "{execute?:b}",
     .answer = "Group"},
    {.post = true,
     .path = "lanes/*/pause",
     .fn = api_pause,
     .help = "Pauses one lane.",
     .body = "{execute?:b}",
     .answer = "KeyResult"},
    {.post = true,
     .path = "lanes/*/resume",
     .fn = api_resume,
     .help = "Resumes one lane.",
     .body = "{execute?:b}",
     .answer = "KeyResult"},
    {.post = true,
     .path = "lanes/*/break",
     .fn = api_break,
     .help = "Ends the lock of a lane, whoever holds it, and raises its fence. Without execute: "
             "says who holds it.",
     .body = "{execute?:b}",
     .answer = "{key?:s,key_base64?:s,shard?:i,waiting?:i,age_ms?:i,oldest?:s?,attempts?:i,"
               "paused?:b,backoff?:b,holder?:s?,holder_base64?:s,fence?:i,since_ms?:i,"
               "running?:Running?,until_ms?:i,due_ms?:i,result:s}"},
    {.post = true,
     .path = "dead/*/replay",
     .fn = api_replay,
     .help = "Puts one dead letter back into its lane. Without execute: a dry run.",
     .body = "{execute?:b,again?:b}",
     .answer = "Replayed",
     .searches = true},
    {.post = true,
     .path = "lanes/pause",
     .fn = api_bulk,
     .help = "Pauses the lanes of the keys in ids, or all that the filter matches. Without "
             "execute: a dry run.",
     .filter = API_LANE_FILTER,
     .work = &api_work_pause,
     .body = "{ids?:[s],execute?:b,limit?:i}",
     .answer = "DryRun",
     .job = true,
     .lengthy = true},
    {.post = true,
     .path = "lanes/resume",
     .fn = api_bulk,
     .help = "Resumes the lanes of the keys in ids, or all that the filter matches. Without "
             "execute: a dry run.",
     .filter = API_LANE_FILTER,
     .work = &api_work_resume,
     .body = "{ids?:[s],execute?:b,limit?:i}",
     .answer = "DryRun",
     .job = true,
     .lengthy = true},
    {.post = true,
     .path = "lanes/drop",
     .fn = api_bulk,
     .help = "Discards waiting messages: those of the keys in ids, those named in messages, or all "
             "that the filter matches. Without "
             "execute: a dry run.",
     .filter = API_LANE_FILTER | API_P_WHERE,
     .work = &api_work_drop,
     .body =
         "{ids?:[s],messages?:[s],execute?:b,limit?:i,rate_per_s?:n,stop_on_error?:b,backup?:b}",
     .answer = "DryRun",
     .job = true,
     .lengthy = true},
    {.post = true,
     .path = "lanes/replay",
     .fn = api_bulk,
     .help = "Reads messages again from Kafka and runs them: those of the keys in ids, those named "
             "in messages, or all that the filter "
             "matches. Without execute, the job is a dry run.",
     .filter = API_P_KEY | API_P_MATCH | API_P_TOPIC | API_P_PARTITION | API_P_WHERE | API_P_FROM |
               API_P_TO,
     .work = &api_work_again,
     .body = "{ids?:[s],messages?:[s],execute?:b,again?:b,limit?:i,rate_per_s?:n,stop_on_error?:b}",
     .job = true,
     .lengthy = true},
    {.post = true,
     .path = "dead/replay",
     .fn = api_bulk,
     .help = "Puts the dead letters in ids, or all that the filter matches, back into their lanes. "
             "Without execute: a dry run.",
     .filter = API_DEAD_FILTER,
     .work = &api_work_replay,
     .body = "{ids?:[s],execute?:b,again?:b,limit?:i,rate_per_s?:n,stop_on_error?:b}",
     .answer = "DryRun",
     .job = true,
     .lengthy = true},
    {.post = true,
     .path = "dead/drop",
     .fn = api_bulk,
     .help = "Deletes the dead letters in ids, or all that the filter matches, after a backup. "
             "Without execute: a dry run.",
     .filter = API_DEAD_FILTER,
     .work = &api_work_remove,
     .body = "{ids?:[s],execute?:b,limit?:i,rate_per_s?:n,stop_on_error?:b,backup?:b}",
     .answer = "DryRun",
     .job = true,
     .lengthy = true},
    {.post = true,
     .path = "dead/*/drop",
     .fn = api_dead_drop,
     .help = "Deletes one dead letter, after a backup. Without execute: a dry run.",
     .body = "{execute?:b,backup?:b}",
     .answer = "Replayed",
     .searches = true},
    {.post = true,
     .path = "dead/*/edit",
     .fn = api_edit,
     .help = "Gives a dead letter another payload, and then replays it if replay is true. Without "
             "execute: says whether that is possible.",
     .body = "{payload?:s,payload_base64?:s,execute?:b,replay?:b,again?:b}",
     .answer = "{valid:b,changed:b,error?:s,old?:s?,old_base64?:s,new?:s?,new_base64?:s,id:s,"
               "result:s,replayed?:Replayed,replay_error?:s}",
     .searches = true},
    {.path = "audit",
     .fn = api_audit,
     .help = "What operators did, newest first.",
     .params = API_PAGE,
     .answer = "{audit:[AuditEntry],next:s?}"},
    {.path = "locks",
     .fn = api_locks,
     .help = "Who holds lanes now, in no order. A page may be empty while there is a next one.",
     .params = API_P_KEY | API_P_MATCH | API_PAGE,
     .answer = "{locks:[Lock],next:s?}",
     .lengthy = true},
    {.path = "ledger",
     .fn = api_ledger,
     .help = "The result of the newest ledger.",
     .answer = "{ledger:Ledger?}",
     .offline = true},
    {.post = true,
     .path = "ledger",
     .fn = api_run_ledger,
     .help = "Audits the application from Kafka and Redis alone, as a job.",
     .job = true,
     .offline = true},
    {.path = "jobs",
     .fn = api_jobs,
     .help = "The last 50 jobs of this supervisor, newest first.",
     .answer = "{jobs:[Job]}",
     .offline = true},
    {.path = "jobs/*", .fn = api_job, .help = "One job.", .answer = "Job", .offline = true},
    {.post = true,
     .path = "jobs/*/cancel",
     .fn = api_cancel,
     .help = "Stops a job at its next step.",
     .answer = "Job",
     .offline = true},
};
const size_t api_n_routes = sizeof api_routes / sizeof *api_routes;
