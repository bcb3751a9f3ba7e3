# SPDX-License-Identifier: Apache-2.0
# Figures of the lock library: `make bench-locks` takes about a minute. LOCKS contains more options
# of bench/locks/locks.py.
LOCKBENCH := $(B)/bench/locks/locks

$(LOCKBENCH): $(B)/bench/locks/locks.o $(B)/bench/scripts.gen.o $(LOCKLIB)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $^ $(LIBS)

.PHONY: bench-locks
##@ Benchmarks
## bench-locks: measure the lock library, about a minute
bench-locks: $(LOCKBENCH)
	@bench/locks/locks.py --build $(B) $(LOCKS)

-include $(wildcard $(B)/bench/locks/*.d)
