# SPDX-License-Identifier: Apache-2.0
# The limits: bare programs that set an upper limit for any queue. `make limits` builds them.
ifndef LIMITS # the rules count once, however many files include this one
LIMITS := $(addprefix $(B)/bench/limits/,read setdel scripts sqlite insert offer post)
LIMITLIB := $(addprefix $(B)/bench/limits/,tool.o loop.o calls.o)

.PHONY: limits
##@ Benchmarks
## limits: build the bare programs that show the limits
limits: $(LIMITS)
$(LIMITS): $(B)/%: $(B)/%.o $(LIMITLIB) $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $(filter %.o %.a,$^) $(LIBS)

-include $(wildcard $(B)/bench/limits/*.d)
endif
