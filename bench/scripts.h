/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the scripts of the programs that the benchmark compares with Latchwork. They are
 * embedded from bench/lua/. */
#ifndef LW_BENCH_SCRIPTS_H
#define LW_BENCH_SCRIPTS_H

#include "base/redis/script.h"

enum { BENCH_SCRIPTS = 3 };
extern const struct lw_script *const bench_scripts[BENCH_SCRIPTS];
extern const struct lw_script bench_script_bare_drop, bench_script_bare_take,
    bench_script_naive_release;

#endif
