# SPDX-License-Identifier: Apache-2.0
# The benchmark: `make bench` takes at most 15 minutes. `make bench-full` measures everything, and
# continues where an earlier run stopped. BENCH contains more options of bench/run.py.
BENCHTOOLS := $(if $(shell command -v go),$(B)/bench/go) $(B)/bench/naive $(B)/bench/judge \
    $(B)/bench/writer $(B)/bench/answer $(B)/bench/web $(B)/bench/bench.so $(B)/bench/batch.so \
    $(B)/tests/tools/kafkatool

BENCH_LUA := $(sort $(wildcard bench/lua/*.lua))
$(B)/bench/scripts.gen.c: $(BENCH_LUA) bench/scripts.h scripts/embed-lua.sh bench/bench.mk
	@mkdir -p $(@D)
	@scripts/embed-lua.sh bench/scripts.h bench_script_ bench/lua /dev/null $(BENCH_LUA) > $@.tmp && \
	    mv $@.tmp $@
$(B)/bench/scripts.gen.o: %.o: %.c
	$(call say,CC,$<)
	$(Q)$(CC) $(ALLFLAGS) -MMD -MP -c -o $@ $<

$(B)/bench/writer: $(B)/bench/writer.o $(B)/bench/writer_postgres.o $(B)/bench/journal.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $(filter %.o %.a,$^) $(LIBS)
$(B)/bench/naive: $(B)/bench/%: $(B)/bench/%.o $(B)/bench/journal.o $(B)/bench/scripts.gen.o
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $^ $(LIBS)
$(B)/bench/judge $(B)/bench/answer $(B)/bench/web: $(B)/bench/%: $(B)/bench/%.o
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $^
$(B)/bench/batch.so: BENCH_FLAGS = -DBENCH_BATCH_MAX=64
$(B)/bench/bench.so $(B)/bench/batch.so: bench/plugin/bench.c bench/journal.c bench/journal.h \
    include/latchwork/handler.h $(B)/flags.mk
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALLFLAGS) $(BENCH_FLAGS) -shared -fPIC -o $@ bench/plugin/bench.c bench/journal.c \
	    -lpthread

$(B)/bench/go: bench/go/main.go bench/go/go.mod sdk/go/latchwork.go
	$(call say,GO)
	$(Q)cd bench/go && go build -o $(abspath $@) .

# bench/limits/limits.mk builds the bare programs
include bench/limits/limits.mk
# bench/locks/locks.mk measures the lock library
include bench/locks/locks.mk

.PHONY: bench bench-full bench-first bench-pages bench-tools
##@ Benchmarks
## bench-tools: build the benchmark's programs
bench-tools: all $(BENCHTOOLS) $(LIMITS)
## bench: measure this program, a naive loop and the bare limits, at most 15 minutes
bench: bench-tools
	@bench/run.py --build $(B) $(BENCH)
## bench-full: measure everything, for hours; goes on where it stopped
bench-full: bench-tools
	@[ ! -x bench/parallel/run.sh ] || \
	    LW_PARALLEL_OUT=$(abspath $(B))/bench/parallel bench/parallel/run.sh build
	@bench/run.py --build $(B) --full $(BENCH)
## bench-first: measure 1,000,000 messages against the naive loop, to compare two builds
bench-first: bench-tools
	@bench/first.py --build $(B) $(BENCH)

## bench-pages: measure what ten open pages cost a fleet that works, in some five minutes
bench-pages: all $(B)/bench/bench.so $(B)/tests/tools/kafkatool
	@bench/pages.py $(B) $(BENCH)

tests: $(B)/bench/judge # tests/cli/test_judge.sh

-include $(wildcard $(B)/bench/*.d)
