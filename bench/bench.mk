# The benchmark: make bench (at most 15 minutes), make bench-full (everything, goes on where it stopped). BENCH: more options of bench/run.py
BENCHTOOLS := $(B)/bench/naive $(B)/bench/judge $(B)/bench/writer $(B)/bench/bench.so $(B)/tests/tools/kafkatool

$(B)/bench/naive $(B)/bench/writer: $(B)/bench/%: $(B)/bench/%.o $(B)/bench/journal.o
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $^ $(LIBS)
$(B)/bench/judge: $(B)/bench/judge.o
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $^
$(B)/bench/bench.so: bench/plugin/bench.c bench/journal.c bench/journal.h include/latchwork/handler.h $(B)/flags.mk
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALLFLAGS) -shared -fPIC -o $@ bench/plugin/bench.c bench/journal.c -lpthread

# the bare programs, in a folder of their own
include bench/limits/limits.mk
# the lock library
include bench/locks/locks.mk

.PHONY: bench bench-full bench-first bench-tools
bench-tools: all $(BENCHTOOLS) $(LIMITS)
bench: bench-tools
	@bench/run.py --build $(B) $(BENCH)
bench-full: bench-tools
	@[ ! -x bench/parallel/run.sh ] || LW_PARALLEL_OUT=$(abspath $(B))/bench/parallel bench/parallel/run.sh build
	@bench/run.py --build $(B) --full $(BENCH)
# 1,000,000 messages through real Kafka and one Redis, against a loop that locks one message at a time
bench-first: bench-tools
	@bench/first.py --build $(B) $(BENCH)

tests: $(B)/bench/judge # tests/cli/test_judge.sh

-include $(wildcard $(B)/bench/*.d)
