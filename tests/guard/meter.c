/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/guard/meter.h"

#include <assert.h>
#include <stdlib.h>

#include <valgrind/callgrind.h>

static bool is_on, inside;
static uint64_t allocations;

void meter_turn(bool on) {
    assert(!inside);
    is_on = on;
    /* Instrument only the measured part of a run, because callgrind makes instrumented code
     * slow. */
    if (on)
        CALLGRIND_START_INSTRUMENTATION;
    else
        CALLGRIND_STOP_INSTRUMENTATION;
}

/* Makes callgrind count instructions from here on, just before the worker's code runs.
 * meter_leave() stops the count just after that code. */
void meter_enter(void) {
    assert(!inside);
    inside = true;
    if (is_on) CALLGRIND_TOGGLE_COLLECT;
}

void meter_leave(void) {
    if (is_on) CALLGRIND_TOGGLE_COLLECT;
    assert(inside);
    inside = false;
}

uint64_t meter_allocations(void) { return allocations; }

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static void note(void) {
    if (is_on && inside) allocations++;
}

void *__wrap_malloc(size_t n) {
    note();
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size) {
    note();
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n) {
    note();
    return __real_realloc(p, n);
}
