/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the loops of uthash and jansson for cppcheck, which does not read the headers of these
 * libraries. `make lint` includes this file in every file that cppcheck reads. */
#ifndef LW_SCRIPTS_CPPCHECK_H
#define LW_SCRIPTS_CPPCHECK_H

#define HASH_ITER(hh, head, el, tmp) for (el = head, tmp = head; el; el = tmp)
#define json_object_foreach(object, key, value) \
    for (key = first_key(object); (value = value_of(object, key)); key = next_key(object))
#define json_array_foreach(array, index, value) \
    for (index = 0; (value = json_array_get(array, index)); index++)

#endif
