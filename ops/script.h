/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the scripts that operators' commands use. They are embedded from ops/lua/. The comment
 * at the top of each script lists its arguments and its result. Workers never load these scripts.
 * The exporter uses `heads` and `fleet`, the ledger uses `lines`, and `check --connect` uses
 * `rights`. */
#ifndef LW_OPS_SCRIPT_H
#define LW_OPS_SCRIPT_H

#include "base/redis/script.h"

enum { LW_OPS = 13 };
extern const struct lw_script *const lw_ops[LW_OPS];
extern const struct lw_script lw_op_look, lw_op_page, lw_op_put, lw_op_drop, lw_op_wake, lw_op_job,
    lw_op_edit, lw_op_heads, lw_op_lines, lw_op_rights, lw_op_fleet, lw_op_limits, lw_op_groups;

#endif
