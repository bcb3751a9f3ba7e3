# SPDX-License-Identifier: Apache-2.0
# Builds and runs the tests. The targets test (in the Makefile), check and check-live share all of
# them; check-all runs them together, with all mutants. The target check-pure runs those that start
# no server but redis-server; the sanitizers use it.
TESTLIBS = -lcmocka
LUA51_CFLAGS = $(shell pkg-config --cflags lua5.1)
LUA51_LIBS = $(shell pkg-config --libs lua5.1)

UNIT := $(patsubst %.c,$(B)/%,$(wildcard tests/unit/*/test_*.c))
SERVERTEST := $(patsubst %.c,$(B)/%,$(wildcard tests/server/test_*.c))
LUATEST := $(patsubst %.c,$(B)/%,$(wildcard tests/lua/test_*.c))
LOCKTEST := $(patsubst %.c,$(B)/%,$(wildcard tests/lock/test_*.c))
TESTSUP := $(patsubst %.c,$(B)/%.o,$(wildcard tests/support/*.c))
PRELOADS := $(patsubst %.c,$(B)/%.so,$(wildcard tests/preload/*.c))
TOOLS := $(patsubst %.c,$(B)/%,$(wildcard tests/tools/*.c))
SIMOBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/sim/*.c tests/sim/*/*.c))
# In tests/sim, each sim_*.c has a main() and becomes a program. The programs share the other
# sources.
SIMMAIN := $(filter $(B)/tests/sim/sim_%.o,$(SIMOBJ))
SIMLIB := $(filter-out $(SIMMAIN),$(SIMOBJ))
SIM := $(SIMMAIN:.o=)
GUARDOBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/guard/*.c))
GUARD := $(B)/tests/guard/guard

$(SIMOBJ): LW_CFLAGS += $(LUA51_CFLAGS)
$(UNIT) $(SERVERTEST) $(LUATEST) $(LOCKTEST): $(B)/%: $(B)/%.o $(TESTSUP) $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $(filter %.o %.a,$^) $(TESTLIBS) $(LIBS)
# Tests preload these libraries into servers. The libraries are never built with sanitizers.
$(B)/tests/preload/%.so: tests/preload/%.c $(B)/flags.mk
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -std=c17 $(WARN) $(WERROR) -D_GNU_SOURCE -O1 -shared -fPIC -fvisibility=hidden -o $@ $<
# This program makes allocations fail, also those of hiredis. Therefore hiredis is linked
# statically.
$(B)/tests/lock/test_lock_chaos: TESTLIBS = -lcmocka -l:libhiredis.a \
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=strdup,--wrap=strndup
# This program stops the pool's clock.
$(B)/tests/unit/consumer/test_pool_chain: TESTLIBS = -lcmocka -Wl,--wrap=lw_boot_us
# This program opens a plugin in C++. The sanitizers of clang only know of exceptions if the C++
# library is there from the start.
$(B)/tests/unit/handlers/test_plugin: TESTLIBS = -lcmocka -Wl,--no-as-needed -lstdc++ \
    -Wl,--as-needed
$(B)/tests/lock/test_redlock $(B)/tests/lock/test_redlock_chaos: | \
    $(B)/tests/preload/jumping_clock.so
$(TOOLS): $(B)/%: $(B)/%.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $(filter %.o %.a,$^) $(LIBS)
$(SIM): $(B)/%: $(B)/%.o $(SIMLIB) $(B)/tests/support/redis_server.o \
    $(B)/tests/support/server_process.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -o $@ $(filter %.o %.a,$^) $(LUA51_LIBS) $(LIBS)
# The guard is built without debug information, because valgrind 3.19 can't read that of clang.
# Functions keep their names.
$(GUARD): $(GUARDOBJ) $(filter $(B)/tests/sim/redis/%,$(SIMLIB)) $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) -Wl,-S,--wrap=malloc,--wrap=calloc,--wrap=realloc -o $@ \
	    $(filter %.o %.a,$^) $(LUA51_LIBS) $(LIBS)

.PHONY: check check-live check-all check-quick check-mutants check-pure check-tsan check-unit \
    check-server check-lua check-lock check-sim check-guard check-cli check-browser screenshots \
    tests tests-tsan
##@ Tests
## tests: build the test programs
tests: all $(UNIT) $(SERVERTEST) $(LUATEST) $(LOCKTEST) $(SIM) $(GUARD) $(TOOLS) $(PRELOADS)
## check-quick: run what make test runs, without installing packages
check-quick: tests
	tests/run.sh quick $(B)
## check: run what make test leaves out and needs no Kafka: server, lock, guard, cli, 136 more seeds
check: tests
	@scripts/deps.sh check
	tests/run.sh check $(B)
## check-live: run the tests on Kafka, in Chromium, with PostgreSQL and the SDKs
check-live: tests
	@scripts/deps.sh check
	@scripts/deps.sh browser
	tests/run.sh check-live $(B)
## check-mutants: try each known wrong variant of the protocol against the simulation
check-mutants: tests
	tests/run.sh mutants $(B)
## check-all: run every test and all mutants
check-all: tests
	@scripts/deps.sh check
	@scripts/deps.sh browser
	tests/run.sh all $(B)
## check-pure: run the tests that start no server but redis-server
check-pure: tests
	tests/run.sh pure $(B)
## check-tsan: run the tests of threads (tsan does, in a build of its own)
check-tsan: tests-tsan
	tests/run.sh tsan $(B)
## tests-tsan: build what check-tsan runs, and no more
ifneq ($(filter tests-tsan check-tsan,$(MAKECMDGOALS)),)
tests-tsan: $(B)/latchwork $(TOOLS) $(PRELOADS) \
    $(filter $(B)/%,$(shell LW_LIST=1 tests/run.sh tsan $(B)))
endif
## check-unit: run tests/unit: pure parts and single processes
## check-server: run tests/server: parts that talk to a Redis, each with a redis-server of its own
## check-lua: run tests/lua: each script on a redis-server
## check-lock: run tests/lock: the lock library on redis-servers
## check-sim: run tests/sim: the worker's logic in a deterministic simulation, and its mutants
## check-guard: run tests/guard: bounds on Redis commands, CPU and memory per message
## check-cli: run tests/cli: commands, documents, installation
## check-browser: run tests/browser: the page in Chromium
check-unit check-server check-lua check-lock check-sim check-guard check-cli \
    check-browser: check-%: tests
	tests/run.sh $* $(B)
## screenshots: make the pictures of the page that the documents show, in six minutes
screenshots: tests
	tests/browser/test_walk.py $(B) doc/images
# Each of the next three targets needs what a distribution or a clone may not have, so none is part
# of check.
.PHONY: live-security live-new-protocol upgrade-test
## live-security: run the live tests of every kind of secured Kafka, and of networks without TLS (check-live runs some)
live-security: tests
	LW_MORE=1 tests/live/test_kafka_secure.py $(B)
	LW_MORE=1 tests/live/test_network.py $(B)
	tests/live/test_kafka_rights.py $(B)
## live-new-protocol: run the live tests of the new group protocol, with librdkafka 2.15 and Kafka 4.1
live-new-protocol: tests
	LW_KAFKA_VERSION=4.1.1 tests/matrix/librdkafka.sh 2.15.1 tests/live/new_protocol.py $(B)
## upgrade-test: roll a fleet from LW_FROM (default: the newest tag) to this version and back, under load
upgrade-test: tests
	tests/live/upgrade.py $(B)
## long: run 10,000 seeds of the simulation and the live tests at ten times their length
.PHONY: long
long: tests
	tests/run.sh long $(B)
## soak: run everything at once for two hours (LW_SOAK_S), and draw what it held into proof.md
soak: tests
	@scripts/deps.sh check
	@scripts/deps.sh browser
	tests/live/soak.py $(B) $(B)/soak.jsonl
	tests/live/soak.py --page $(B)/soak.jsonl doc/explanation/proof.md doc/images

## proof: let each way of handling meet each fault, in 25 minutes; goes on where it stopped, writes doc/explanation/proof.md
.PHONY: proof
proof: tests
	@scripts/deps.sh check
	@p="tests/live/test_proof.py $(B) $(B)/proof.jsonl"; $$p 1/2 & $$p 2/2; s=$$?; wait $$! || s=1; \
	    tests/live/test_proof.py --page $(B)/proof.jsonl doc/explanation/proof.md; exit $$s

## scale: measure operators' commands and the API over a million lanes in a private Redis, and bound their memory
.PHONY: scale
scale: all
	tests/scale/scale.py $(B)
	tests/scale/api.py $(B)

# What takes too long for each change, or needs root. tests/README.md says what each costs.
NIGHTLY := check-mutants long soak tidy deb-twice tarball-twice deb-test tarball-test otlp \
    chart image scale live-security matrix
.PHONY: nightly
## nightly: run all that is too long for each change, one after the other, and go on after a failure
nightly:
	@mkdir -p $(B)/nightly; failed=; for t in $(NIGHTLY); do \
	    if [ -e $(B)/nightly/$$t.ok ]; then echo "ok      $$t (earlier)"; continue; fi; \
	    begin=$$(date +%s); \
	    if $(MAKE) --no-print-directory $$t > $(B)/nightly/$$t.log 2>&1; \
	    then touch $(B)/nightly/$$t.ok; echo "ok      $$t $$(($$(date +%s) - begin)) s"; \
	    else failed="$$failed $$t"; echo "FAILED  $$t: $(B)/nightly/$$t.log"; fi; \
	    done; [ -z "$$failed" ] || { echo "failed:$$failed; run make nightly again"; exit 1; }

-include $(wildcard $(B)/tests/*/*.d $(B)/tests/*/*/*.d)
