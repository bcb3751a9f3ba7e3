# Latchwork. `make` builds build/latchwork; `make demo` shows it at work; `make test` runs every test on real parts.
# Variables: CC, CFLAGS, PREFIX (/usr/local), DESTDIR, B (output folder).
VERSION := 0.1.0
PREFIX ?= /usr/local
B ?= build
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
WERROR ?= -Werror
SAN ?=
CPPFLAGS += -D_GNU_SOURCE -DLW_VERSION='"$(VERSION)"' -I. -Iinclude -I$(B)
override ALLFLAGS = -std=c17 $(WARN) $(WERROR) -fvisibility=hidden $(PIC) $(CFLAGS) $(SAN) $(CPPFLAGS) $(LW_CFLAGS)
LIBS = $(LW_LIBS) -lpthread -ldl -lm

# V=1 shows the commands
Q := $(if $(V),,@)
say = $(if $(V),,@echo '  $(1) $(if $(2),$(2),$@)')

PKGS := rdkafka hiredis jansson sqlite3 libxxhash libmicrohttpd ncursesw

# goals that need no compiler yet
EASY := deps deps-test demo test ci help clean distclean format
ifneq ($(filter-out $(EASY),$(or $(MAKECMDGOALS),all)),)
include $(B)/flags.mk
endif

.PHONY: all
all: $(B)/latchwork $(B)/liblatchwork.so.$(VERSION) examples

# --- what there is: a .c file in one of these folders is in the program; nothing is listed by hand ---------------------------
DIRS := base config queue lock handlers consumer tools
SRC := $(filter-out consumer/main.c,$(wildcard $(DIRS:%=%/*.c)))
LUA := $(filter-out queue/lua/lane.lua,$(sort $(wildcard queue/lua/*.lua lock/lua/*.lua)))
OPS_LUA := $(sort $(wildcard queue/lua/ops/*.lua))
OBJ := $(SRC:%.c=$(B)/%.o) $(B)/scripts.gen.o $(B)/ops-scripts.gen.o $(B)/lock-scripts.gen.o
# the lock library: lock/ but what only the worker uses, and what it needs of base/
LOCKLUA := $(sort $(wildcard lock/lua/lib/*.lua))
LOCKSRC := $(filter-out lock/lease.c,$(wildcard lock/*.c)) base/bytes.c base/clock.c base/err.c base/redis_url.c
LOCKOBJ := $(LOCKSRC:%.c=$(B)/%.o) $(B)/lock-scripts.gen.o
LOCKLIB := $(B)/liblatchwork.a
SONAME := liblatchwork.so.0
SO := liblatchwork.so.$(VERSION)
$(LOCKOBJ): PIC := -fPIC
$(LOCKOBJ): Makefile
CORE := $(B)/liblatchwork-core.a
LIB := $(CORE) $(LOCKLIB)

$(B)/flags.mk: tools/packages.txt
	@mkdir -p $(@D)
	@pkg-config --exists $(PKGS) || { echo "latchwork: libraries are missing; run: make deps" >&2; exit 1; }
	@{ echo "LW_CFLAGS := $$(pkg-config --cflags $(PKGS))"; echo "LW_LIBS := $$(pkg-config --libs $(PKGS))"; } > $@.tmp && mv $@.tmp $@

$(B)/%.o: %.c $(B)/flags.mk
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALLFLAGS) -MMD -MP -c -o $@ $<

$(B)/scripts.gen.c: queue/lua/lane.lua $(LUA) tools/embed-lua.sh
	@mkdir -p $(@D)
	@tools/embed-lua.sh base/script.h lw_script_ queue/lua $(LUA) > $@.tmp && mv $@.tmp $@
$(B)/lock-scripts.gen.c: $(wildcard lock/lua/parts/*.lua) $(LOCKLUA) tools/embed-lua.sh
	@mkdir -p $(@D)
	@tools/embed-lua.sh lock/scripts.h lw_lock_script_ lock/lua/parts $(LOCKLUA) > $@.tmp && mv $@.tmp $@
$(B)/ops-scripts.gen.c: queue/lua/lane.lua $(OPS_LUA) tools/embed-lua.sh
	@mkdir -p $(@D)
	@tools/embed-lua.sh tools/ops_script.h lw_op_ queue/lua $(OPS_LUA) > $@.tmp && mv $@.tmp $@
$(B)/scripts.gen.o $(B)/ops-scripts.gen.o $(B)/lock-scripts.gen.o: %.o: %.c
	$(call say,CC,$<)
	$(Q)$(CC) $(ALLFLAGS) -MMD -MP -c -o $@ $<

$(CORE): $(filter-out $(LOCKOBJ),$(OBJ))
	@rm -f $@
	$(Q)$(AR) rcs $@ $^
$(LOCKLIB): $(LOCKOBJ)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^
$(B)/$(SO): $(LOCKOBJ)
	$(call say,LD)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) $(if $(SAN),,-Wl,-z,defs) $(CFLAGS) $(SAN) $(LDFLAGS) -o $@ $^ $(shell pkg-config --libs hiredis) -lpthread
	@ln -sf $(SO) $(B)/$(SONAME) && ln -sf $(SO) $(B)/liblatchwork.so
$(B)/latchwork: $(B)/consumer/main.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)

# --- tests: each tests/unit/*.c, tests/lua/*.c is a cmocka program; tests/sim has one program; tests/tools are helpers of the live tests
include tests/tests.mk

# --- the rest -----------------------------------------------------------------------------------------------------------------
.PHONY: deps deps-test demo test ci asan tsan soak install uninstall clean format help examples reference
deps:
	@tools/deps.sh build
deps-test:
	@tools/deps.sh test
demo: deps
	@+$(MAKE) --no-print-directory all
	@$(B)/latchwork dev --demo
test: deps-test
	@+$(MAKE) --no-print-directory all
	@+$(MAKE) --no-print-directory check
ci:
	@.ci/run

asan:
	@+$(MAKE) --no-print-directory B=$(B)/asan CFLAGS="-O1 -g -fno-omit-frame-pointer" SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined" check-pure
tsan:
	@+$(MAKE) --no-print-directory B=$(B)/tsan CFLAGS="-O1 -g" SAN="-fsanitize=thread" check-tsan

examples: $(B)/latchwork
	@for d in handlers/examples/*/ examples/*/; do [ ! -f $$d/Makefile ] || $(MAKE) --no-print-directory -s -C $$d OUT=$(abspath $(B))/$$d CPPFLAGS=-I$(abspath include) LDLIBS="$(abspath $(LOCKLIB)) -lhiredis -lpthread -lm $(SAN)" CC=$(CC) || exit 1; done

# --- figures ------------------------------------------------------------------------------------------------------------------
include bench/bench.mk


# the pages that `latchwork check --reference` and `--reference-metrics` write; tests/cli/test_docs.sh compares them
reference: $(B)/latchwork
	@$(B)/latchwork check --reference > doc/reference/configuration.md.tmp && mv doc/reference/configuration.md.tmp doc/reference/configuration.md
	@$(B)/latchwork check --reference-metrics > doc/reference/metrics.md.tmp && mv doc/reference/metrics.md.tmp doc/reference/metrics.md

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include/latchwork $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/doc/latchwork $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 755 $(B)/latchwork $(DESTDIR)$(PREFIX)/bin/
	install -m 644 include/latchwork/*.h $(DESTDIR)$(PREFIX)/include/latchwork/
	install -m 644 $(LOCKLIB) $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(B)/$(SO) $(DESTDIR)$(PREFIX)/lib/
	cp -P $(B)/$(SONAME) $(B)/liblatchwork.so $(DESTDIR)$(PREFIX)/lib/
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' tools/latchwork.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/latchwork.pc
	for m in doc/man/*.1; do [ ! -f $$m ] || install -m 644 $$m $(DESTDIR)$(PREFIX)/share/man/man1/; done
	[ ! -f tools/completion.bash ] || install -m 644 tools/completion.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/latchwork
	cp -r doc/* $(DESTDIR)$(PREFIX)/share/doc/latchwork/
uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/bin/latchwork $(DESTDIR)$(PREFIX)/include/latchwork $(DESTDIR)$(PREFIX)/lib/liblatchwork.* $(DESTDIR)$(PREFIX)/lib/pkgconfig/latchwork.pc $(DESTDIR)$(PREFIX)/share/man/man1/latchwork*.1 $(DESTDIR)$(PREFIX)/share/doc/latchwork $(DESTDIR)$(PREFIX)/share/bash-completion/completions/latchwork

clean:
	rm -rf $(B)
format:
	clang-format -i $$(git ls-files '*.c' '*.h')
help:
	@sed -n '1,2s/^# //p' Makefile
	@echo 'goals: all deps demo test asan tsan soak bench bench-full install uninstall format clean'

-include $(OBJ:.o=.d) $(B)/consumer/main.d
