#!/usr/bin/env python3
"""Known-wrong variants of the protocol, each a small change of the real code or of a real script; the simulation must catch every one but
those in QUIET.
usage: mutants.py BUILD_DIR [--all] [NAME...]   (from the top of the source tree; LW_JOBS processes side by side, 2 by default)
--all: those in QUIET too, to notice when one is caught after all

They are model/mutants.py's list and the rules that model/lanes_full.py found to break a promise when switched off."""
import concurrent.futures, os, shutil, subprocess, sys

SEEDS, LIMIT_S = 100, 600  # the seeds decide; the limit is for what hangs
M = {
    'gate ignores waiters': [('queue/lua/gate.lua', "(lock or (waiting and waiting[i]) or is_paused(key))", "(lock or is_paused(key))")],
    'no quarantine': [('queue/lua/enter.lua', "'not_before', text(longest))\n    -- looks", "'not_before', '0')\n    -- looks")],
    'head popped at claim': [('queue/lua/claim.lua', "            head_out = head\n", "            head_out = head\n            call('RPOP', KEYS[7 + 2 * i])\n")],
    'no janitor': [('queue/lua/tend.lua', "local why = refuse", "if id then return 0 end\nlocal why = refuse")],
    'done not recorded': [('queue/lua/settle.lua', "        set(g, tp, offset, 2)\n        if dedup", "        if dedup")],
    'release deletes any lock': [('queue/lua/settle.lua', "if not is_mine(held[i], token) then", "if not held[i] then")],
    'retry goes to the tail': [('queue/lua/settle.lua', "local rotate = skip and backoff > 0", "local rotate = backoff > 0")],
    'chain on claimed runs too': [('consumer/settle.c', "r->kind == LANE || !chain", "!chain"), ('consumer/lane.c', "return l->run->kind == LANE &&", "return false && l->run->kind == LANE &&")],
    'old assignment survives': [('consumer/lane.c', "!m->gen || m->part->gen != m->gen || m->part->pass != m->pass", "!m->part->gen"), ('consumer/partition.c', "    lane_drop_pending(w, p);\n    p->gen = 0;", "    p->gen = 0;")],
    'commit what is merely parked': [('consumer/gate.c', "part_mark(w, m->part, m->offset, LW_OFF_QUEUED);", "part_mark(w, m->part, m->offset, LW_OFF_DONE);")],
    'fence restarts after a wipe': [('queue/lua/lane.lua', "math.max(tonumber(call('GET', P .. 'fence') or 0) + 1, now_us)", "tonumber(call('GET', P .. 'fence') or 0) + 1"), ('queue/lua/enter.lua', "if fence > tonumber", "if false and fence > tonumber")],
    'no rewind when the epoch is lost': [('consumer/shard.c', "    parts_rewind(w, true);\n    w->confirm", "    w->confirm")],
    'newer ones jump over what comes back': [('consumer/settle.c', "        lane_push_front(w, l, m);", "        lane_push(w, l, m);")],
    'gate beside the settle of its key': [('consumer/settle.c', "        r->lane->in_call = true;\n        struct settle_item", "        struct settle_item"), ('consumer/lane.c', "(l->run->state == RUNNING || l->run->state == SENDING) &&", "")],
    'the same settle again after a lost reply': [('consumer/pipe.c', "if (sh->cut)\n            sh->settle[i].mode = DROP;", "if (sh->cut)\n            settle_choose(w, &sh->settle[i]);")],
    'calls forgotten after a lost reply': [('consumer/pipe.c', "&& keeps(sh->calls[i].kind)) sh->kept", "&& sh->calls[i].kind == CALL_SETTLE) sh->kept")],
    'finished without the floor': [('queue/lua/lane.lua', "return offset < floor_of(tp) or state_of(tp, offset) >= 2", "return state_of(tp, offset) >= 2")],
    'gate without the floor': [('queue/lua/gate.lua', "if state >= 2 or offset < group_floor then", "if state >= 2 then")],
    'next of the chain unchecked': [('queue/lua/settle.lua', "next_fin = finished(next_tp, next_offset)", "next_fin = false"), ('queue/lua/settle.lua', "next_fin = was_finished(next_group, next_offset)", "next_fin = false")],
    'no memory of handlers that outlive their epoch': [('consumer/lane.c', "if (l->in_call || l->stale || ", "if (l->in_call || "), ('consumer/claim.c', "l->run || l->stale || l->in_call", "l->run || l->in_call")],
    'late grants start': [('consumer/run.c', "if (deadline <= now || w->stopping)", "if (w->stopping)"), ('consumer/run.c', "atomic_load(&r->lease.held.cancelled) || atomic_load(&r->lease.held.deadline_ms) <= now", "false")],
    'repair of what has a gap before it': [('consumer/partition.c', "if (tag_test(x->open, tag)) return false;", "")],
    'no confirmation by Kafka': [('consumer/turn.c', "if (w->confirm && !commit_confirm(w)) return;", "")],
    'repair after the quarantine': [('queue/lua/repair.lua', "if why ~= 'QUARANTINE' then return 'LATE' end", "")],
    'a clock that jumps goes unseen': [('queue/lua/lane.lua', "then return 'JUMP' end", "then end"), ('consumer/shard.c', "if (llabs(sh->new_offset_ms - sh->offset_ms) > w->c->lock.ttl_ms / 4) {", "if (0) {"), ('queue/lua/enter.lua', "moved = true\n", "moved = false\n")],
    'retry of a finished message': [('queue/lua/settle.lua', "if fin then outcome = 'd' end", "")],
    'gate not idempotent': [('queue/lua/gate.lua', "local mine = is_mine(lock, token)", "local mine = false")],
    'claim not idempotent': [('queue/lua/claim.lua', "local mine = not broken and is_mine(held, token)", "local mine = false")],
    'the same message twice in one worker': [('consumer/lane.c', "if (r && r->msg->part == m->part && r->msg->offset == m->offset) {", "if (0) {")],
    'another life of the server goes unseen': [('consumer/shard.c', "} else if (strcmp(sh->life, sh->new_life) != 0) {", "} else if (0) {"), ('consumer/shard.c', "if (sh->phase == READY && strcmp(sh->life, sh->new_life) != 0)", "if (0)"), ('queue/lua/enter.lua', "redis.call('HGET', epoch_key, 'life') ~= life or ", "")],
    'done only under a live lease': [('queue/lua/settle.lua', "if outcome == 'd' and not fin then", "if outcome == 'd' and not fin and is_mine(held[i], token) then")],
    'no renewal': [('lock/lease.c', "    return n;\n}\n\nsize_t lw_leases_renewed", "    return 0;\n}\n\nsize_t lw_leases_renewed")],
    'floors not told again to another life': [('consumer/shard.c', "w->assigned[i]->floor_sent[sh->index] = -1;", ";"), ('consumer/shard.c', "floors += w->assigned[i]->committed >= 0;", "floors += 0;")],
    'repair cut short': [('consumer/shard.c', "sh->phase = sh->repaired ? READY : REPAIRING;", "sh->phase = READY;")],
}
# The world that catches a variant soonest; not named: seeds go round all of them.
MODE = {
    'no quarantine': 'wipe',
    'fence restarts after a wipe': 'wipe',
    'no rewind when the epoch is lost': 'wipe',
    'another life of the server goes unseen': 'failover',
    'retry goes to the tail': 'churn',
    'repair of what has a gap before it': 'wipe',
    'done only under a live lease': 'ghost',
    'newer ones jump over what comes back': 'all',
    'late grants start': 'late',
    'gate without the floor': 'floors',
    'retry of a finished message': 'slow',
    'a clock that jumps goes unseen': 'clock',
    'no memory of handlers that outlive their epoch': 'wipelate',
}
# Break no promise within the seeds; run with --all only.
QUIET = {
    'gate not idempotent': 'costs a lease and nothing else: the lock ends by itself; tests/lua/test_gate.c calls twice',
    'claim not idempotent': 'costs a lease and nothing else; tests/lua/test_claim.c calls twice',
    'no renewal': 'costs re-runs, which a fenced store drops; tests/unit/test_renewer.c knows it',
    'old assignment survives': 'the tracker of the new assignment does not know the old delivery, or takes it for the new one',
    'the same message twice in one worker': 'the copy is found finished by keep or gate, or runs right behind itself',
    'the same settle again after a lost reply': 'needs the first call to execute after the second, just while the chain has grown',
    'no confirmation by Kafka': 'needs a zombie that outlives the quarantine while the next owner went on; the model finds it',
    'floors not told again to another life': 'the next commit tells them; needs a roll-back without a commit in the quarantine',
    'repair after the quarantine': 'needs a repair under way at the very end of the quarantine, and another owner',
    'repair cut short': 'needs a cut within the repair and a rebalance before the next commit',
}

DIRS = ['base', 'config', 'consumer', 'handlers', 'include', 'lock', 'queue', 'tests', 'tools']


def worker_tree(build, n):
    tree = os.path.join(build, 'mutants', str(n))
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(tree)
    for d in DIRS:
        shutil.copytree(d, os.path.join(tree, d), ignore=shutil.ignore_patterns('cases', '__pycache__'))
    shutil.copy('Makefile', tree)
    make(tree)
    return tree


def make(tree):
    # "Entering directory" would confuse; warnings of a mutant are no errors
    p = subprocess.run(['make', '-s', 'B=b', 'CFLAGS=-O1', 'WERROR=-w', 'b/tests/sim/sim_lanes'], cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, env={k: v for k, v in os.environ.items() if k not in ('MAKEFLAGS', 'MFLAGS', 'MAKELEVEL')})
    if p.returncode:
        raise SystemExit('mutants: build failed:\n' + p.stdout[-3000:])


def try_one(tree, name):
    saved = {}
    try:
        for path, a, b in M[name]:
            full = os.path.join(tree, path)
            text = open(full).read()
            saved.setdefault(full, text)
            if a not in text:
                return name, 'NOT FOUND', f'{path}: {a!r}'
            with open(full, 'w') as f:
                f.write(text.replace(a, b))
        make(tree)
        try:
            mode = ['--mode', MODE[name]] if name in MODE else []
            p = subprocess.run(['b/tests/sim/sim_lanes', '--seeds', str(SEEDS), '--until-bad', *mode], cwd=tree, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors='replace', timeout=LIMIT_S)
            out = p.stdout.strip().splitlines()
            if p.returncode == 0:
                return name, 'MISSED', f'{SEEDS} seeds'
            if p.returncode not in (1, -6, -11):
                return name, 'BROKEN', f'status {p.returncode}: {out[-1:]}'
            return name, 'caught', (out[0] if p.returncode == 1 and out else f'crash: {p.returncode} {out[-1:] }')[:150]
        except subprocess.TimeoutExpired:
            return name, 'MISSED', f'{LIMIT_S} s'
    finally:
        for full, text in saved.items():
            with open(full, 'w') as f:
                f.write(text)


def main():
    args = [a for a in sys.argv[1:] if a != '--all']
    build, names = args[0], args[1:] or [n for n in M if n not in QUIET or '--all' in sys.argv]
    jobs = int(os.environ.get('LW_JOBS', '2'))
    lanes = [[n for i, n in enumerate(names) if i % jobs == k] for k in range(jobs)]

    def lane(k):
        tree = worker_tree(build, k)
        return [try_one(tree, n) for n in lanes[k]]

    bad = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for results in pool.map(lane, range(jobs)):
            for name, what, detail in results:
                fine = what == 'caught' or (what == 'MISSED' and name in QUIET)
                bad += not fine
                if what == 'MISSED' and name in QUIET: what, detail = 'quiet', QUIET[name]
                print(f'{what:9} {name}: {detail}', flush=True)
    print(f'{len(names) - bad} passed, {bad} failed')
    return 1 if bad else 0


sys.exit(main())
