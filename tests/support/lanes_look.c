/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the data in Redis after a call of a lane script, for a test. */
#include "tests/support/lanes.h"

#include "queue/codes.h"
#include "queue/envelope.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisReply *reply_of(redisContext *c, void *r) {
    if (!r) fail_msg("redis: %s", c->errstr);
    return r;
}

static size_t identity(struct lw_bytes in, char *out, size_t size) {
    struct lw_envelope e;
    struct lw_err err = {0};
    if (lw_envelope_decode(in, &e, &err) != 0) fail_msg("envelope: %s", err.text);
    int n = snprintf(out, size, "%d/%" PRId64, e.partition, e.offset);
    lw_envelope_clear(&e);
    return (size_t)n;
}

const char *lt_heads(struct lt *l, int i) {
    size_t n = 0;
    l->text[0] = '\0';
    for (int k = 0; k < l->item[i].n_heads; k++) {
        if (n) l->text[n++] = ' ';
        n += identity(lt_head_bytes(l, i, k), l->text + n, sizeof l->text - n);
    }
    return l->text;
}

static redisReply *admin(struct lt *l, const char *fmt, va_list ap) {
    redisReply *r = reply_of(l->admin, redisvCommand(l->admin, fmt, ap));
    if (r->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", fmt, r->str);
    return r;
}

int64_t lt_int(struct lt *l, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    redisReply *r = admin(l, fmt, ap);
    va_end(ap);
    if (r->type != REDIS_REPLY_INTEGER) fail_msg("%s: not a number", fmt);
    int64_t n = r->integer;
    freeReplyObject(r);
    return n;
}

const char *lt_text(struct lt *l, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    redisReply *r = admin(l, fmt, ap);
    va_end(ap);
    const char *s =
        r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS ? r->str : "(nil)";
    snprintf(l->text, sizeof l->text, "%s", s);
    freeReplyObject(r);
    return l->text;
}

int64_t lt_now_ms(struct lt *l) {
    redisReply *r = reply_of(l->admin, redisCommand(l->admin, "TIME"));
    int64_t ms = atoll(r->element[0]->str) * 1000 + atoll(r->element[1]->str) / 1000;
    freeReplyObject(r);
    return ms;
}

int lt_state(struct lt *l, struct lt_msg m) {
    char key[300];
    snprintf(key, sizeof key, LT_TAG "state:%s:%d:%" PRId64, m.topic, m.partition,
             m.offset / LW_SEGMENT);
    redisReply *r = reply_of(l->admin, redisCommand(l->admin, "BITFIELD %s GET u2 #%d", key,
                                                    (int)(m.offset % LW_SEGMENT)));
    assert_int_equal(r->type, REDIS_REPLY_ARRAY);
    int state = (int)r->element[0]->integer;
    freeReplyObject(r);
    return state;
}

void lt_set_state(struct lt *l, struct lt_msg m, int state) {
    char key[300];
    snprintf(key, sizeof key, LT_TAG "state:%s:%d:%" PRId64, m.topic, m.partition,
             m.offset / LW_SEGMENT);
    lt_text(l, "BITFIELD %s SET u2 #%d %d", key, (int)(m.offset % LW_SEGMENT), state);
}

const char *lt_waiting(struct lt *l, struct lt_msg m) {
    redisReply *r = reply_of(
        l->admin, redisCommand(l->admin, "LRANGE " LT_TAG "wait:%b 0 -1", m.lane.p, m.lane.n));
    size_t n = 0;
    l->text[0] = '\0';
    for (size_t i = r->elements; i > 0; i--) {
        if (n) l->text[n++] = ' ';
        n += identity(lw_bytes(r->element[i - 1]->str, r->element[i - 1]->len), l->text + n,
                      sizeof l->text - n);
    }
    freeReplyObject(r);
    return l->text;
}

const char *lt_lock(struct lt *l, struct lt_msg m) {
    lt_text(l, "GET " LT_TAG "lock:%b", m.lane.p, m.lane.n);
    l->text[strcspn(l->text, ":")] = '\0';
    return l->text;
}
void lt_free_lock(struct lt *l, struct lt_msg m) {
    lt_int(l, "DEL " LT_TAG "lock:%b", m.lane.p, m.lane.n);
}

static const char dump_script[] =
    "local exact, keys, out = ARGV[1] == '1', redis.call('KEYS', '*'), {}\n"
    "table.sort(keys)\n"
    "local function pairs_of(flat) local t = {} for i = 1, #flat, 2 do t[#t + 1] = flat[i] .. '=' "
    ".. flat[i + 1] end return t end\n"
    "for _, k in ipairs(keys) do\n"
    "  local kind, v = redis.call('TYPE', k).ok, nil\n"
    "  if kind == 'string' then v = redis.call('GET', k)\n"
    "    if not exact and string.find(k, '}:lock:', 1, true) then v = string.gsub(v, ':%d+$', '') "
    "end\n"
    "    v = {v}\n"
    "  elseif kind == 'hash' then v = pairs_of(redis.call('HGETALL', k)) table.sort(v)\n"
    "  elseif kind == 'list' then v = redis.call('LRANGE', k, 0, -1)\n"
    "  elseif kind == 'set' then v = redis.call('SMEMBERS', k) table.sort(v)\n"
    "  elseif kind == 'zset' then v = pairs_of(redis.call('ZRANGE', k, 0, -1, 'WITHSCORES'))\n"
    "    if not exact then v = redis.call('ZRANGE', k, 0, -1) end table.sort(v)\n"
    "  else v = {} for _, e in ipairs(redis.call('XRANGE', k, '-', '+')) do v[#v + 1] = e[1] .. ' "
    "' .. table.concat(e[2], ' ') end end\n"
    "  if exact or string.sub(k, -7) ~= '}:fence' then\n"
    "    out[#out + 1] = k .. ' ' .. kind .. (redis.call('PTTL', k) >= 0 and ' expires ' or ' ') "
    ".. table.concat(v, ' | ')\n"
    "  end\n"
    "end\n"
    "return table.concat(out, '\\n')\n";

/* Writes bytes as printable text, because values of states and names of lanes may contain any
 * bytes. */
static char *printable(const char *p, size_t n) {
    struct lw_buf b = {0};
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\n' || (p[i] >= ' ' && p[i] < 127))
            lw_buf_add(&b, p + i, 1);
        else
            lw_buf_addf(&b, "\\%02x", (unsigned)(unsigned char)p[i]);
    }
    lw_buf_add(&b, "", 1);
    return b.p;
}

char *lt_dump(struct lt *l, bool exact) {
    redisReply *r = reply_of(l->admin, redisCommand(l->admin, "EVAL %s 0 %d", dump_script, exact));
    if (r->type != REDIS_REPLY_STRING) fail_msg("dump: %s", r->str ? r->str : "?");
    char *text = printable(r->str, r->len);
    freeReplyObject(r);
    return text;
}

void lt_assert_unchanged(struct lt *l, char *before, bool exact) {
    char *after = lt_dump(l, exact);
    if (strcmp(before, after) != 0) {
        fprintf(stderr, "%s changed what is stored. Before:\n%s\nafter:\n%s\n", l->script->name,
                before, after);
        fail();
    }
    free(before);
    free(after);
}
