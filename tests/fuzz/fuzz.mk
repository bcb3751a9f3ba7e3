# SPDX-License-Identifier: Apache-2.0
# make fuzz runs each fuzz target (tests/fuzz/fuzz_*.c) on its corpus for FUZZ_S seconds, with
# libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, in a build of its own with clang. make
# CC=clang asan (CI) runs them in its build, where libFuzzer sees the coverage of the targets alone,
# with inputs that are the same in each run: a change must not fail by chance.
FUZZ_S ?= 10
FUZZ := $(patsubst %.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))
$(FUZZ:=.o): LW_CFLAGS += -fsanitize=fuzzer-no-link
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
## check-fuzz: the same in the build folder as it is (FUZZ_S=20000x: as many inputs, the same in each run)
check-fuzz: $(FUZZ)
	@tests/fuzz/run.py $(B) $(FUZZ_S)

-include $(wildcard $(B)/tests/fuzz/*.d)
