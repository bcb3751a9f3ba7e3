/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks. Leases are counted on the boot-time clock, which goes on through suspend; only what people read uses wall time. */
#ifndef LW_BASE_CLOCK_H
#define LW_BASE_CLOCK_H

#include <stdint.h>

int64_t lw_boot_ms(void); /* CLOCK_BOOTTIME in ms; never goes back, counts through suspend */
int64_t lw_boot_us(void);
int64_t lw_wall_ms(void); /* CLOCK_REALTIME in ms since 1970; may jump */
void lw_sleep_ms(int64_t ms);

#endif
