/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork reference`, which writes the generated pages of the
 * documentation, for `make reference` and the tests. */
#ifndef LW_CLI_REFERENCE_REFERENCE_H
#define LW_CLI_REFERENCE_REFERENCE_H

#include "cli/options.h"

extern const struct cli_command cli_reference;

#endif
