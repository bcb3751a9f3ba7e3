/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker's own code does, told apart from the fakes around it: allocations are counted, and under callgrind instructions are
 * collected, only between meter_enter() and meter_leave(), and only while the meter is on.
 *
 * Whoever calls into the worker enters; a function that the worker calls back (struct lw_io) leaves first and enters again before it
 * returns. The program is linked with --wrap of malloc, calloc and realloc. One thread. */
#ifndef LW_TESTS_GUARD_METER_H
#define LW_TESTS_GUARD_METER_H

#include <stdbool.h>
#include <stdint.h>

void meter_turn(bool on); /* outside the worker's code only */
void meter_enter(void);
void meter_leave(void);
uint64_t meter_allocations(void);

#endif
