# SPDX-License-Identifier: Apache-2.0
"""Common parts of the live tests: servers, the program under test, the journal and the oracles. The
numbers of oracles, O1 to O6, are those of doc/design/faults.md."""
