#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tries mutants of the protocol, each a small wrong change of the real code or of a real script.
The simulation, or the test that TEST names, must catch every mutant that is not listed in QUIET.

usage: mutants.py BUILD_DIR [--all] [--fast] [NAME...]
Start the program at the top of the source tree. LW_JOBS sets the number of parallel processes (2).
--all: also tries the mutants in QUIET, to notice if one of them is caught after all
--fast: tries the mutants that need no build, which change one line of one script; of the others it
only checks that the texts that they replace still stand in the sources

For each rule of doc/explanation/protocol.md without which a promise is broken, one mutant lacks
that rule. If random runs seldom meet the situation in which a mutant does harm, a test that builds
the situation by hand catches the mutant (TEST).

One mutant is left out: starting the granted messages of a revoked partition. It breaks no promise,
because the messages run under their lease. The real code takes those messages back (the rule
"revoked goes back") only to keep a rebalance short."""

import argparse, concurrent.futures, os, re, resource, shutil, signal, subprocess, sys

from mutants_handlers import MUTANTS

# SEEDS is the number of seeds per mutant. A mutant that hangs is ended after LIMIT_S seconds of CPU
# time, which do not depend on what else the machine does, or if it sleeps, after HANG_S seconds.
SEEDS, LIMIT_S, HANG_S = (60, 120, 1200)
M = {
    'a message is dropped for one of another partition': [
        (
            'consumer/worker/run.c',
            "m->part == r->msg->part && m->offset > r->msg->offset",
            "m->offset > r->msg->offset",
        )
    ],
    'a message is dropped for an older one': [
        (
            'consumer/worker/run.c',
            "m->part == r->msg->part && m->offset > r->msg->offset",
            "m->part == r->msg->part && m != r->msg",
        )
    ],
    'what waits for newer heads is forgotten': [
        (
            'consumer/worker/settle.c',
            "if (first && first->state == AHEAD) run_start(w, first);",
            "(void)first;",
        )
    ],
    'a key that has another message does not widen the window': [
        (
            'consumer/worker/run.c',
            "if (w->runs.last_finished != h || v != LW_DONE)",
            "if (v != LW_DONE || !next)",
        )
    ],
    'a stop forgets the heads that a settle hands over': [
        ('consumer/worker/claim.c', "(w->stopping && h->first)", "w->stopping")
    ],
    'a record without a key is forgotten while it waits': [
        ('consumer/worker/claim.c', "        look_for_key(w, l, m);\n", "")
    ],
    'a call whose reply is malformed counts as answered': [
        (
            'consumer/worker/pipe.c',
            "    sh->pipe.answered--;\n    char why[LW_REPLY_TEXT];",
            "    char why[LW_REPLY_TEXT];",
        )
    ],
    'gate ignores waiters': [
        (
            "queue/lua/gate.lua",
            "if l.parks or (any_paused and is_paused(l.key)) or (waiting and waiting[l.i]) then",
            "if l.parks or any_paused and is_paused(l.key) then",
        ),
        (
            "queue/lua/gate.lua",
            "local fresh = plain and not parks and not (waiting and waiting[i])",
            "local fresh = plain and not parks",
        ),
    ],
    'the short way of gate ignores waiters': [
        (
            "queue/lua/gate.lua",
            "local fresh = plain and not parks and not (waiting and waiting[i])",
            "local fresh = plain and not parks",
        )
    ],
    'the short way of gate though it is not new': [
        (
            "queue/lua/gate.lua",
            "fresh = fresh and get_state(s, index) == LW_STATE_UNSEEN and s.base + index >= s.floor",
            "fresh = fresh and s.base + index >= s.floor",
        )
    ],
    'the short way of gate without the floor': [
        (
            "queue/lua/gate.lua",
            "fresh = fresh and get_state(s, index) == LW_STATE_UNSEEN and s.base + index >= s.floor",
            "fresh = fresh and get_state(s, index) == LW_STATE_UNSEEN",
        )
    ],
    'a lone message ignores waiters': [
        (
            'queue/lua/gate.lua',
            "call('EXISTS', KEYS[2], string.sub(KEYS[1], 1, -6) .. 'paused', KEYS[6]) == 0 then",
            "call('EXISTS', string.sub(KEYS[1], 1, -6) .. 'paused', KEYS[6]) == 0 then",
        )
    ],
    'a lone message though it is not new': [
        ('queue/lua/gate.lua', "if state == LW_STATE_UNSEEN and offset >= ", "if offset >= ")
    ],
    'a lone message without the floor': [
        (
            'queue/lua/gate.lua',
            "offset >= tonumber(call('HGET', KEYS[3], ARGV[11]) or 0)",
            "offset >= 0",
        )
    ],
    'a lone message in the quarantine': [
        ('queue/lua/gate.lua', " and now >= tonumber(epoch[2] or 0)\n", "\n")
    ],
    'a lone done releases any lock': [
        ('queue/lua/settle.lua', "call('MGET', lock)[1] == ARGV[16]", "call('MGET', lock)[1]")
    ],
    'a lone done tells nobody who waits': [
        (
            'queue/lua/settle.lua',
            "call('EXISTS', KEYS[2], string.sub(KEYS[1], 1, -6) .. 'paused', KEYS[8]) == 0 then",
            "call('EXISTS', KEYS[8]) == 0 then",
        )
    ],
    'a lone done below the floor is written': [
        ('queue/lua/settle.lua', ">= tonumber(call('HGET', KEYS[3], tp) or 0)) then", ">= 0) then")
    ],
    'no quarantine': [
        (
            'queue/lua/enter.lua',
            "'not_before', text(now + length), 'quarantine_ms', text(length))",
            "'not_before', '0')",
        )
    ],
    'head popped at claim': [
        (
            "queue/lua/claim.lua",
            "            given, answer = grant_heads(heads), 'LW_CLAIMED_HEADS'\n",
            "            given, answer = grant_heads(heads), 'LW_CLAIMED_HEADS'\n            call('RPOP', P .. 'wait:' .. lane)\n",
        )
    ],
    'no tend': [
        ('queue/lua/tend.lua', "local why = refuse", "if id then return 0 end\nlocal why = refuse")
    ],
    'done not recorded': [
        (
            "queue/lua/settle.lua",
            "if s.base + index >= s.floor then put_state(s, index, LW_STATE_DONE) end",
            "",
        )
    ],
    'release deletes any lock': [
        (
            "queue/lua/settle.lua",
            "if value == mine then return true end",
            "if value then return true end",
        )
    ],
    'retry goes to the tail': [
        (
            'queue/lua/settle.lua',
            "local rotate = skip and backoff > 0",
            "local rotate = backoff > 0",
        )
    ],
    'chain on claimed runs too': [
        (
            "consumer/worker/settle.c",
            "if (h->kind == FAST && lane_first(w, h->lane)) {",
            "if (lane_first(w, h->lane)) {",
        ),
        ("consumer/worker/lane.c", "return l->hold->kind == LANE; }", "return false && l; }"),
    ],
    'old assignment survives': [
        ('consumer/worker/lane.h', "!m->pass || m->part->pass != m->pass", "!m->part->gen"),
        (
            'consumer/worker/intake.c',
            "    lane_drop_pending(w, p);\n    p->gen = 0;",
            "    p->gen = 0;",
        ),
    ],
    'commit what is merely parked': [
        (
            'consumer/worker/gate.c',
            "part_mark(m->part, m->offset, LW_OFF_WAITING);",
            "part_mark(m->part, m->offset, LW_OFF_DONE);",
        )
    ],
    'fence restarts after a wipe': [
        (
            'queue/lua/parts/fences.lua',
            "math.max(tonumber(call('GET', P .. 'fence') or 0) + 1, now_us)",
            "tonumber(call('GET', P .. 'fence') or 0) + 1",
        ),
        ('queue/lua/enter.lua', "if fence > tonumber", "if false and fence > tonumber"),
    ],
    'no rewind when the epoch is lost': [
        (
            'consumer/worker/epoch.c',
            "    parts_rewind(w, true);\n    commit_must_confirm(w);",
            "    commit_must_confirm(w);",
        )
    ],
    'newer ones jump over what comes back': [
        (
            "consumer/worker/lane.c",
            "lane_push_front(w, l, again[--n]);",
            "lane_push(w, l, again[--n]);",
        )
    ],
    'gate beside the settle of its key': [
        ("consumer/worker/lane.c", "if (l->in_call || l->lost || ", "if (l->lost || "),
        (
            "consumer/worker/lane.c",
            "if (l->listed || l->in_call || !l->head) {",
            "if (l->listed || !l->head) {",
        ),
    ],
    'the same settle again after a lost reply': [
        (
            "consumer/worker/pipe.c",
            "settle_again(w, sh, sh->pipe.cut);",
            "settle_again(w, sh, false);",
        )
    ],
    'calls forgotten after a lost reply': [
        (
            'consumer/worker/pipe.c',
            "&& keeps(sh->pipe.calls[i].kind))\n",
            "&& sh->pipe.calls[i].kind == CALL_SETTLE)\n",
        )
    ],
    'finished without the floor': [
        (
            'queue/lua/parts/segments.lua',
            "return offset < floor_of(tp) or state_of(tp, offset) >= LW_STATE_DONE",
            "return state_of(tp, offset) >= LW_STATE_DONE",
        )
    ],
    'gate without the floor': [
        (
            "queue/lua/gate.lua",
            "if state >= LW_STATE_DONE or offset < s.floor then",
            "if state >= LW_STATE_DONE then",
        )
    ],
    'next of the chain unchecked': [
        (
            "queue/lua/settle.lua",
            "local over = offset < s.floor or get_state(s, index) >= LW_STATE_DONE",
            "local over = false",
        )
    ],
    'no memory of handlers that outlive their epoch': [
        ("consumer/worker/lane.c", "if (l->in_call || l->lost || ", "if (l->in_call || "),
        ("consumer/worker/claim.c", "l->hold || l->lost || l->in_call", "l->hold || l->in_call"),
    ],
    'late grants start': [
        (
            "consumer/worker/run.c",
            "if (atomic_load(&r->hold->lease.held.deadline_ms) <= now || w->stopping)",
            "if (w->stopping)",
        ),
        ("consumer/worker/run.c", "lw_lease_over(r->job.lease, now)", "false"),
    ],
    'repair of what has a gap before it': [
        ('consumer/worker/intake.c', "if (tag_test(x->open, tag)) return false;", "")
    ],
    'no confirmation by Kafka': [
        ('consumer/worker/worker.c', "if (w->commit.confirm && !commit_confirm(w)) return;", "")
    ],
    'repair after the quarantine': [
        ('queue/lua/repair.lua', "if why ~= 'QUARANTINE' then return 'LATE' end", "")
    ],
    'a clock that jumps goes unseen': [
        ('queue/lua/parts/epoch.lua', "then return 'JUMP' end", "then end"),
        (
            'consumer/worker/connection.c',
            "if (llabs(sh->server.new_offset_ms - sh->server.offset_ms) > w->c->lock.ttl_ms / 4) {",
            "if (0) {",
        ),
        ('queue/lua/enter.lua', "moved = true\n", "moved = false\n"),
    ],
    'retry of a finished message': [
        (
            "queue/lua/settle.lua",
            "if is_held and outcome ~= LW_DONE and count > 0 and (s.base + index < s.floor or get_state(s, index) >= LW_STATE_DONE) then outcome = LW_DONE end",
            "",
        )
    ],
    'gate not idempotent': [
        (
            "queue/lua/gate.lua",
            "if not is_mine(held, token) then return 'taken' end",
            "if true then return 'taken' end",
        )
    ],
    'claim not idempotent': [
        (
            'queue/lua/claim.lua',
            "local mine = not broken and is_mine(held, token)",
            "local mine = false",
        )
    ],
    'the same message twice in one worker': [
        ("consumer/worker/lane.c", "= l->hold ? hold_msg(", "= 0 ? hold_msg(")
    ],
    'another life of the server goes unseen': [
        ('consumer/worker/connection.c', "} else if (!same_life(sh)) {", "} else if (0) {"),
        ('consumer/worker/connection.c', "if (sh->phase == READY && !same_life(sh))", "if (0)"),
        ('queue/lua/enter.lua', "not same or ", ""),
    ],
    'done only under a live lease': [
        ("queue/lua/settle.lua", "and (is_held or k == 1) then", "and is_held then")
    ],
    'no renewal': [
        (
            'lock/lane/lease.c',
            "    return n;\n}\n\nsize_t lw_leases_renewed",
            "    return 0;\n}\n\nsize_t lw_leases_renewed",
        )
    ],
    'floors not told again to another life': [
        ('consumer/worker/epoch.c', "    floor_unknown(w, sh);\n", ""),
        ('consumer/worker/epoch.c', "floors += w->assigned[i]->committed >= 0;", "floors += 0;"),
    ],
    'repair cut short': [
        (
            'consumer/worker/connection.c',
            "shard_to(sh, sh->repair.over ? READY : REPAIRING);",
            "shard_to(sh, READY);",
        )
    ],
    # The next mutants change how a worker runs ahead, which means that it runs all messages granted
    # to a hold without asking Redis in between.
    'settle without the lease records all': [
        ('queue/lua/settle.lua', "and (is_held or k == 1) then", "then")
    ],
    'a lost hold is settled again': [
        (
            'consumer/worker/lane.c',
            "    settle_unlist(&w->shards[h->lease.shard], h);\n    h->stale = true;",
            "    h->stale = true;",
        )
    ],
    'all of a lost hold counts as done': [
        (
            'consumer/worker/settle.c',
            "        hold_drop_runs(w, h, 1);\n    }\n    hold_cut(w, h);",
            "        hold_drop_runs(w, h, 1);\n    }\n    for (struct run *r = h->first; r && r->state == FINISHED; r = r->next) part_mark(r->msg->part, r->msg->offset, LW_OFF_DONE);\n    hold_cut(w, h);",
        )
    ],
    'heads of an unanswered settle taken after a take-back': [
        (
            'consumer/worker/claim.c',
            "bool stop = h && (h->failed || (w->stopping && h->first));",
            "bool stop = false;",
        ),
        (
            'consumer/worker/claim.c',
            "if (stop || (h && (h->failed || hold_msg(h, m->part, m->offset)))) {",
            "if (stop || (h && hold_msg(h, m->part, m->offset))) {",
        ),
    ],
    'named messages known by their place alone': [
        (
            'consumer/worker/settle.c',
            "if (!m || m->part != want->part || m->offset != want->offset) {",
            "if (!m) {",
        )
    ],
    'taken back to the end of the chain': [
        (
            'consumer/worker/lane.c',
            "        lane_push_front(w, h->lane, m);\n    else",
            "        lane_push(w, h->lane, m);\n    else",
        )
    ],
    'taken back in the wrong order': [
        (
            'consumer/worker/lane.c',
            "    take_back(w, h, r->next);\n    struct msg *m = run_take_msg(r);",
            "    struct run *after = r->next;\n    struct msg *m = run_take_msg(r);",
        ),
        (
            'consumer/worker/lane.c',
            "        msg_free(w, m);\n    run_free(w, r);\n}\n\nvoid hold_cut",
            "        msg_free(w, m);\n    run_free(w, r);\n    take_back(w, h, after);\n}\n\nvoid hold_cut",
        ),
    ],
    'nothing is taken back': [
        (
            'consumer/worker/run.c',
            "    if (v != LW_DONE) {\n        hold_cut(w, h);\n    } else if",
            "    if",
        )
    ],
    'taken back though it started': [
        (
            'consumer/worker/lane.c',
            "if (before->state != FINISHED && lw_job_unthen(&before->job, &r->job)) break;",
            "if (before->state != FINISHED && (lw_job_unthen(&before->job, &r->job), true)) break;",
        )
    ],
    'gate puts back at the end': [
        (
            'consumer/worker/gate.c',
            "            lane_push_front(w, it->lane, m);",
            "            lane_push(w, it->lane, m);",
        )
    ],
    'settle sent again in mode drop': [
        (
            'consumer/worker/settle.c',
            "if (h->n_finished + h->n_open > it->n_runs) {",
            "if (!again && h->n_finished + h->n_open > it->n_runs) {",
        )
    ],
    'further heads from anywhere': [
        ('queue/lua/parts/heads.lua', "false, after_tp == nil, {}", "false, true, {}")
    ],
    'further heads from anywhere, and again': [
        ('queue/lua/parts/heads.lua', "false, after_tp == nil, {}", "false, true, {}"),
        (
            'consumer/worker/claim.c',
            "if (stop || (h && (h->failed || hold_msg(h, m->part, m->offset)))) {",
            "if (stop || (h && h->failed)) {",
        ),
    ],
    'heads not distinct': [
        ('queue/lua/parts/heads.lua', "local again = mine and mine[offset]", "local again = false")
    ],
    'retry before finished heads are dropped': [
        (
            'queue/lua/settle.lua',
            "local head, head_tp, head_offset = first_unfinished(lane)",
            "local head = call('LINDEX', wait, -1)\n    local head_tp, head_offset = nil, nil\n    if head then head_tp, head_offset = identity_of(head) end",
        )
    ],
    'handed over heads dropped unseen': [
        (
            'queue/lua/settle.lua',
            "if tp == s.tp and offset == s.base + r.index then",
            "if true then",
        )
    ],
    'more does not extend the lease': [
        (
            'queue/lua/settle.lua',
            "    call('PEXPIRE', r.lock, ttl)\n    if heads",
            "    if r.mode == LW_GO_KEEP or r.mode == LW_GO_KEEP_ALONE then call('PEXPIRE', r.lock, ttl) end\n    if heads",
        )
    ],
    'a follower starts after a message that failed': [
        ('handlers/handler.h', "return job->outcome == LW_DONE ? next : NULL;", "return next;")
    ],
    'a follower starts past the lease': [
        (
            'tests/sim/world/world.c',
            "if (!atomic_load(&lease->cancelled) && me->world->now_ms < atomic_load(&lease->deadline_ms)) {",
            "if (lease) {",
        )
    ],
    'a follower does not wait for the one before it': [
        ('consumer/worker/lane.c', "if (!before || before->state == FINISHED)", "if (true)")
    ],
    'one fence a call': [
        ('queue/lua/parts/fences.lua', "text(fence_base + reserve - 1)", "text(fence_base)")
    ],
    'settle reserves one fence': [
        (
            'queue/calls.c',
            "lw_arg_i64(c->commands, c->fences);\n    arg_bounds",
            "lw_arg_i64(c->commands, 1);\n    arg_bounds",
        )
    ],
    'one fence for all that are named': [
        (
            'consumer/worker/settle.c',
            "letters[k] == LW_NAMED_GRANTED ? fence++ : 0",
            "letters[k] == LW_NAMED_GRANTED ? fence : 0",
        )
    ],
    'what failed is forgotten before it is told': [
        (
            'consumer/worker/lane.h',
            "    if (!h->n_finished) h->failed = false;",
            "    h->failed = false;",
        )
    ],
    'the short way releases any lock': [
        (
            'queue/lua/settle.lua',
            "(mode == LW_GO_NEXT or mode == LW_GO_DROP) and held[i] == mine",
            "(mode == LW_GO_NEXT or mode == LW_GO_DROP) and held[i]",
        )
    ],
    'the short way though something still runs': [
        (
            'queue/lua/settle.lua',
            "outcome == LW_DONE and (mode == LW_GO_NEXT or mode == LW_GO_DROP) and held",
            "outcome == LW_DONE and held",
        )
    ],
    'the short way for several messages': [
        ('queue/lua/settle.lua', "if count == 1 and named == 0", "if named == 0")
    ],
    'gate sent again parks what waits': [
        (
            'queue/lua/gate.lua',
            "elseif state == LW_STATE_WAITING and whose ~= 'mine' and still_waits(l) then",
            "elseif state == LW_STATE_WAITING and still_waits(l) then",
        )
    ],
    # The next mutants change what happens if a script fails in the middle.
    'lists lose what is not recorded yet': [
        (
            'queue/lua/settle.lua',
            "save_states()\nfor _, m in ipairs(forgotten)",
            "for _, m in ipairs(forgotten)",
        )
    ],
    'a try counts before the lock says so': [
        (
            'queue/lua/settle.lua',
            "save_states() -- messages that were put back are waiting now\n",
            "save_states()\nfor _, m in ipairs(tried_again) do set_tries(unpack(m)) end\ntried_again = {}\n",
        )
    ],
    'a list before its lane is listed': [
        (
            'queue/lua/gate.lua',
            "        call('ZADD', lanes, 'NX', text(now + math.max(lock_left(l.key), 0)), lane)\n        set_group",
            "        set_group",
        ),
        (
            'queue/lua/gate.lua',
            "    if listed and not ok then",
            "    if listed and ok then call('ZADD', lanes, 'NX', text(now + math.max(lock_left(l.key), 0)), lane) end\n    if listed and not ok then",
        ),
    ],
    'said to wait before it stands in its list': [
        (
            'queue/lua/settle.lua',
            "        if not (head_tp == tp",
            "        put_state(s, index, LW_STATE_WAITING)\n        save_states()\n        if not (head_tp == tp",
        )
    ],
    # The next mutants change how an operator's trial (`replay --try`) holds its lane.
    'the lease of a trial is not renewed': [
        (
            'lock/lua/lib/string_keep.lua',
            "if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end",
            "",
        )
    ],
    'a command does not compare the clock': [
        ('tests/sim/world/operator.c', 'lw_arg_text(cmd, "h")', 'lw_arg_text(cmd, "")')
    ],
    # The next mutants change how a rebalance waits for running handlers.
    'a revoke waits for heads too': [
        (
            'consumer/worker/intake.c',
            "l->hold && l->hold->kind == FAST ? l->hold->first : NULL; r; r = r->next)\n                if (r->msg->part == p) return true;",
            "l->hold ? l->hold->first : NULL; r; r = r->next)\n                if (r->msg->part == p) return true;",
        )
    ],
    'a leaving partition is granted more': [
        (
            'consumer/worker/intake.c',
            "    p->leaving = true;\n    p->pass++;",
            "    p->leaving = true;",
        )
    ],
    'granted, given to no handler yet, and started though it leaves': [
        ('consumer/worker/intake.c', "    run_leave(w, p);\n", "")
    ],
    'a letter that its topic will never take is sent for ever': [
        (
            'consumer/worker/run.c',
            "    } else if (how == LW_SENT_NEVER) {\n        keep_letter(w, r, reason);\n",
            "",
        )
    ],
    'a late done written back with a gap before it': [
        (
            'consumer/worker/epoch.c',
            "!quarantined || !part_closed(p, r->msg) ||",
            "!quarantined ||",
        ),
        (
            'consumer/worker/epoch.c',
            "if (p->gen && quarantined && lw_offsets_next(p->offsets) < r->msg->offset) continue;",
            "",
        ),
    ],
    'leases in the order of their grants': [
        ('lock/lane/lease.c', "while (before != head && ", "while (0 && before != head && ")
    ],
    'a lock stands that the clock left behind': [
        (
            'queue/lua/parts/locks.lua',
            "if left <= most or most == 0 then return left end",
            "if left then return left end",
        )
    ],
    'a due time stands that the clock left behind': [
        ('queue/lua/parts/tries.lua', "if wait and due - now > wait then due = now end", "")
    ],
    'max_run bounds nothing': [
        ('consumer/worker/settle.c', "w->c->lock.max_run - h->n", "1000000")
    ],
    'business ids are not looked at': [
        (
            'queue/lua/parts/envelopes.lua',
            "return type(by) == 'string' and by ~= tp .. ':' .. text(offset)",
            "return false",
        )
    ],
    'business ids are not recorded': [
        ('queue/lua/settle.lua', "if dedup ~= '' and window > 0", "if false")
    ],
    'a lost lease counts an attempt': [
        (
            'consumer/worker/run.c',
            "    case LW_BACK:\n",
            "    case LW_BACK: if (w->c) { run_finish(w, r, LW_RETRY); break; }\n",
        )
    ],
    'attempts are not counted': [
        ('queue/lua/settle.lua', "then tried = tried + 1 end", "then tried = tried end")
    ],
    'one attempt too many': [
        (
            'consumer/worker/run.c',
            "job.attempt >= w->c->retry.max_attempts",
            "job.attempt > w->c->retry.max_attempts",
        )
    ],
    'a suspect runs inside its worker': [
        ('consumer/worker/run.c', "r->job.suspect = w->set.board &&", "r->job.suspect = 0 &&")
    ],
    'all messages are suspects while one is': [
        (
            'consumer/worker/run.c',
            "lw_board_is_suspect(w->set.board, r->job.identity);",
            "r->job.identity[0];",
        )
    ],
    'what is given back comes at once': [
        (
            'consumer/worker/settle.c',
            "it->backoff_ms = w->stopping ? 0 : last->rest_ms;",
            "it->backoff_ms = 0;",
        )
    ],
    'partitions of replays are never forgotten': [
        (
            'consumer/worker/lane.c',
            "if (!--m->part->n_msgs && m->part->replay) part_idle(w, m->part);",
            "--m->part->n_msgs;",
        )
    ],
    'the watch looks at the first segments only': [
        (
            'consumer/worker/watch.c',
            "lw_offsets_find(p->offsets, LW_OFF_WAITING, &at, &budget)) {",
            "at < mark + LOOK_BATCH * LW_SEGMENT && lw_offsets_find(p->offsets, LW_OFF_WAITING, &at, &budget)) {",
        )
    ],
    'messages that wait stop the others of their partition': [
        (
            'consumer/worker/intake.c',
            "(int64_t)lw_offsets_waiting(p->offsets) >= w->c->queue.max_waiting;",
            "(int64_t)lw_offsets_waiting(p->offsets) >= w->c->handler.threads;",
        )
    ],
    'records above the watermark without a bound': [
        ('consumer/worker/intake.c', "if (held < most) return false;", "if (most) return false;")
    ],
    # The next mutants ignore the limits in bytes of a call, of a lane and of a worker.
    'a call reads lists without end': [
        (
            'queue/lua/parts/heads.lua',
            "call_left, largest = call_left - read, most_bytes",
            "largest = most_bytes",
        )
    ],
    'a lane is granted bytes without end': [
        ('queue/lua/parts/heads.lua', "local fits = granted <= lane_bytes", "local fits = true")
    ],
    'pages of large messages': [
        ('queue/lua/parts/heads.lua', "local n = LW_READ_AT_ONCE", "local n = 64"),
        ('queue/lua/parts/heads.lua', "if largest * n > room then", "if false then"),
    ],
    'settle carries without end': [
        ('consumer/worker/settle.c', "(bytes && bytes + more > w->bytes.call)", "false")
    ],
    'gate carries without end': [
        ('consumer/worker/gate.c', "if (*bytes >= w->bytes.call) break;", ""),
        ('consumer/worker/gate.c', "bytes < w->bytes.call && ", ""),
    ],
    'headers take no memory': [
        (
            'consumer/worker/lane.c',
            "(m->raw.p ? 0 : m->headers[i].name.n + m->headers[i].value.n)",
            "0",
        )
    ],
    'records are taken without end': [
        (
            'consumer/worker/intake.c',
            " || w->memory.held >= w->bytes.held) return 0;",
            ") return 0;",
        ),
        (
            'consumer/worker/intake.c',
            "size_t fit = (w->bytes.held - w->memory.held) / w->memory.big + 1;",
            "size_t fit = HELD_MAX;",
        ),
    ],
    'what runs takes no memory': [
        (
            'consumer/worker/lane.c',
            "    l->n--;\n    w->held--;\n",
            "    l->n--;\n    w->held--;\n    w->memory.held -= m->bytes;\n    m->bytes = 0;\n",
        )
    ],
    # The next mutants change what an owner writes back to Redis during a quarantine (repair).
    'a repair goes on where others moved its place': [
        (
            'consumer/worker/epoch.c',
            "    for (int s = 0; s < w->n_shards; s++) repair_restart(&w->shards[s]);",
            "    (void)w;",
        )
    ],
    'a LATE repair is not forgotten': [
        ('consumer/worker/epoch.c', "    if (forget) {", "    if (0 && forget) {")
    ],
    'all dones of an ended lease count when the epoch is lost': [
        ('consumer/worker/lane.c', "        if (!live) return;", "        (void)live;")
    ],
    'commits before the states were read': [
        ('consumer/worker/commit.c', "if (!all && p->watch.n_fresh < w->n_shards) continue;", "")
    ],
    'segments that a commit passes in one leap stay': [
        ('queue/lua/parts/floors.lua', "    if stop < last then\n", "    if false then\n")
    ],
    'parked and lost unseen': [
        ('consumer/worker/watch.c', "        x->lost = true;", "        x->lost = false;")
    ],
    'a wiped Redis is not told of longer leases': [
        (
            'consumer/worker/epoch.c',
            "    return left > sh->epoch.ttl_ms ? left : sh->epoch.ttl_ms;",
            "    return 0 * left;",
        )
    ],
    'a quarantine under way is cut by who knows less': [
        (
            'queue/lua/enter.lua',
            "local length = math.max(tonumber(redis.call('HGET', epoch_key, 'quarantine_ms') or 0), used)",
            "local length = used",
        )
    ],
    'earlier epochs of the fleet are forgotten': [
        (
            'consumer/worker/connection.c',
            "if (r->element[i]->str) rival_known",
            "if (0) rival_known",
        )
    ],
    # The next mutants change the rule that the first run of a name needs no quarantine.
    'a first run without the look': [
        (
            'consumer/worker/epoch.c',
            "!known ? LOOK_NOT : commits ? LOOK_USED : LOOK_EMPTY",
            "known || commits ? LOOK_EMPTY : LOOK_NOT",
        )
    ],
    'a look from before the epoch counts': [
        ('consumer/worker/epoch.c', "sh->first = (struct first){0};", "sh->first.waits = false;"),
        (
            'consumer/worker/epoch.c',
            "sh->first = (struct first){.waits = r->element[5]->str[0] == '1'};",
            "sh->first.waits = r->element[5]->str[0] == '1';",
        ),
    ],
    'granted before the first commit': [
        ('queue/lua/parts/epoch.lua', " or epoch[4] and not is_command then", " then"),
        (
            'consumer/worker/epoch.c',
            "return quarantine_left_ms(sh, now) > 0 || sh->first.waits;",
            "return quarantine_left_ms(sh, now) > 0;",
        ),
        (
            'consumer/worker/epoch.c',
            "if (!shard_quarantined(sh, now) || now",
            "if ((!shard_quarantined(sh, now) && !sh->first.waits) || now",
        ),
    ],
    'a first run on a promoted replica': [
        (
            'queue/life.c',
            "life->never_replica = is_zero(bytes) && !life->promoted;",
            "life->never_replica = true;",
        )
    ],
    'a first run without a commit waits for ever': [
        ('queue/lua/lift.lua', "call('HDEL', KEYS[1], 'first')", "")
    ],
    'a list that vanished goes unseen': [
        (
            'queue/lua/parts/lanes.lua',
            "    pcall_('XADD', P .. 'vanished'",
            "    if true then return end\n    pcall_('XADD', P .. 'vanished'",
        )
    ],
    'a rewind forgets how far was read': [
        (
            'consumer/worker/intake.c',
            "    if (p->log_end < lw_offsets_next(p->offsets)) p->log_end = lw_offsets_next(p->offsets);\n",
            "",
        )
    ],
    'what is not gated yet is passed over': [
        (
            'consumer/worker/watch.c',
            "    x->to = offset;\n    return false;",
            "    (void)offset;\n    return true;",
        )
    ],
    'an attached replica ends the epoch': [
        (
            'queue/life.c',
            "return a->history[0] && !strcmp(a->history, b->history) && !b->promoted;",
            "return false;",
        )
    ],
    'a server that was a replica goes unseen': [
        ('queue/life.c', '"%s/%s", run_id, bytes);', '"%s/%s", run_id, bytes + strlen(bytes));')
    ],
    # The next mutants change how a worker treats error replies.
    'an error reply to settle is taken for an answer': [
        (
            'consumer/worker/pipe.c',
            "if (c->kind == CALL_ALIVE) return;",
            "if (c->kind == CALL_ALIVE || c->kind == CALL_SETTLE) return;",
        )
    ],
    'messages of a gate that is refused at maxmemory are lost': [
        (
            'consumer/worker/gate.c',
            "    sh->gate.oom_until_ms = now_ms(w) + OOM_MS;\n    gate_back(w, sh);\n",
            "    sh->gate.oom_until_ms = now_ms(w) + OOM_MS;\n",
        )
    ],
    'a claim that was refused is forgotten': [
        (
            'consumer/worker/pipe.c',
            "    sh->pipe.answered--; /* the call counts",
            "    if (c->kind != CALL_CLAIM) sh->pipe.answered--; /* the call counts",
        )
    ],
    'a retry that counts nothing counts': [
        (
            'queue/lua/settle.lua',
            "if r.outcome == LW_RETRY then tried = tried + 1 end",
            "tried = tried + 1",
        )
    ],
    'a retry that counts nothing leaves no trace': [
        (
            'queue/lua/settle.lua',
            "local failed = r.outcome == LW_RETRY or r.outcome == LW_LATER",
            "local failed = r.outcome == LW_RETRY",
        )
    ],
    'the first failure is not told': [
        ('queue/lua/parts/grants.lua', "if first > 0 then", "if tried > 0 then")
    ],
    'attempts may count nothing for ever': [
        (
            'consumer/worker/run.c',
            "return now - r->tried.first_ms < 1000 * w->c->retry.max_age_s;",
            "return now > 0;",
        )
    ],
    'a retry comes back when the backoff says': [
        ('consumer/worker/settle.c', "if (asked_ms > 0) return", "if (asked_ms < 0) return")
    ],
    'a lane that another holds is claimed': [
        (
            'queue/lua/claim.lua',
            "if not broken and (not held or mine) and not is_paused(lock) then",
            "if not broken and not is_paused(lock) then",
        )
    ],
    'unpark forgets what is finished': [
        (
            'queue/lua/unpark.lua',
            "offset >= floor_of(tp) and state_of(tp, offset) == LW_STATE_WAITING",
            "offset >= floor_of(tp)",
        )
    ],
    # The next mutants change the limits of the fleet.
    'places of other workers do not count': [
        ('queue/lua/limit.lua', "share(p, running - p.in_use - has,", "share(p, running - has,")
    ],
    'a late statement counts': [
        ('queue/lua/limit.lua', "fleet.mine and fleet.mine >= number", "not id")
    ],
    'statements of a lost epoch count': [
        ('queue/lua/limit.lua', "n and of == id and now", "n and now")
    ],
    'the first token is a burst': [
        ('queue/lua/limit.lua', "math.max(p.next_us or first_us,", "math.max(p.next_us or 0,")
    ],
    'who waits longest is not first': [
        ('queue/lua/limit.lua', "p.before = p.before + 1", "p.before = p.before")
    ],
    'other shards are asked beyond the statement': [
        (
            'consumer/worker/limit.c',
            "x->left = lw_smaller(x->left, keep + own);",
            "x->left = x->left;",
        )
    ],
    # The next mutants change the limits of groups.
    'a message starts without a permit of its group': [
        (
            'consumer/worker/limit.c',
            "if (g && !may_start(w, &g->permits, group_used(g))) return false;",
            "",
        )
    ],
    'nobody looks for groups that wait': [
        (
            'consumer/worker/group.c',
            "sh->ready.looks = now >= sh->ready.look_ms;",
            "sh->ready.looks = false;",
        )
    ],
    'messages of groups without limits ask for nothing': [
        ('consumer/worker/limit.c', "if (group_free(g)) wait += group_waits(w, g);", "")
    ],
    'groups forget their tokens at once': [
        ('queue/lua/limit.lua', "fleet.known_us + AHEAD_MAX_US,", "0,")
    ],
    'a late statement keeps the places of lanes in calls': [
        (
            'queue/lua/limit.lua',
            'return p.mine and has or math.min(has, tonumber(in_handlers))',
            'return has',
        )
    ],
    'a message of another group takes the place of a lane in a call': [
        (
            'consumer/worker/limit.c',
            '!may_start(w, &g->permits, group_used(g))',
            '!may_start(w, &g->permits, g->in_handler)',
        )
    ],
    'a lane that rests is listed while a call names it': [
        (
            'consumer/worker/gate.c',
            'l->head && !l->in_call && l->not_before',
            'l->head && l->not_before',
        )
    ],
    # The next mutants change how groups share the handlers.
    'groups share starts, not handler time': [
        ('consumer/worker/fair.c', 'g->tag_us += us / g->weight - r->charged_us;', ''),
        ('consumer/worker/fair.c', 'follow(&g->mean_us, us);', ''),
    ],
    'a group is paid for the time without work': [
        (
            'consumer/worker/fair.c',
            'return us > w->fair.virtual_us ? us : w->fair.virtual_us;',
            'return us;',
        )
    ],
    'a group without work is forgotten': [
        ('consumer/worker/group.c', 'if (idle && !fair_owes(w, g)) forget', 'if (idle) forget')
    ],
    'a group without permits has its turns': [
        (
            'consumer/worker/fair.c',
            'lw_smaller(group_waits(w, g), limit_group_permits(w, g))',
            'group_waits(w, g)',
        )
    ],
    'weights do not count': [
        ('consumer/worker/group.c', 'g->weight = lw_group_weight(w->c, g->id);', 'g->weight = 1;')
    ],
    'a flood stays in memory': [
        (
            'consumer/worker/group.c',
            'much && w->held > TURNS_HELD * most && w->fair.contended',
            'false',
        )
    ],
    'a lone flood fills the memory': [
        ('consumer/worker/group.c', 'much && intake_crowded(w)', 'false')
    ],
    'lanes of shards that admit nothing have turns': [
        (
            'consumer/worker/group.c',
            'if (!here || (admitted && !admits(w, sh))) continue;',
            'if (!here) continue;',
        )
    ],
    'what runs costs nothing until it ends': [
        ('consumer/worker/fair.c', 'return us > 0 ? us : 0;', 'return us > INFINITY ? us : 0;')
    ],
    'groups are kept while any message runs': [
        (
            'consumer/worker/fair.c',
            'if (waits(w, g)) return;',
            'if (group_used(g) || waits(w, g)) return;',
        ),
        (
            'consumer/worker/fair.c',
            '(one_us < FORGIVEN_US ? one_us : FORGIVEN_US)',
            '0 * one_us * FORGIVEN_US',
        ),
    ],
    'lanes of unknown groups come first': [
        (
            'consumer/worker/fair.c',
            'w->fair.waits ? (n + w->io->random(w->ctx) % 2) / 2 : n',
            'w->fair.waits && w->stopping ? 0 : n',
        )
    ],
    'lanes that gate refuses have turns': [
        (
            'consumer/worker/group.c',
            'admitted && gate_rests(sh, w->limits.begun_ms) ? g->shard[s].ready : here',
            'here',
        )
    ],
    'limits that operators set are not read': [
        (
            'queue/lua/limit.lua',
            "call('HMGET', limits, 'group:' .. name, 'paused:' .. name)",
            "{false, false}",
        )
    ],
    'a paused group starts messages': [
        (
            'consumer/worker/limit.c',
            "size_t n = p->most.paused ? 0 : SIZE_MAX;",
            "size_t n = SIZE_MAX;",
        )
    ],
    'a file replaces what operators have set': [
        (
            'queue/lua/limit.lua',
            "if said and said == file[fields[i]] then",
            "if said and not id then",
        )
    ],
    # The next mutants change what happens to a slot that moves between nodes of a cluster.
    'a settle that failed in the middle is sent again as it was': [
        (
            'consumer/worker/pipe.c',
            "        sh->pipe.cut |= keeps(c->kind);\n        not_executed",
            "        not_executed",
        )
    ],
    'a copy that did not execute ends the doubt about the first': [
        (
            'consumer/worker/pipe.c',
            "    settle_again(w, sh, sh->pipe.cut);",
            "    settle_again(w, sh, sh->pipe.cut);\n    sh->pipe.cut = false;",
        )
    ],
    'segments below a floor are named when they are deleted': [
        (
            'queue/lua/parts/floors.lua',
            "    if first <= last and not left then call('HSET', P .. 'sweep', tp, text(first)) end\n",
            "",
        ),
        (
            'queue/lua/parts/floors.lua',
            "    segments_left = segments_left - math.max",
            "    if first <= last and not left then call('HSET', P .. 'sweep', tp, text(first)) end\n    segments_left = segments_left - math.max",
        ),
    ],
    'keys that have moved are taken for absent': [
        (
            'queue/lua/parts/epoch.lua',
            "if type(r) == 'table' and r.err and not find(r.err, 'WRONGTYPE', 1, true) then",
            "if false then",
        )
    ],
}
# This table names, for each mutant, the mode of faults that catches it soonest. A mutant that is
# not in the table runs in all modes. A mutant with OPERATE runs in all modes with an operator.
OPERATE = '(all with an operator)'
MODE = {
    'a message is dropped for one of another partition': 'latestkill',
    'what waits for newer heads is forgotten': 'latest',
    'a letter that its topic will never take is sent for ever': 'ttls',
    'business ids are not looked at': 'dedup',
    'business ids are not recorded': 'dedup',
    'a suspect runs inside its worker': 'poison',
    'what is given back comes at once': 'stubborn',
    'a retry that counts nothing counts': 'later',
    'a retry that counts nothing leaves no trace': 'later',
    'the first failure is not told': 'later',
    'attempts may count nothing for ever': 'later',
    'a retry comes back when the backoff says': 'later',
    'places of other workers do not count': 'limits',
    'other shards are asked beyond the statement': 'limits',
    'a message starts without a permit of its group': 'groups',
    'nobody looks for groups that wait': 'groups',
    'messages of groups without limits ask for nothing': 'groupstune',
    'a group without permits has its turns': 'groupstune',
    'a lane that rests is listed while a call names it': 'torn',
    'a message of another group takes the place of a lane in a call': 'groupswipe',
    'limits that operators set are not read': 'groupstune',
    'a paused group starts messages': 'groupstune',
    'partitions of replays are never forgotten': 'operator',
    'no quarantine': 'wipe',
    'fence restarts after a wipe': 'wipe',
    'no rewind when the epoch is lost': 'wipe',
    'another life of the server goes unseen': 'failover',
    'retry goes to the tail': 'churn',
    'newer ones jump over what comes back': 'aheadlate',
    'late grants start': 'late',
    'gate without the floor': 'floors',
    'a late done written back with a gap before it': 'failover',
    'next of the chain unchecked': 'calm',
    'gate beside the settle of its key': 'ahead',
    'the short way though something still runs': 'ahead',
    'the short way for several messages': 'ahead',
    'settle reserves one fence': 'clock',
    'one fence for all that are named': 'ahead',
    'what failed is forgotten before it is told': 'kill',
    'retry of a finished message': 'slow',
    'a clock that jumps goes unseen': 'clock',
    'no memory of handlers that outlive their epoch': 'wipelate',
    'settle without the lease records all': 'kill',
    'a lost hold is settled again': 'aheadlate',
    'all of a lost hold counts as done': 'aheadlate',
    'heads of an unanswered settle taken after a take-back': 'ahead',
    'taken back to the end of the chain': 'ahead',
    'taken back in the wrong order': 'ahead',
    'nothing is taken back': 'ahead',
    'taken back though it started': 'ahead',
    'gate puts back at the end': 'churn',
    'settle sent again in mode drop': 'kill',
    'further heads from anywhere, and again': 'kill',
    'more does not extend the lease': 'ahead',
    'a follower starts after a message that failed': 'ahead',
    'a follower starts past the lease': 'aheadlate',
    'a follower does not wait for the one before it': 'ahead',
    'a lock stands that the clock left behind': 'clockback',
    'a call reads lists without end': 'tight',
    'a lane is granted bytes without end': 'tight',
    'pages of large messages': 'tight',
    'settle carries without end': 'tight',
    'gate carries without end': 'tight',
    'headers take no memory': 'tight',
    'records are taken without end': 'tight',
    'what runs takes no memory': 'tight',
    'messages that wait stop the others of their partition': 'refused',
    'parked and lost unseen': 'vanish',
    'a look from before the epoch counts': 'wipe',
    'a list that vanished goes unseen': 'unlist',
    'what is not gated yet is passed over': 'unlist',
    'segments that a commit passes in one leap stay': 'far',
    'an attached replica ends the epoch': 'attach',
    'a server that was a replica goes unseen': 'failback',
    'the lease of a trial is not renewed': OPERATE,
    'a command does not compare the clock': 'trialsclock',
    'lists lose what is not recorded yet': 'torn',
    'a try counts before the lock says so': 'tornkill',
    'a list before its lane is listed': 'tornkill',
    'said to wait before it stands in its list': 'tornkill',
    'an error reply to settle is taken for an answer': 'errors',
    'messages of a gate that is refused at maxmemory are lost': 'full',
    'a claim that was refused is forgotten': 'errors',
    'a call whose reply is malformed counts as answered': 'errors',
}
# This table names, for some mutants, the test that catches the mutant in a situation built by
# hand. Random runs meet that situation too seldom, or the mutant breaks no promise and only makes
# the program do more work.
TEST = {
    'a message is dropped for an older one': 'tests/sim/sim_scenes an_older_record_is_read_again',
    'a late statement keeps the places of lanes in calls': 'tests/lua/test_limit:statements_expire',
    'groups share starts, not handler time': 'tests/sim/sim_scenes groups_share_handler_time',
    'a group is paid for the time without work': 'tests/sim/sim_scenes groups_share_handler_time',
    'a group without work is forgotten': 'tests/sim/sim_scenes coming_back_does_not_pay',
    'weights do not count': 'tests/sim/sim_scenes a_weight_multiplies_the_share',
    'a flood stays in memory': 'tests/sim/sim_scenes a_flood_waits_in_redis',
    'a lone flood fills the memory': 'tests/sim/sim_scenes a_lone_flood_leaves_room_in_memory',
    'lanes of shards that admit nothing have turns': 'tests/sim/sim_scenes lanes_of_a_lost_shard_have_no_turns',
    'named messages known by their place alone': 'tests/sim/sim_scenes a_named_record_is_taken_away',
    'what runs costs nothing until it ends': 'tests/sim/sim_scenes what_takes_longer_than_known_leaves_handlers',
    'groups are kept while any message runs': 'tests/sim/sim_scenes groups_of_one_message_are_forgotten',
    'lanes of unknown groups come first': 'tests/sim/sim_scenes lanes_of_unknown_groups_leave_handlers',
    'lanes that gate refuses have turns': 'tests/sim/sim_scenes at_maxmemory_lanes_in_redis_have_the_turns',
    'a late statement counts': 'tests/lua/test_limit:a_late_statement_changes_nothing',
    'statements of a lost epoch count': 'tests/lua/test_limit:statements_of_another_epoch_are_void',
    'the first token is a burst': 'tests/lua/test_limit:the_first_token_is_no_burst',
    'groups forget their tokens at once': 'tests/lua/test_limit:the_first_token_of_a_group_is_no_burst',
    'a file replaces what operators have set': 'tests/lua/test_limit:two_files_in_one_fleet',
    'who waits longest is not first': 'tests/lua/test_limit:who_waits_longest_is_first',
    'a stop forgets the heads that a settle hands over': 'tests/sim/sim_scenes a_stop_while_the_next_head_comes',
    'all messages are suspects while one is': 'tests/sim/sim_scenes suspects_run_beside_others',
    'a settle that failed in the middle is sent again as it was': 'tests/sim/sim_scenes a_settle_that_failed_in_the_middle',
    'a copy that did not execute ends the doubt about the first': 'tests/sim/sim_scenes a_settle_that_failed_in_the_middle',
    'segments below a floor are named when they are deleted': 'tests/lua/test_denied',
    'a key that has another message does not widen the window': 'tests/sim/sim_scenes a_batch_of_many_keys_widens_the_window',
    'a record without a key is forgotten while it waits': 'tests/sim/sim_scenes a_record_without_a_key_waits_in_redis',
    'keys that have moved are taken for absent': 'tests/lua/test_migrating',
    'done only under a live lease': 'tests/lua/test_settle',
    'further heads from anywhere': 'tests/lua/test_settle_lane',
    'heads not distinct': 'tests/lua/test_settle_lane',
    'retry before finished heads are dropped': 'tests/lua/test_settle_lane',
    'handed over heads dropped unseen': 'tests/lua/test_settle_lane',
    'the short way releases any lock': 'tests/lua/test_settle_lane',
    'gate sent again parks what waits': 'tests/lua/test_gate_lane',
    'gate not idempotent': 'tests/lua/test_gate',
    'the short way of gate ignores waiters': 'tests/lua/test_gate',
    'the short way of gate though it is not new': 'tests/lua/test_gate',
    'the short way of gate without the floor': 'tests/lua/test_gate',
    'a lone message ignores waiters': 'tests/lua/test_gate',
    'a lone message though it is not new': 'tests/lua/test_gate',
    'a lone message without the floor': 'tests/lua/test_gate',
    'a lone message in the quarantine': 'tests/lua/test_gate',
    'a lone done releases any lock': 'tests/lua/test_settle',
    'a lone done tells nobody who waits': 'tests/lua/test_settle_next',
    'a lone done below the floor is written': 'tests/lua/test_settle',
    'claim not idempotent': 'tests/lua/test_claim',
    'no renewal': 'tests/server/test_renewer',
    'repair after the quarantine': 'tests/lua/test_repair_floor',
    'unpark forgets what is finished': 'tests/lua/test_vanished:only_what_waits_is_unparked',
    'a rewind forgets how far was read': 'tests/sim/sim_scenes',
    'a LATE repair is not forgotten': 'tests/sim/sim_scenes',
    'a repair goes on where others moved its place': 'tests/sim/sim_scenes',
    'all dones of an ended lease count when the epoch is lost': 'tests/sim/sim_scenes',
    'a wiped Redis is not told of longer leases': 'tests/sim/sim_scenes',
    'a quarantine under way is cut by who knows less': 'tests/lua/test_enter',
    'earlier epochs of the fleet are forgotten': 'tests/sim/sim_scenes',
    'a first run without the look': 'tests/sim/sim_scenes',
    'granted before the first commit': 'tests/sim/sim_scenes',
    'a first run on a promoted replica': 'tests/sim/sim_scenes',
    'a due time stands that the clock left behind': 'tests/lua/test_claim',
    'the watch looks at the first segments only': 'tests/guard/guard --far',
    'records above the watermark without a bound': 'tests/guard/guard --far',
}
M.update({name: [(path, a, b)] for name, _, _, path, a, b in MUTANTS})
TEST.update({name: f'{program}:{test}' for name, program, test, *_ in MUTANTS})
# Only a run with a topic for dead letters can catch these mutants, so all their seeds have such a
# topic. By default only a third of the seeds have one, and the first seeds do not.
DEAD_TOPIC = {'a letter that its topic will never take is sent for ever'}
# These mutants need more seeds than usual to be caught: {mutant: number of seeds}.
MORE = {
    'a list before its lane is listed': 400,
    'said to wait before it stands in its list': 400,
    'a look from before the epoch counts': 400,
    'a letter that its topic will never take is sent for ever': 300,
    'a message of another group takes the place of a lane in a call': 300,
}
# These mutants break no promise within the usual number of seeds, so they run only with --all. The
# text after each name says why.
QUIET = {
    'a try counts before the lock says so': 'rare since gate makes fewer calls: missed in 400 seeds of its mode; wants a directed situation',
    'no memory of handlers that outlive their epoch': 'rare since the modes changed: missed in 60 seeds of its mode; wants a directed situation',
    'repair of what has a gap before it': 'rare: needs a wipe before this owner has seen that another finished an older message',
    'old assignment survives': 'the tracker of the new assignment does not know the old delivery, or takes it for the new one',
    'the same message twice in one worker': 'the copy is found finished by keep or gate, or runs right behind itself',
    'the same settle again after a lost reply': 'needs the first call to execute after the second, just while the chain has grown',
    'no confirmation by Kafka': 'needs a zombie that outlives the quarantine while the next owner went on; the model finds it',
    'floors not told again to another life': 'the next commit tells them; needs a roll-back without a commit in the quarantine',
    'other shards are asked beyond the statement': 'rare since places of an answer are kept for one more statement: missed in 60 seeds of its mode',
    'repair cut short': 'needs a cut within the repair and a rebalance before the next commit',
}

SIM = 'tests/sim/sim_lanes'
DIRS = [
    'api',
    'base',
    'bench',
    'cli',
    'config',
    'consumer',
    'handlers',
    'include',
    'kafka',
    'lock',
    'monitor',
    'ops',
    'packaging',
    'queue',
    'scripts',
    'sdk',
    'tests',
]


def worker_tree(build, n):
    tree = os.path.join(build, 'mutants', str(n))
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(tree)
    for d in DIRS:
        shutil.copytree(
            d, os.path.join(tree, d), ignore=shutil.ignore_patterns('cases', '__pycache__')
        )
    shutil.copy('Makefile', tree)
    make(tree, SIM)
    return tree


def make(tree, program):
    # Without the variables of an outer make, this make prints no "Entering directory". WERROR=-w
    # is given because compiler warnings about a mutant must not end the build.
    p = subprocess.run(
        ['make', '-s', 'B=b', 'CFLAGS=-O1', 'WERROR=-w', f'b/{program}'],
        cwd=tree,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in ('MAKEFLAGS', 'MFLAGS', 'MAKELEVEL')},
    )
    if p.returncode:
        raise SystemExit('mutants: build failed:\n' + p.stdout[-3000:])


def world_of(name):
    if MODE.get(name) == OPERATE:
        return ['--operate']
    options = ['--dead-topic'] if name in DEAD_TOPIC else []
    return [*options, '--mode', MODE[name]] if name in MODE else options


def found(text, want):
    """Finds a text in a source file. Ignores all whitespace, so that a new layout of the code
    breaks no mutant. Returns the start and the end of each occurrence."""
    at = [i for i, c in enumerate(text) if not c.isspace()]
    bare, want = ''.join(text[i] for i in at), ''.join(want.split())
    places, k = [], bare.find(want)
    while k >= 0:
        places.append((at[k], at[k + len(want) - 1] + 1))
        k = bare.find(want, k + len(want))
    return places


def changed(text, a, b):
    for first, last in reversed(found(text, a)):
        text = text[:first] + b.strip() + text[last:]
    return text


def limit_cpu():
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 5))


def try_one(tree, name):
    """Makes a mutant in a tree, builds the program that must catch it, and runs the program."""
    saved = {}
    try:
        for path, a, b in M[name]:
            full = os.path.join(tree, path)
            text = open(full).read()
            saved.setdefault(full, text)
            assert found(text, a), (
                f'{name}: {path}: {a!r} stands in a line that the mutant has changed before'
            )
            with open(full, 'w') as f:
                f.write(changed(text, a, b))
        # PROGRAM[:TEST OF CMOCKA][ OPTION…]
        test, *options = TEST.get(name, SIM).split()
        program, _, only = test.partition(':')
        make(tree, program)
        if name not in TEST:
            options = sim_options(name)
        return result(name, ['b/' + program, *options], tree, only)
    finally:
        for full, text in saved.items():
            with open(full, 'w') as f:
                f.write(text)


def sim_options(name):
    return ['--seeds', str(MORE.get(name, SEEDS)), '--until-bad', *world_of(name)]


def is_fast(name):
    """Returns whether the simulation can make the mutant itself, without a build: it changes one
    line of one lane script, in which the build puts no number for a name."""
    path, a, b = M[name][0]
    return (
        name not in TEST
        and len(M[name]) == 1
        and os.path.dirname(path) == 'queue/lua'
        and not re.search('\n|LW_', a.strip() + b)
        and open(path).read().count(a.strip()) == 1
    )


def try_fast(build, name):
    """Lets the simulation in the build folder change a script as a mutant says."""
    path, a, b = M[name][0]
    script = os.path.basename(path)[: -len('.lua')]
    return result(
        name, [f'{build}/{SIM}', *sim_options(name), '--mutate', script, a.strip(), b.strip()]
    )


def result(name, command, tree='.', only=''):
    """Runs a program that must catch a mutant. Returns (name, what became of it, details)."""
    program = TEST.get(name, SIM).split()[0].partition(':')[0]
    try:
        p = subprocess.run(
            command,
            cwd=tree,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors='replace',
            timeout=HANG_S,
            env=dict(os.environ, LW_TEST=only or '*'),
            preexec_fn=limit_cpu,
        )
    except subprocess.TimeoutExpired:
        return name, 'MISSED', f'{HANG_S} s'
    out = p.stdout.strip().splitlines()
    if p.returncode == -signal.SIGXCPU:
        return name, 'MISSED', f'{LIMIT_S} s of CPU time'
    if p.returncode == 0:
        return name, 'MISSED', TEST.get(name) or ' '.join(command[1:])
    if name in TEST:
        failed = [
            line
            for line in out
            if line.startswith(('[  FAILED  ]', 'guard: ')) and 'test(s)' not in line
        ]
        return (
            (name, 'caught', f'{program}: {failed[0][12:].strip()}')
            if failed
            else (name, 'BROKEN', str(out[-3:]))
        )
    if p.returncode not in (1, -6, -11):
        return name, 'BROKEN', f'status {p.returncode}: {out[-1:]}'
    return (
        name,
        'caught',
        (out[0] if p.returncode == 1 and out else f'crash: {p.returncode} {out[-1:]}')[:150],
    )


def missing_texts(names):
    """Prints each text of a mutant that its file no longer contains. Returns how many there are."""
    gone = [
        (name, path, a)
        for name in names
        for path, a, _ in M[name]
        if not found(open(path).read(), a)
    ]
    for name, path, a in gone:
        print(f'NOT FOUND {name}: {path}: {a!r}', flush=True)
    return len(gone)


def main():
    parser = argparse.ArgumentParser(
        description='Breaks the program in known ways, and sees whether the simulation notices.'
    )
    parser.add_argument(
        '--all', action='store_true', help='also the mutants that are known to be missed'
    )
    parser.add_argument('--fast', action='store_true', help='only the mutants that need no build')
    parser.add_argument('build', help='the build folder, in which the broken trees are made')
    parser.add_argument(
        'mutant', nargs='*', help='names of mutants; default: all that must be caught'
    )
    a = parser.parse_args()
    build, names = a.build, a.mutant or [n for n in M if n not in QUIET or a.all]
    if missing_texts(names):
        return 1
    if a.fast:
        names = [name for name in names if is_fast(name)]
    jobs = min(int(os.environ.get('LW_JOBS', '2')), len(names) or 1)
    todo = list(reversed(names))

    def told(name, what, detail):
        fine = what == 'caught' or (what == 'MISSED' and name in QUIET)
        if what == 'MISSED' and name in QUIET:
            what, detail = 'quiet', QUIET[name]
        print(f'{what:9} {name}: {detail}', flush=True)
        return not fine

    def lane(k):
        try_next, place = (try_fast, build) if a.fast else (try_one, worker_tree(build, k))
        bad = 0
        while todo:
            bad += told(*try_next(place, todo.pop()))
        return bad

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        bad = sum(pool.map(lane, range(jobs)))
    print(f'{len(names) - bad} passed, {bad} failed')
    return 1 if bad else 0


sys.exit(main())
