/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share. A target is one file that defines LLVMFuzzerTestOneInput() for
 * libFuzzer. Input comes from a peer that nobody trusts, so a target may do anything with it but
 * crash, read outside of it, or break the property that the target checks. */
#ifndef LW_TESTS_FUZZ_H
#define LW_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program, so that libFuzzer keeps the input, if a property does not hold. */
#define HOLDS(property)                                                                   \
    do {                                                                                  \
        if (!(property)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #property); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

#endif
