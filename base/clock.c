/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "base/random.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

static int64_t read_us(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t lw_boot_us(void) { return read_us(CLOCK_BOOTTIME); }
int64_t lw_boot_ms(void) { return lw_boot_us() / 1000; }
int64_t lw_wall_us(void) { return read_us(CLOCK_REALTIME); }
int64_t lw_wall_ms(void) { return lw_wall_us() / 1000; }

void lw_sleep_ms(int64_t ms) {
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
    while (nanosleep(&ts, &ts) == -1 && errno == EINTR) continue;
}

int lw_ms_until(int64_t until_ms) {
    int64_t ms = until_ms - lw_boot_ms();
    return ms < 1 ? 1 : (int)ms;
}

uint64_t lw_random(uint64_t below) {
    static _Thread_local uint64_t state;
    if (!state && getrandom(&state, sizeof state, 0) != sizeof state)
        state = (uint64_t)lw_boot_us();
    uint64_t next = lw_random_next(&state);
    return below ? next % below : 0;
}
