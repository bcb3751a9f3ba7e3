/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks. Leases are counted on the boot clock, which keeps counting while the machine is
 * suspended. Wall time is only for people. */
#ifndef LW_BASE_CLOCK_H
#define LW_BASE_CLOCK_H

#include <stdint.h>

/* returns the time on CLOCK_BOOTTIME in ms; this clock never goes back, and keeps counting during
 * suspend */
int64_t lw_boot_ms(void);
int64_t lw_boot_us(void);
/* returns the milliseconds since 1970 on CLOCK_REALTIME; this clock may jump */
int64_t lw_wall_ms(void);
int64_t lw_wall_us(void);
void lw_sleep_ms(int64_t ms);
/* Returns a random number below `below`, for pauses that must not end together; not for secrets. */
uint64_t lw_random(uint64_t below);

/* Returns how long to wait until a time on the boot clock, at least 1 ms. */
int lw_ms_until(int64_t until_ms);
/* Returns the earlier of two times. */
static inline int64_t lw_earlier(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
