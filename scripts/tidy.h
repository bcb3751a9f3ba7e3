/* SPDX-License-Identifier: Apache-2.0 */
/* For clang's analyzer only (make tidy): it cannot follow how uthash unlinks an element, and then takes the rest of a table for freed
 * memory. With this definition a table is a list from its head on. */
#include <uthash.h>
#undef HASH_DEL
#undef HASH_DELETE
#define HASH_DELETE(hh, head, del) ((head) = (del)->hh.next)
#define HASH_DEL(head, del) HASH_DELETE(hh, head, del)
