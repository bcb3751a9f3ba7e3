"""What the live tests share: servers, the program under test, the journal and the oracles (see FAULTS: O1 to O6)."""
