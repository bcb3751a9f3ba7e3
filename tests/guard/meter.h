/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the worker's own code without the fakes around it. The meter counts allocations. If the
 * program runs under callgrind, the meter makes callgrind count instructions too. Both are counted
 * only between meter_enter() and meter_leave(), and only while the meter is on.
 *
 * A caller of the worker's code calls meter_enter() before and meter_leave() after it. A callback
 * that the worker's code calls (struct lw_io) calls meter_leave() first, and meter_enter() before
 * it returns. The program has one thread, and is linked with --wrap for malloc, calloc and
 * realloc. */
#ifndef LW_TESTS_GUARD_METER_H
#define LW_TESTS_GUARD_METER_H

#include <stdbool.h>
#include <stdint.h>

/* Turns the meter on or off. Must not be called between meter_enter() and meter_leave(). */
void meter_turn(bool on);
void meter_enter(void);
void meter_leave(void);
uint64_t meter_allocations(void);

#endif
