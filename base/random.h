/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that must be unique or evenly spread, but need not be secret. */
#ifndef LW_BASE_RANDOM_H
#define LW_BASE_RANDOM_H

#include <stdint.h>

/* Returns the next number of a generator, by the algorithm splitmix64 (Steele, Lea, Flood 2014),
 * and advances the generator's state. Not thread-safe. */
static inline uint64_t lw_random_next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

#endif
