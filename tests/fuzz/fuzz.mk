# SPDX-License-Identifier: Apache-2.0
# make fuzz runs each fuzz target (tests/fuzz/fuzz_*.c) on its corpus for FUZZ_S seconds, with
# libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, in a build of its own with clang.
FUZZ_S ?= 10
FUZZ := $(patsubst %.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))
$(FUZZ): $(B)/%: $(B)/%.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -fsanitize=fuzzer -o $@ $(filter %.o %.a,$^) $(LIBS)

.PHONY: fuzz check-fuzz
##@ Tests
## fuzz: run each fuzz target for FUZZ_S seconds (default 10) on its corpus, which grows in build/fuzz
fuzz:
	@+$(MAKE) --no-print-directory B=$(B)/fuzz CC=clang CFLAGS="-O1 -g" \
	    SAN="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined" \
	    FUZZ_S=$(FUZZ_S) check-fuzz
## check-fuzz: the same in the build folder as it is (fuzz makes a build of its own)
check-fuzz: $(FUZZ)
	@tests/fuzz/run.py $(B) $(FUZZ_S)

-include $(wildcard $(B)/tests/fuzz/*.d)
