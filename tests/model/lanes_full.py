# SPDX-License-Identifier: Apache-2.0
"""Extends the model lanes_sim.py with the network and with several shards. The model has shards
with an epoch each, pipelines whose calls execute one by one, lost replies and resends, ghost calls
(calls of a broken connection that execute after the resend), several messages of one key per call,
settle and gate in one pipeline, floors and segments, workers that learn late that they lost a
partition, handlers that outlive a lost epoch, dead letters, a store that checks fence and identity,
split brain after a failover, clock jumps, and running ahead: several messages are granted to a hold
at once. RULES holds the rules of the protocol. Each rule can be switched off to see which promise
then breaks. Usage: lanes_full.py SEEDS [mode,mode] [rule=value ...]"""

import copy, random, sys, time
from collections import deque, defaultdict


class Bad(Exception):
    pass


RULES = dict(
    # If gate finds its caller's token in the lock, the same call was executed before. Then gate
    # answers RUN again and extends the lease.
    gate_idem=1,
    claim_idem=1,  # if claim finds its caller's token in the lock, it hands the head over again
    # `resend` says how a settle is sent again after a lost reply. With 'more', a settle of a hold
    # that has other messages is sent in mode `more` and asks for no further messages, and any other
    # settle is sent in mode drop. 'drop' always uses mode drop. 'same' sends the same bytes again.
    # 'rebuild' builds the settle anew from the states of the runs.
    resend='more',
    ghost=1,  # if 1, calls of a broken connection may still execute later (a fault)
    # A key is named by at most one unanswered call, and by only one item of that call. The item may
    # have up to `ahead` messages.
    hold=1,
    # If 1, a newer message of a key is not sent to gate in the same pipeline as the settle of that
    # key.
    hold_pipe=1,
    floor_prune=1,  # every check for finished messages also looks at the floor, as gate does
    floor_settle=1,  # settle writes no state below the floor
    floor_repair=1,  # enter writes back the committed offset as the floor
    repair=1,
    # Repair and rewind count a message as done only if all earlier messages of its key and
    # partition are finished.
    closure=1,
    # A settle in mode keep names the next message of the chain. If that message is finished, the
    # answer is SKIP.
    chain_check=1,
    # If 1, a lost epoch ends only the leases of its own shard, but all partitions are rewound.
    per_shard=1,
    # If `per_shard` is 1, a rewound message that still runs in this worker is not sent to gate
    # again.
    ident=1,
    stale_outcome=1,  # a run whose fence the store refuses is not reported as done
    stale_local=1,  # a handler that outlived its epoch still blocks its key in its worker
    late_grant=1,  # a grant whose deadline has passed when it arrives is not started
    # a lock that was kept or granted is released if the hold has no message left to run
    kept_empty=1,
    retry_guard=1,
    dead_pop=0,
    retry_first=0,
    # After an epoch was lost, the worker sends messages to gate only when Kafka has accepted a
    # commit of the watermark.
    confirm=1,
    grace=0,
    jump=1,
    tries_repair=0,
    late_repair=1,
    # `meta` says how commit metadata is used. 0: it is ignored. 1: it is always believed. 2: a
    # message is taken as done only if Redis agrees, or if a repair in a quarantine writes it back
    # to Redis.
    meta=2,
    assign_read=1,
    repair_quar=1,
    tries_seg=1,
    # The rules from `ahead` on are those of running ahead (see README.md in this folder).
    ahead=3,  # how many messages of a hold may be granted or running; with 1, no message runs ahead
    # If the lease of a lane has ended, settle records at most the first message of the lane's item
    # as done, and answers STALE. The worker then counts only the run of this message as done.
    stale_first=1,
    # If a settle is answered STALE, the messages whose outcome done was not counted are sent to
    # gate again, before the message that was still running.
    redo_first=1,
    # A call of gate that is sent again also grants messages that were parked in the meantime. If 0,
    # such a message waits in Redis, and later messages of its key stay in the chain.
    gate_mine=1,
    # After the first outcome that is not done, granted messages that have not started are taken
    # back.
    take_back=1,
    take_front=1,  # messages that are taken back go to the front of the chain
    ahead_live=1,  # the next message of a grant starts only under a live lease
    # The next message of a grant starts only when the handler of the message before it has ended.
    ahead_wait=1,
    # Settle removes finished heads before it checks that the message to retry is the head.
    retry_prune=1,
    distinct=1,  # heads that are handed over differ from each other and from heads granted before
    # Further heads are taken only from behind the last granted head. If that head is not in the
    # waiting list, no further heads are handed over.
    in_place=1,
    more_extend=1,  # a settle in mode `more` extends the lease
    over=1,  # after MAXRUN messages, a hold of the fast path ends if other messages of its key wait
    # When granted messages are taken back, later messages that the unanswered settle grants are
    # taken back as well.
    more_late=1,
    # `orphan` says what happens to a granted message that has not started when its partition is
    # revoked. 'keep': the message runs under the lease. 'drop': the message does not start.
    orphan='keep',
    # If a revoked partition comes back while a hold still has a message of that partition, the new
    # delivery of the message waits until the hold has ended.
    orphan_hold=1,
)
TTL, HANDOFF, BACKOFF, NPART, NKEY, MAXRUN, SH, SEG, B, MAXTRY = 20, 15, 7, 3, 4, 3, 2, 4, 4, 4
R = type('R', (), dict(RULES))


class Redis:
    def __init__(s, life):
        s.life = life
        s.skew = 0
        s.until = None
        s.data()

    def data(s):
        s.lock = {}
        s.wait = defaultdict(deque)
        s.state = {}
        s.floor = {}
        s.ready = deque()
        s.lanes = {}
        s.tries = {}
        s.epoch = None
        s.epoch_life = None
        s.barrier = 0
        s.last = 0
        s.dead = []
        s.off = None

    def alive(s, pk, t):
        l = s.lock.get(pk)
        if l and l[1] > t:
            return l
        if (
            l
            and l[0] != 'backoff'
            and not any(
                r.tok == l[0]
                for w in SIM.w
                for r in [*w.run.values(), *[x.hold for y in w.stale.values() for x in y]]
            )
        ):
            SIM.orphans += 1
        s.lock.pop(pk, None)
        return None

    def fence(s, t, k):
        f = max(s.last + 1, t * 1000)
        s.last = f + k - 1
        return f  # k fences are reserved, and message i of the grant gets the fence f + i

    def fin(s, p, o, use_floor=1):
        return s.state.get((p, o), 0) >= 2 or (use_floor and o < s.floor.get(p, 0))

    def check(s, ep, t, exp):
        if s.epoch is None or s.epoch != ep:
            return 'LOST'
        if R.jump and exp is not None and abs(t - exp) > TTL // 4:
            return 'JUMP'
        if t < s.barrier:
            return 'QUARANTINE'

    def enter(s, t, off, jumped):
        if (
            s.epoch is None
            or s.epoch_life != s.life
            or (
                R.jump
                and (jumped == s.epoch or (s.off is not None and abs(s.off - off) > TTL // 4))
            )
        ):
            s.epoch = random.getrandbits(60)
            s.epoch_life = s.life
            s.barrier = t + TTL + R.grace
            s.off = off
            for pk in list(s.lanes):
                s.lanes[pk] = min(s.lanes[pk], t + TTL)
        elif s.barrier > t + TTL + R.grace:
            s.barrier = t + TTL + R.grace
        return s.epoch

    def repair(s, ep, done, floors, t):
        if s.epoch != ep:
            return False
        for p, f in floors.items():
            s.setfloor(p, f)
        if R.repair_quar and t >= s.barrier:
            return False
        for p, o in done:
            if o >= s.floor.get(p, 0):
                s.state[(p, o)] = 2
            if R.tries_repair:
                [s.tries.pop(k) for k in list(s.tries) if k[1:] == (p, o)]
        return True

    def prefix(s, m, log):
        return all(s.fin(m[1], o) for o in range(m[2]) if log[m[1]][o] == m[0])

    def setfloor(s, p, f):
        was = s.floor.get(p, 0) // SEG * SEG
        s.floor[p] = max(f, s.floor.get(p, 0))
        low = s.floor[p] // SEG * SEG
        for k in [k for k in s.state if k[0] == p and was <= k[1] < low]:
            del s.state[k]
        if R.tries_seg:
            for k in [k for k in s.tries if k[1] == p and k[2] < low]:
                del s.tries[k]

    def gate1(s, ms, tok, t):  # `ms` holds messages of one key, in order
        pk = ms[0][0]
        l = s.alive(pk, t)
        mine = l and l[0] == tok and R.gate_idem
        closed = not mine and (l or s.wait.get(pk))
        out = []
        base = None
        parked = False
        for m in ms:
            _, p, o = m
            st = s.state.get((p, o), 0)
            if s.fin(p, o):
                out.append(('DONE',))
            elif parked and base is not None:
                out.append(('AGAIN',))
            elif st == 1 and not (mine and R.gate_mine):
                out.append(('WAITING',))
                parked = True
            elif closed:
                s.wait[pk].appendleft(m)
                s.state[(p, o)] = 1
                if pk not in s.lanes:
                    s.lanes[pk] = l[1] if l else t
                out.append(('WAITING',))
            else:
                if base is None:
                    s.lock[pk] = (tok, t + TTL)
                    base = s.fence(t, len(ms))
                out.append(('RUN', base, s.tries.get(m, 0)))
                base += 1
        return out

    def prune(s, pk):
        w = s.wait.get(pk)
        while w and s.fin(w[-1][1], w[-1][2], R.floor_prune):
            w.pop()
        if not w:
            s.wait.pop(pk, None)
            s.lanes.pop(pk, None)
            return None
        return w[-1]

    # Returns up to k waiting heads. If `after` is given, only heads behind that message are
    # returned.
    def heads(s, pk, k, t, after=None):
        out = []
        seen = set()
        ahead = after is not None
        for i, m in enumerate(reversed(s.wait.get(pk, ()))):
            if len(out) == k or i > 4 * R.ahead:
                break
            if ahead:
                seen.add(m)
                ahead = m != after and R.in_place
                if m == after or R.in_place:
                    continue
            if s.fin(m[1], m[2], R.floor_prune) or (m in seen and R.distinct):
                continue
            seen.add(m)
            out.append(m)
        base = s.fence(t, k) if k else 0
        return [(m, base + i, s.tries.get(m, 0)) for i, m in enumerate(out)]

    def chained(s, ms, t):  # grants messages of the local chain
        base = s.fence(t, len(ms)) if ms else 0
        return [
            ('SKIP',)
            if R.chain_check and s.fin(m[1], m[2])
            else ('RUN', base + i, s.tries.get(m, 0))
            for i, m in enumerate(ms)
        ]

    def settle1(s, pk, fs, tok, mode, nxt, over, t):
        """`fs` holds the finished runs in order, as pairs (message, outcome). In modes keep and
        more, `nxt` is either the list of chain messages that the call names, or a pair (the last
        granted head, the number of further heads wanted)."""
        l = s.alive(pk, t)
        mine = l and l[0] == tok
        fins = [s.fin(m[1], m[2]) for m, _ in fs]
        for i, (m, v) in enumerate(fs):
            if v != 'OK' or (not mine and i and R.stale_first):
                continue
            p, o = m[1:]
            if s.state.get((p, o), 0) < 2 if not R.floor_settle else not s.fin(p, o):
                s.state[(p, o)] = 2
            s.tries.pop(m, None)
        m, verdict = fs[-1]
        fin = fins[-1]
        p, o = m[1:]
        if R.retry_first and verdict == 'RETRY':
            mine = True
        if not mine:
            return ('STALE',)
        if R.retry_guard and fin and verdict in ('RETRY', 'BACK', 'DEAD'):
            verdict = 'OK'
        if verdict == 'DEAD':
            if fin:
                raise Bad(f'deadafterdone {m}')
            s.state[(p, o)] = 3
            s.dead.append(m)
            s.tries.pop(m, None)
            SIM.died(m)
            if R.dead_pop and s.wait.get(pk):
                s.wait[pk].pop()
        if verdict in ('RETRY', 'BACK'):
            w = s.wait[pk]
            while R.retry_prune and w and s.fin(w[-1][1], w[-1][2], R.floor_prune):
                w.pop()
            if not (w and w[-1] == m):
                w.append(m)
            s.state[(p, o)] = 1
            if verdict == 'RETRY':
                s.tries[m] = s.tries.get(m, 0) + 1
                s.lock[pk] = ('backoff', t + BACKOFF)
                s.lanes[pk] = t + BACKOFF
            else:
                s.lock.pop(pk, None)
                s.ready.appendleft(pk)
                s.lanes[pk] = t + HANDOFF
            return ('RELEASED',)
        head = s.prune(pk)
        if mode == 'more':
            if R.more_extend:
                s.lock[pk] = (tok, t + TTL)
            if head:
                s.lanes[pk] = t + TTL
            if nxt and nxt[0] == 'heads':
                return ('MORE', s.heads(pk, nxt[2], t, nxt[1]))
            return ('MORE', [('AGAIN',)] * len(nxt) if over and head else s.chained(nxt, t))
        if mode == 'keep' and not (over and head):
            s.lock[pk] = (tok, t + TTL)
            if head:
                s.lanes[pk] = t + TTL
            return ('KEPT', s.chained(nxt, t))
        if head is None:
            s.lock.pop(pk, None)
            return ('RELEASED',)
        if mode == 'next':
            s.lock[pk] = (tok, t + TTL)
            s.lanes[pk] = t + TTL
            return ('NEXT', s.heads(pk, R.ahead, t))
        s.lock.pop(pk, None)
        s.ready.appendleft(pk)
        s.lanes[pk] = t + HANDOFF
        return ('RELEASED',)

    def claim1(s, pk, tok, t):
        l = s.alive(pk, t)
        if l and not (l[0] == tok and R.claim_idem):
            return ('BUSY',)
        head = s.prune(pk)
        if head is None:
            if l:
                s.lock.pop(pk, None)
            return ('EMPTY',)
        s.lock[pk] = (tok, t + TTL)
        s.lanes[pk] = t + TTL
        return ('NEXT', s.heads(pk, R.ahead, t))

    def call(s, c, ep, now, exp):
        t = now + s.skew
        e = s.check(ep, t, exp)
        if e:
            return e
        k, items = c
        if k == 'gate':
            return [s.gate1(ms, tok, t) for ms, tok in items]
        if k == 'settle':
            return [s.settle1(*i, t) for i in items]
        return [s.claim1(pk, tok, t) for pk, tok in items]

    def tend(s, ep, now):
        t = now + s.skew
        if s.check(ep, t, None):
            return
        for pk, score in list(s.lanes.items()):
            if score > t and score <= t + 3 * TTL:
                continue
            l = s.alive(pk, t)
            if l:
                s.lanes[pk] = min(l[1], t + TTL)
            elif not s.wait.get(pk):
                s.lanes.pop(pk)
            else:
                s.ready.appendleft(pk)
                s.lanes[pk] = t + HANDOFF


sh = lambda pk: pk % SH
SIM = None


class Hold:  # one acquisition of a lane
    def __init__(h, w, pk, tok, kind, dl):
        h.w = w
        h.pk = pk
        h.tok = tok
        h.kind = kind
        h.dl = dl
        h.n = 0
        h.busy = False
        # `sent` holds the runs in the unanswered settle. `items` holds the runs behind them: first
        # the finished runs, then the running run, and then the granted runs.
        h.sent = []
        h.items = []
        # `chain` holds the messages in memory behind the granted messages. `asked` holds the
        # messages that the unanswered settle names.
        h.chain = deque()
        h.asked = []
        # `redo` holds messages whose outcome done was not counted because of the answer STALE.
        # These messages are sent to gate again before all others.
        h.redo = []
        # `last` is the message settled last, with its outcome. `lost` is true after the answer
        # STALE. `void` is true if grants of the unanswered settle do not count.
        h.last = None
        h.lost = h.void = False

    def grant(h, gs):
        for m, f, tries in gs:
            h.items.append(Run(h, m, f, tries))
            h.n += 1

    def find(h, m):
        return next((r for r in h.sent + h.items if r.m == m), None)


class Run:  # one message of a hold, in the state 'granted', 'run' or 'fin'
    def __init__(r, h, m, fence, tries):
        r.hold = h
        r.m = m
        r.fence = fence
        r.tries = tries
        r.state = 'granted'
        r.verdict = None
        r.own = True

    w = property(lambda r: r.hold.w)
    dl = property(lambda r: r.hold.dl)


class Pipe:
    def __init__(p, w, srv, ep, calls, now, exp):
        p.w = w
        p.srv = srv
        p.ep = ep
        p.calls = calls
        p.rep = []
        p.sent = now
        p.live = True
        p.exp = exp


class Worker:
    def __init__(w, i, sim):
        w.id = i
        w.sim = sim
        w.reset()

    def reset(w):
        w.conn = [None] * SH
        w.ep = [None] * SH
        w.exp = [0] * SH
        w.jumped = [None] * SH
        w.tracker = {}
        w.pos = {}
        w.gen = {}
        w.run = {}
        w.stale = defaultdict(list)
        w.pending = deque()
        w.pipe = [None] * SH
        w.resend = [None] * SH
        w.dead_until = 0
        w.joined = True
        w.confirm = False
        w.floors = {}
        w.late = []
        w.fresh = {}


class Sim:
    def __init__(s, seed, o):
        s.r = random.Random(seed)
        random.seed(seed)
        s.o = defaultdict(int, o)
        s.now = 1000
        s.faults = True
        s.lives = 0
        s.master = [Redis(s.life()) for _ in range(SH)]
        s.snap = [copy.deepcopy(x) for x in s.master]
        s.log = {p: [s.r.randrange(NKEY) for _ in range(o['n'])] for p in range(NPART)}
        s.commit = {p: 0 for p in s.log}
        s.meta = {p: [] for p in s.log}
        s.owner = {}
        s.g = 0
        s.wire = []
        s.execing = []
        s.w = [Worker(i, s) for i in range(3)]
        s.first = {}
        s.order = defaultdict(list)
        s.fence_seen = defaultdict(int)
        s.eff = defaultdict(list)
        s.taint = set()
        s.dups = 0
        s.rerun = 0
        s.sfence = defaultdict(int)
        s.ids = set()
        s.deadset = set()
        s.orphans = 0
        s.cuts = 0
        s.aheads = 0
        s.grants = 0
        s.rebalance()

    def life(s):
        s.lives += 1
        return s.lives

    # The next functions deal with partitions and commits of Kafka.
    def assign(s, w, p):
        s.g += 1
        s.owner[p] = (w.id, s.g)
        s.drop(w, p)
        w.pos[p] = s.commit[p]
        w.tracker[p] = {o: 'done' for o in s.meta[p]} if R.meta == 1 else {}
        w.gen[p] = s.g

    def rebalance(s):
        live = [w for w in s.w if w.joined]
        for p in s.log:
            if not live:
                return
            new = s.r.choice(live)
            old = s.owner.get(p)
            if old and old[0] == new.id and s.r.random() < 0.7:
                continue
            if old and s.w[old[0]].dead_until <= s.now:
                s.drop(s.w[old[0]], p)
            s.assign(new, p)

    def drop(s, w, p):
        w.pos.pop(p, None)
        w.tracker.pop(p, None)
        w.gen.pop(p, None)
        w.pending = deque(m for m in w.pending if m[1] != p)
        for h in w.run.values():
            h.chain = deque(m for m in h.chain if m[1] != p)
            h.asked = [m for m in h.asked if m[1] != p]
            h.redo = [m for m in h.redo if m[1] != p]
            if h.kind == 'lane':
                continue
            mine = [r for r in h.items if r.state == 'granted' and r.m[1] == p]
            for r in mine:
                r.own = False
            if R.orphan == 'drop' and mine:
                h.items = [r for r in h.items if r not in mine]
                if not h.items and not h.busy:
                    s.giveback(h, mine[0])

    def learn(s, w):
        for p in list(w.tracker):
            if s.owner.get(p) != (w.id, w.gen[p]):
                s.drop(w, p)

    def mark(s, w, m, what):
        t = w.tracker.get(m[1])
        if t is not None and m[2] in t and t[m[2]] != 'done':
            t[m[2]] = what

    def tracked(s, w, m):
        t = w.tracker.get(m[1])
        return t is not None and t.get(m[2]) in ('in', 'waiting')

    def watermark(s, w, p):
        o = s.commit[p]
        t = w.tracker[p]
        while t.get(o) == 'done':
            o += 1
        return o

    # The next functions deal with handlers and their outcomes.
    def giveback(s, h, r):
        r.state = 'fin'
        r.verdict = 'BACK'
        h.items.append(r)

    # Takes back the messages that are granted and not started, so that they do not run under this
    # hold.
    def takeback(s, h):
        back = [r for r in h.items if r.state == 'granted']
        h.items = [r for r in h.items if r.state != 'granted']
        ms = [r.m for r in back if r.own and h.kind == 'fast' and s.tracked(h.w, r.m)]
        if R.more_late:
            h.void = h.busy
            h.chain.extendleft(reversed(h.asked))
            h.asked = []
        if R.take_front:
            h.chain.extendleft(reversed(ms))
        else:
            h.chain.extend(ms)

    def ahead(s, w):  # lets some holds start their next message, as handler threads do
        for h in list(w.run.values()):
            if s.r.random() < 0.6:
                s.go_on(h)

    def go_on(s, h):
        nxt = next((r for r in h.items if r.state == 'granted'), None)
        if h.lost:
            return
        if nxt is None or (any(r.state == 'run' for r in h.items) and R.ahead_wait):
            return
        if any(r.verdict != 'OK' for r in h.sent + h.items if r.state == 'fin') and R.take_back:
            s.takeback(h)
            return
        first = not any(r.state != 'granted' for r in h.sent + h.items)
        if h.dl <= s.now and (R.late_grant if first else R.ahead_live):
            if not first:
                s.takeback(h)
            elif not h.busy:
                h.items.remove(nxt)
                s.takeback(h)
                s.giveback(h, nxt)
            return
        s.start(h, nxt)

    def start(s, h, run):
        w = h.w
        pk = h.pk
        dl = h.dl
        m = run.m
        for x in s.execing:
            if x.m[0] == pk and x.dl > s.now and dl > s.now:
                raise Bad(f'overlap on key {pk}: {x.m} by {x.w.id} and {m} by {w.id}')
            if x.m[0] == pk and x.w is w:
                raise Bad(f'local2 key {pk}')
        if run.fence <= s.fence_seen[pk] and dl > s.now:
            raise Bad('fence not monotonic')
        s.fence_seen[pk] = max(run.fence, s.fence_seen[pk])
        srv = w.conn[sh(pk)]
        if srv is s.master[sh(pk)] and srv.epoch == w.ep[sh(pk)] and srv.fin(m[1], m[2]):
            s.rerun += 1
        if h.busy or h.sent or any(r.state == 'fin' for r in h.items):
            s.aheads += 1
        run.state = 'run'
        s.execing.append(run)

    def finish(s, w):
        x = [r for r in s.execing if r.w is w]
        if not x:
            return
        run = s.r.choice(x)
        s.execing.remove(run)
        m = run.m
        pk = m[0]
        key = (m[1], m[2])
        run.state = 'fin'
        v = (
            'OK'
            if s.r.random() > 0.1
            else ('DEAD' if run.tries + 1 >= MAXTRY or s.r.random() < 0.2 else 'RETRY')
        )
        if s.o['kill'] and run.dl <= s.now:
            v = 'BACK'
        if v == 'OK':
            if run.dl <= s.now:
                s.taint.add(pk)
            if key in s.ids:
                s.dups += 1
            elif run.fence < s.sfence[pk]:
                v = 'BACK' if R.stale_outcome else 'OK'
                s.fenced = 1
            else:
                s.ids.add(key)
                s.sfence[pk] = run.fence
            if v == 'OK':
                s.eff[(m[1], pk)].append(m[2])
            if v == 'OK' and key not in s.first:
                s.first[key] = s.now
                s.order[(m[1], pk)].append(m[2])
        run.verdict = v
        if run in w.stale[pk]:
            if R.late_repair and v == 'OK':
                w.late.append(run)
                return  # the run blocks its key until Redis has recorded it as done
            w.stale[pk].remove(run)
            if v == 'OK' and m[1] in w.tracker and s.closed(w, m):
                w.tracker[m[1]][m[2]] = 'done'
                w.pending = deque(q for q in w.pending if q != m)

    def laterepair(s, w):
        for run in list(w.late):
            m = run.m
            pk = m[0]
            h = sh(pk)
            c = w.conn[h]
            if w.ep[h] is None or c is None or c.epoch != w.ep[h]:
                continue
            w.late.remove(run)
            w.stale[pk].remove(run)
            if R.confirm:
                s.learn(w)
            if (
                s.closed(w, m)
                and c.repair(w.ep[h], [(m[1], m[2])], {}, s.now + c.skew)
                and m[1] in w.tracker
            ):
                w.tracker[m[1]][m[2]] = 'done'
                w.pending = deque(q for q in w.pending if q != m)

    def closed(s, w, m):
        if not R.closure:
            return True
        t = w.tracker.get(m[1])
        if t is None:
            return False
        return all(
            t.get(o) == 'done' for o in range(s.commit[m[1]], m[2]) if s.log[m[1]][o] == m[0]
        )

    def closed_in(s, p, q, meta, w):
        return s.owner[p] == (w.id, w.gen[p]) and all(
            o in meta for o in range(s.commit[p], q) if s.log[p][o] == s.log[p][q]
        )

    def died(s, m):
        s.eff[(m[1], m[0])].append(m[2])
        s.deadset.add((m[1], m[2]))
        if (m[1], m[2]) not in s.first:
            s.first[(m[1], m[2])] = s.now
            s.order[(m[1], m[0])].append(m[2])

    # The next functions deal with the end and the beginning of an epoch.
    def lost(s, w, h):
        hs = [h] if R.per_shard else range(SH)
        w.ep[h] = None
        for x in hs:
            if w.pipe[x]:
                w.pipe[x].live = False
                w.pipe[x] = None
            w.resend[x] = None
        oks = []
        for pk, hold in list(w.run.items()):
            if sh(pk) not in hs:
                continue
            for run in hold.sent + hold.items:
                if run.state == 'run':
                    if R.stale_local:
                        w.stale[pk].append(run)
                elif run.verdict == 'OK':
                    # The message is done, but its outcome is not settled yet. Granted messages that
                    # have not started are forgotten.
                    oks.append(run.m)
            del w.run[pk]
        # Holds on healthy shards continue. The answer to a pipeline in flight is handled as usual
        # when it arrives.
        if R.per_shard:
            for hold in w.run.values():
                hold.chain.clear()
                hold.asked = []
                hold.redo = []
                for run in hold.items:
                    if run.state == 'granted' and hold.kind == 'fast':
                        run.own = False
        w.pending.clear()
        for p in list(w.tracker):
            t = w.tracker[p]
            for m in oks:
                if m[1] == p and m[2] in t:
                    t[m[2]] = 'done'
            wm = s.watermark(w, p)
            keep = {}
            open_ = set()
            for o in range(s.commit[p], max(t, default=-1) + 1):
                pk = s.log[p][o]
                if t.get(o) == 'done' and (not R.closure or pk not in open_):
                    keep[o] = 'done'
                elif o >= wm or t.get(o) != 'done':
                    open_.add(pk)
            w.tracker[p] = keep
            w.pos[p] = wm
        w.confirm = bool(R.confirm)

    # The next function makes one random step of the simulation.
    def step(s):
        s.now += s.r.choice([0, 0, 0, 1, 1])
        r = s.r
        o = s.o
        x = r.random()
        if s.faults:
            if x < 0.003 * o['crash']:
                w = r.choice(s.w)
                s.execing = [e for e in s.execing if e.w is not w]
                for p in w.pipe:
                    if p:
                        s.sever(p)
                w.reset()
                w.dead_until = s.now + r.randrange(5, 60)
                w.joined = False
                for p in s.log:
                    if s.owner[p] and s.owner[p][0] == w.id:
                        s.owner[p] = None
                return
            x = r.random()
            if x < 0.004 * o['pause']:
                w = r.choice(s.w)
                if w.dead_until <= s.now:
                    w.dead_until = s.now + r.randrange(5, 60)
                if r.random() < 0.6:
                    for p in s.log:
                        if s.owner.get(p) and s.owner[p][0] == w.id:
                            live = [v for v in s.w if v is not w and v.joined]
                            if live:
                                s.assign(r.choice(live), p)
                return
            if r.random() < 0.002 * (1 + o['reb']):
                s.rebalance()
                return
            if r.random() < 0.0015 * o['wipe']:
                one = r.randrange(SH)
                for h in [one] if r.random() < 0.7 else range(SH):
                    s.master[h].data()
                    s.snap[h] = copy.deepcopy(s.master[h])
                return
            if r.random() < 0.003 * o['failover']:
                h = r.randrange(SH)
                old = s.master[h]
                new = copy.deepcopy(s.snap[h])
                new.life = s.life()
                s.master[h] = new
                old.until = s.now + (o['split'] or 0)
                s.snap[h] = copy.deepcopy(new)
                return
            if r.random() < 0.02:
                h = r.randrange(SH)
                s.snap[h] = copy.deepcopy(s.master[h])
            if o['clock'] and r.random() < 0.001:
                h = r.randrange(SH)
                s.master[h].skew += (
                    r.choice([25, 60, 300, -40]) if o['clock'] == 2 else r.choice([25, 60, 300])
                )
                return
            if r.random() < 0.006 * o['loss']:
                w = r.choice(s.w)
                h = r.randrange(SH)
                if w.pipe[h] and w.dead_until <= s.now:
                    s.cut(w, h)
                return
        # Executes one call of a pipeline that is in flight.
        if s.wire and r.random() < 0.45:
            p = r.choice(s.wire)
            if not p.live and r.random() < 0.8:
                return
            if p.srv is not s.master[sh_of(p)] and (p.srv.until is None or s.now >= p.srv.until):
                s.wire.remove(p)
                p.broken = True
                return
            p.rep.append(
                p.srv.call(
                    p.calls[len(p.rep)], p.ep, s.now, p.exp + s.now if p.exp is not None else None
                )
            )
            if len(p.rep) == len(p.calls):
                s.wire.remove(p)
            return
        w = r.choice(s.w)
        if w.dead_until > s.now:
            return
        w.joined = True
        for p in s.log:
            if s.owner.get(p) is None:
                s.assign(w, p)
        for h in range(SH):
            c = w.conn[h]
            if c is None or (
                c is not s.master[h] and (s.now >= (c.until or 0) or r.random() < 0.03)
            ):
                w.conn[h] = s.master[h]
                if w.pipe[h]:
                    s.cut(w, h)
                if c is not None:
                    s.lost(w, h)
        for h in range(SH):
            if w.ep[h] is None:
                c = w.conn[h]
                off = c.skew
                w.ep[h] = c.enter(s.now + c.skew, off, w.jumped[h])
                w.exp[h] = c.skew
                w.jumped[h] = None
                if R.confirm:
                    # The worker asks Kafka to commit the watermark and waits for the answer. If
                    # Kafka refuses, the worker no longer owns the partition.
                    s.learn(w)
                if R.repair:
                    done = [
                        (p, q)
                        for p, t in w.tracker.items()
                        for q, v in t.items()
                        if v == 'done' and sh(s.log[p][q]) == h
                    ]
                    ok = c.repair(
                        w.ep[h],
                        done,
                        {p: s.commit[p] for p in w.tracker if s.owner[p] == (w.id, w.gen[p])}
                        if R.floor_repair
                        else {},
                        s.now + c.skew,
                    )
                    if not ok:
                        for p, q in done:
                            w.tracker[p].pop(q)
                        for p in w.tracker:
                            w.pos[p] = s.watermark(w, p)
        for h in range(SH):
            p = w.pipe[h]
            if p and len(p.rep) == len(p.calls):
                w.pipe[h] = None
                s.replies(w, h, p.calls, p.rep, p.sent)
                return
            if w.resend[h]:
                calls = w.resend[h]
                w.resend[h] = None
                s.send(w, h, calls)
                return
        if w.late and r.random() < 0.3:
            s.laterepair(w)
            return
        if R.assign_read:
            for p in w.tracker:
                if w.fresh.get(p) != w.gen[p] and all(
                    e is not None and c is not None and c.epoch == e for e, c in zip(w.ep, w.conn)
                ):
                    w.fresh[p] = w.gen[p]
                    if R.meta == 2:
                        for q in s.meta[p]:
                            h = sh(s.log[p][q])
                            if w.conn[h].fin(p, q) or (
                                s.closed_in(p, q, s.meta[p], w)
                                and w.conn[h].repair(w.ep[h], [(p, q)], {}, s.now + w.conn[h].skew)
                            ):
                                w.tracker[p][q] = 'done'
                    for q in range(s.commit[p], len(s.log[p])):
                        if w.conn[sh(s.log[p][q])].fin(p, q):
                            w.tracker[p][q] = 'done'
        act = r.choice(
            [
                'poll',
                'poll',
                'poll',
                'turn',
                'turn',
                'turn',
                'turn',
                'finish',
                'finish',
                'ahead',
                'ahead',
                'tend',
                'watch',
                'renew',
                'renew',
                'renew',
                'renew',
                'docommit',
                'floors',
            ]
        )
        getattr(s, act)(w)

    def sever(s, p):
        p.live = False
        if p in s.wire and not (R.ghost and s.r.random() < 0.5):
            s.wire.remove(p)

    # The connection breaks. Some replies have arrived, the others are lost, and some calls may
    # still execute.
    def cut(s, w, h):
        s.cuts += 1
        p = w.pipe[h]
        w.pipe[h] = None
        got = s.r.randrange(len(p.rep) + 1)
        s.sever(p)
        calls = p.calls[got:]
        if got:
            s.replies(w, h, p.calls[:got], p.rep[:got], p.sent)
        if w.ep[h] is None:
            return
        again = []
        for k, it in calls:
            if k == 'settle' and R.resend != 'same':
                new = []
                for pk, fs, tok, mode, nxt, over in it:
                    hold = w.run.get(pk)
                    if not hold or hold.tok != tok:
                        continue
                    hold.chain.extendleft(reversed(hold.asked))
                    hold.asked = []
                    if R.resend == 'rebuild':
                        hold.items = hold.sent + hold.items
                        hold.sent = []
                        hold.busy = False
                    else:
                        new.append(
                            (
                                pk,
                                fs,
                                tok,
                                'more' if R.resend == 'more' and hold.items else 'drop',
                                [],
                                False,
                            )
                        )
                it = new
            elif k == 'gate' and R.resend == 'rebuild':
                w.pending.extendleft(reversed([m for ms, tok in it for m in ms if s.tracked(w, m)]))
                it = []
            elif k == 'claim' and R.resend == 'rebuild':
                it = []
            if it:
                again.append((k, it))
        w.resend[h] = again or None

    def send(s, w, h, calls):
        p = Pipe(w, w.conn[h], w.ep[h], calls, s.now, w.exp[h])
        p.h = h
        w.pipe[h] = p
        s.wire.append(p)

    def poll(s, w):
        if s.r.random() < 0.3:
            s.learn(w)
        ps = [p for p in w.tracker if w.pos[p] < len(s.log[p])]
        if not ps or len(w.pending) > 8:
            return
        p = s.r.choice(ps)
        for _ in range(s.r.randrange(1, 4)):
            if w.pos[p] >= len(s.log[p]):
                break
            off = w.pos[p]
            w.pos[p] += 1
            pk = s.log[p][off]
            m = (pk, p, off)
            if R.assign_read and w.fresh.get(p) != w.gen[p]:
                w.pos[p] -= 1
                return
            if w.tracker[p].get(off) == 'done':
                continue
            w.tracker[p][off] = 'in'
            w.pending.append(m)

    def turn(s, w):
        h = s.r.randrange(SH)
        if w.pipe[h] or w.resend[h] or w.ep[h] is None:
            return
        if w.confirm:
            s.learn(w)
            w.confirm = False
        calls = []
        busy = set()
        sett = []
        over_ = []
        new_token = lambda: (w.id, s.r.getrandbits(60))
        for pk, hold in w.run.items():
            if sh(pk) != h or hold.busy or s.r.random() > 0.8:
                continue
            if hold.lost:  # an outcome that comes after the hold was lost does not count
                if not any(r.state == 'run' for r in hold.items):
                    over_.append(hold)
                continue
            if any(r.state == 'fin' and r.verdict != 'OK' for r in hold.items) and R.take_back:
                s.takeback(hold)
            s.ready_to_settle(hold)
            k = next((i for i, r in enumerate(hold.items) if r.state != 'fin'), len(hold.items))
            fs, left = hold.items[:k], hold.items[k:]
            if not fs and (left or hold.last is None):
                continue
            over = bool(R.over) and hold.n >= MAXRUN
            room = R.ahead - len(left)
            nxt = []
            v = fs[-1].verdict if fs else hold.last[1]
            if left:
                mode = 'more'
                if hold.kind == 'lane' and room > 0 and left[-1].state != 'fin':
                    nxt = ('heads', left[-1].m, room)
                elif hold.kind == 'fast':
                    nxt = list(hold.chain)[: max(room, 0)]
            elif v in ('OK', 'DEAD') and hold.kind == 'fast' and hold.chain:
                mode = 'keep'
                nxt = list(hold.chain)[: R.ahead]
            else:
                mode = 'next' if s.r.random() < 0.8 else 'drop'
            if hold.kind == 'fast' and nxt:
                for _ in nxt:
                    hold.chain.popleft()
                hold.asked = nxt
            sett.append(
                (pk, [(r.m, r.verdict) for r in fs] or [hold.last], hold.tok, mode, nxt, over)
            )
            hold.sent = fs
            hold.items = left
            hold.busy = True
            hold.void = False
            busy.add(pk)
        for hold in over_:
            hold.chain.extendleft(reversed(s.again(hold, [r.m for r in hold.items])))
            del w.run[hold.pk]
            s.back(w, hold.chain)
        if sett:
            calls.append(('settle', sett))
        batch = []
        rest = deque()
        held = set()
        settling = set(busy)
        gated = {}
        count = 0
        for m in w.pending:
            pk = m[0]
            hold = w.run.get(pk)
            if sh(pk) != h or pk in held or count >= B:
                rest.append(m)
                held.add(pk)
                continue
            run = hold and hold.find(m)
            if R.ident and run:
                # The message already runs in this worker. It is not sent to gate, because the
                # settle of the present run will set the mark of the message.
                if hold.kind == 'lane':
                    s.mark(w, m, 'waiting')
                elif run.state == 'granted' and not run.own and R.orphan_hold:
                    rest.append(m)
                    held.add(pk)
                continue
            if R.ident and hold and (m in hold.chain or m in hold.asked or m in hold.redo):
                continue
            if w.stale.get(pk):
                rest.append(m)
                held.add(pk)
                continue
            if hold and hold.kind == 'fast' and (R.hold_pipe or not hold.busy):
                if len(hold.chain) < 6:
                    hold.chain.append(m)
                else:
                    rest.append(m)
                    held.add(pk)
                continue
            if pk in gated and R.hold:
                if len(gated[pk][0]) < R.ahead:
                    gated[pk][0].append(m)
                    count += 1
                else:
                    rest.append(m)
                    held.add(pk)
                continue
            if (R.hold and pk in busy and not (pk in settling and not R.hold_pipe)) or (
                hold and (hold.dl <= s.now or (hold.busy and R.hold_pipe))
            ):
                rest.append(m)
                held.add(pk)
                continue
            gated[pk] = ([m], new_token())
            batch.append(gated[pk])
            busy.add(pk)
            count += 1
        w.pending = rest
        if batch:
            calls.append(('gate', [(tuple(ms), tok) for ms, tok in batch]))
        srv = w.conn[h]
        hints = []
        for _ in range(2):
            if srv.ready and s.r.random() < 0.6:
                pk = srv.ready.pop()
                if pk in w.run or w.stale.get(pk) or (R.hold and pk in busy):
                    continue
                hints.append((pk, new_token()))
                busy.add(pk)
        if hints:
            calls.append(('claim', hints))
        if calls:
            s.send(w, h, calls)

    def again(s, hold, ms):
        return hold.redo + [m for m in ms if hold.kind == 'fast' and s.tracked(hold.w, m)]

    # If the deadline of a hold has passed and no handler runs, go_on() takes back the messages
    # that have not started.
    def ready_to_settle(s, hold):
        if hold.dl <= s.now and not any(r.state == 'run' for r in hold.items):
            s.go_on(hold)

    def back(s, w, ms):
        w.pending.extendleft(reversed([m for m in ms if s.tracked(w, m)]))

    def replies(s, w, h, calls, rep, sent):
        for (k, items), rs in zip(calls, rep):
            if isinstance(rs, str):
                if rs in ('LOST', 'JUMP'):
                    if rs == 'JUMP':
                        w.jumped[h] = w.ep[h]
                    s.lost(w, h)
                    return
                if k == 'settle':
                    for i in items:
                        hold = w.run.get(i[0])
                        if hold and hold.tok == i[2]:
                            s.answered(hold)
                            hold.items = hold.was + hold.items
                elif k == 'gate':
                    s.back(w, [m for ms, t in items for m in ms])
                continue
            for i, v in zip(items, rs):
                if k == 'gate':
                    s.gated(w, i, v, sent)
                elif k == 'claim':
                    if v[0] == 'NEXT':
                        hold = Hold(w, i[0], i[1], 'lane', sent + TTL)
                        hold.grant(v[1])
                        s.take(hold)
                else:
                    s.settled(w, i, v, sent)

    def take(s, hold):
        if hold.pk in w_run(hold):
            raise Bad('local2 hold')
        w_run(hold)[hold.pk] = hold
        s.grants += len(hold.items) > 1
        if s.r.random() < 0.7:
            s.go_on(hold)

    def gated(s, w, i, vs, sent):
        ms, tok = i
        gs = []
        again = []
        first = None
        for m, v in zip(ms, vs):
            if v[0] == 'DONE':
                s.mark(w, m, 'done')
            elif v[0] == 'WAITING':
                s.mark(w, m, 'waiting')
            elif v[0] == 'AGAIN':
                again.append(m)
            else:
                first = first or (m, v[1], v[2])
                if s.tracked(w, m):
                    gs.append((m, v[1], v[2]))
        again = [m for m in again if s.tracked(w, m)]
        if not first:
            s.back(w, again)
            return
        hold = Hold(w, ms[0][0], tok, 'fast', sent + TTL)
        hold.chain.extend(again)
        if gs:
            hold.grant(gs)
        elif R.kept_empty:
            s.giveback(hold, Run(hold, *first))
        else:
            s.back(w, again)
            return
        s.take(hold)

    def answered(s, hold):
        hold.was = hold.sent
        hold.sent = []
        hold.busy = False
        asked = hold.asked
        hold.asked = []
        hold.chain.extendleft(reversed(asked))
        return asked

    def settled(s, w, i, v, sent):
        pk, fs, tok, mode, nxt, over = i
        hold = w.run.get(pk)
        if not hold or hold.tok != tok or not hold.busy:
            return
        s.answered(hold)
        was = hold.was
        lost = v[0] == 'STALE'
        redo = []
        for n, run in enumerate(was):
            m = run.m
            if run.verdict == 'OK' and not (lost and n and R.stale_first):
                s.mark(w, m, 'done')
            elif run.verdict == 'DEAD' and not lost:
                s.mark(w, m, 'done')
            elif not lost:
                s.mark(w, m, 'waiting')
            elif hold.kind == 'fast' and s.tracked(w, m):
                redo.append(m)
        hold.last = fs[-1]
        if v[0] in ('STALE', 'RELEASED'):
            s.takeback(hold)
            hold.lost = lost and R.stale_first
            if hold.items and hold.lost and R.redo_first:
                hold.redo = redo
            else:
                hold.chain.extendleft(reversed(redo))
            if not hold.items:
                del w.run[pk]
                s.back(w, hold.chain)
            return
        hold.dl = max(hold.dl, sent + TTL)
        if hold.void:
            v = (v[0], [])
        if v[0] == 'NEXT':
            s.back(w, hold.chain)
            hold.chain = deque()
            hold.kind = 'lane'
            hold.n = 0
            hold.grant(v[1])
        elif isinstance(nxt, tuple):
            hold.grant(v[1])
        else:
            if over and not (v[1] and v[1][0][0] == 'AGAIN'):
                hold.n = 0
            for m, a in zip(nxt, v[1]):
                if not hold.chain or hold.chain[0] != m:
                    continue  # the message's partition was revoked while the message waited
                if a[0] == 'SKIP':
                    s.mark(w, hold.chain.popleft(), 'done')
                elif a[0] == 'RUN':
                    hold.chain.popleft()
                    hold.grant([(m, a[1], a[2])])
                else:
                    break
        if s.r.random() < 0.7:
            s.go_on(hold)

    def tend(s, w):
        for h in range(SH):
            if w.ep[h] is not None:
                w.conn[h].tend(w.ep[h], s.now)

    def renew(s, w):
        for pk, hold in w.run.items():
            c = w.conn[sh(pk)]
            if c is None or c.epoch != w.ep[sh(pk)]:
                continue
            l = c.alive(pk, s.now + c.skew)
            if l and l[0] == hold.tok and hold.dl > s.now:
                c.lock[pk] = (hold.tok, s.now + c.skew + TTL)
                hold.dl = s.now + TTL

    def watch(s, w):
        h = s.r.randrange(SH)
        c = w.conn[h]
        if w.ep[h] is None:
            return
        if c.epoch != w.ep[h]:
            s.lost(w, h)
            return
        for p, t in w.tracker.items():
            for off, st in t.items():
                if st == 'waiting' and sh(s.log[p][off]) == h and c.fin(p, off):
                    t[off] = 'done'

    def docommit(s, w):
        s.learn(w)
        for p in list(w.tracker):
            c = s.watermark(w, p)
            for o in range(s.commit[p], c):
                if (p, o) not in s.first:
                    raise Bad(f'watermark passed unfinished {p}:{o}')
                if (p, o) not in s.ids and (p, o) not in s.deadset:
                    raise Bad(f'lostfenced: {p}:{o} committed, store never took it')
            s.commit[p] = c
            w.floors[p] = c
            s.meta[p] = [o for o, v in w.tracker[p].items() if o >= c and v == 'done']

    def floors(s, w):
        for p, f in w.floors.items():
            h = s.r.randrange(SH)
            if w.ep[h] is not None and w.conn[h].epoch == w.ep[h]:
                w.conn[h].setfloor(p, f)

    def go(s):
        for i in range(s.o['steps']):
            s.step()
        s.faults = False
        t0 = s.now
        for i in range(60000):
            if i % 50 == 0 and all(s.commit[p] == len(s.log[p]) for p in s.log):
                break
            s.step()
        s.tail = s.now - t0
        if any(s.commit[p] != len(s.log[p]) for p in s.log):
            raise Bad(f'stuck commits {s.commit}')
        if s.o['deadkept']:
            kept = {(d[1], d[2]) for r in s.master for d in r.dead}
            gone = [k for k in s.deadset if k not in kept and k not in s.ids]
            if gone:
                raise Bad(f'deadletters {len(gone)} of {len(s.deadset)} gone')
        bad = [k for k, v in s.order.items() if v != sorted(v)]
        if bad:
            raise Bad(f'order broken on {bad[0]}: {s.order[bad[0]]}')
        if s.o['conv']:
            for k, v in s.eff.items():
                if k[1] in s.taint:
                    continue
                last = {o: i for i, o in enumerate(v)}
                q = [last[o] for o in sorted(last)]
                if q != sorted(q):
                    raise Bad(f'converge: {k} effects {v}')
        for i in range(4000):
            s.step()
        for r in s.master:
            if r.wait or r.lanes:
                raise Bad(f'leak lanes {dict(r.wait)} {r.lanes}')
            low = [k for k in r.state if k[1] < r.floor.get(k[0], 0) // SEG * SEG]
            if low:
                raise Bad(f'leak segment {low}')
            if r.tries:
                raise Bad(f'leak tries {r.tries}')


def w_run(hold):
    return hold.w.run


def sh_of(p):
    return p.h


MODES = dict(
    calm=dict(),
    loss=dict(loss=1),
    crash=dict(crash=1, loss=1),
    zombie=dict(crash=1, pause=1, loss=1),
    wipe=dict(wipe=1),
    wipeloss=dict(wipe=1, loss=1),
    failover=dict(failover=1, loss=1),
    all=dict(crash=1, pause=1, wipe=1, failover=1, loss=1),
)
EXTRA = dict(
    late=dict(crash=1, pause=1, loss=1, kill=1),
    churn=dict(reb=5, loss=5, pause=1, kill=1),
    split=dict(failover=1, split=30),
    clock=dict(clock=1),
    clock2=dict(clock=2),
)


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    modes = sys.argv[2].split(',') if len(sys.argv) > 2 and '=' not in sys.argv[2] else list(MODES)
    over = {}
    for a in sys.argv[2:]:
        if '=' in a:
            k, v = a.split('=')
            if k in RULES:
                setattr(R, k, v if isinstance(RULES[k], str) else int(v))
            else:
                over[k] = int(v)
    for name in modes:
        o = dict({**MODES, **EXTRA}[name], n=100, steps=16000, conv=1, deadkept=0)
        o.update(over)
        bad = defaultdict(int)
        ex = {}
        dups = rer = tail = orp = cuts = ah = gr = 0
        t0 = time.time()
        global SIM
        for seed in range(n):
            s = SIM = Sim(seed, o)
            try:
                s.go()
                tail += s.tail
            except Bad as e:
                k = str(e).split(' ')[0]
                bad[k] += 1
                ex.setdefault(k, (seed, str(e)))
            dups += s.dups
            rer += s.rerun
            orp += s.orphans
            cuts += s.cuts
            ah += s.aheads
            gr += s.grants
        print(
            f'{name:8} runs {n} dups {dups} reruns-of-done {rer} ahead {ah} cuts {cuts} orphan-locks {orp} tail {tail // n} bad {dict(bad)} {ex} {time.time() - t0:.0f}s',
            flush=True,
        )


if __name__ == '__main__':
    main()
