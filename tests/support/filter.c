/* SPDX-License-Identifier: Apache-2.0 */
/* If the variable LW_TEST is set, a test program runs only the tests of this name. The name may
 * contain * and ?. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

__attribute__((constructor)) static void take_filter(void) {
    const char *name = getenv("LW_TEST");
    if (name) cmocka_set_test_filter(name);
}
