/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the worker's own code without the fakes around it: allocations are counted, and under
 * callgrind instructions are collected, only between meter_enter() and meter_leave(), and only
 * while the meter is on.
 *
 * A caller of the worker's code calls meter_enter() before and meter_leave() after it. A function
 * that the worker calls back (struct lw_io) first calls meter_leave(), and calls meter_enter()
 * again before it returns. The program is linked with --wrap of malloc, calloc and realloc, and has
 * one thread. */
#ifndef LW_TESTS_GUARD_METER_H
#define LW_TESTS_GUARD_METER_H

#include <stdbool.h>
#include <stdint.h>

void meter_turn(bool on); /* turns the meter on or off; call it only outside the worker's code */
void meter_enter(void);
void meter_leave(void);
uint64_t meter_allocations(void);

#endif
