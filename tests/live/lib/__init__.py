# SPDX-License-Identifier: Apache-2.0
"""The parts that the live tests share: servers, the program under test, the journal and the oracles.
Oracles have the numbers O1 to O6 of doc/design/faults.md."""
