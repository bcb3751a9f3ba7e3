/* SPDX-License-Identifier: Apache-2.0 */
/* Contains a definition for clang's static analyzer only (make tidy). The analyzer cannot follow
 * how uthash removes an element from a table, and reports the remaining elements as freed memory.
 * With this definition the analyzer sees a table as a plain list. */
#include <uthash.h>
#undef HASH_DEL
#undef HASH_DELETE
#define HASH_DELETE(hh, head, del) ((head) = (del)->hh.next)
#define HASH_DEL(head, del) HASH_DELETE(hh, head, del)
