# SPDX-License-Identifier: Apache-2.0
# Latchwork. `make` builds build/latchwork; `make demo` shows it at work; `make test` runs a
# selection of the tests on real parts in five minutes, and `make help` lists all targets.
# Variables: CC, CFLAGS, PREFIX (/usr/local), DESTDIR, B (output folder).
VERSION := $(shell sed -n 's/^\#define LATCHWORK_VERSION "\(.*\)"/\1/p' include/latchwork/lock.h)
PREFIX ?= /usr/local
B ?= build
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wvla -Wcast-qual
# CI sets WERROR=-Werror. It is empty by default, because a new warning of a newer compiler must not
# break a user's build.
WERROR ?=
SAN ?=
# The next lines harden the program. _FORTIFY_SOURCE is set only in optimised builds, because the C
# library checks sizes only there, and not with sanitizers, because they check more. If the user
# sets _FORTIFY_SOURCE, the value is kept.
OPTIMISED := $(filter-out -O0,$(lastword $(filter -O%,$(CFLAGS))))
FORTIFY := $(if $(OPTIMISED),$(if $(SAN)$(findstring _FORTIFY_SOURCE,$(CFLAGS) \
    $(CPPFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3))
HARDEN = $(FORTIFY) -fstack-protector-strong $(LW_HARDEN)
HARDEN_LD := -Wl,-z,relro,-z,now
PIC := -fPIE
CPPFLAGS += -D_GNU_SOURCE -DLW_VERSION='"$(VERSION)"' -I. -Iinclude -I$(B)
override ALLFLAGS = -std=c17 $(WARN) $(WERROR) $(HARDEN) -fvisibility=hidden $(PIC) $(CFLAGS) \
    $(SAN) $(CPPFLAGS) $(LW_CFLAGS)
LIBS = $(LW_LIBS) -lpthread -ldl -lm

# V=1 makes the build show its commands.
Q := $(if $(V),,@)
say = $(if $(V),,@echo '  $(1) $(if $(2),$(2),$@)')

# libxxhash stands first because a static librdkafka has a copy of its own, which is older.
PKGS := libxxhash rdkafka hiredis openssl jansson sqlite3 libpq libmicrohttpd libcurl
# These are the minimum versions of libraries; CONTRIBUTING.md names the same versions.
NEEDS := rdkafka >= 2.0.2, hiredis >= 0.14.1, openssl >= 3.0, jansson >= 2.14, sqlite3 >= 3.35, \
    libpq >= 13, libxxhash, libmicrohttpd >= 0.9.75, libcurl >= 7.87

# These goals need no compiler yet.
EASY := nightly lint lint-format lint-spdx lint-words lint-columns lint-shell lint-python lint-c \
    lint-tidy lint-commits tidy deps deps-test demo test ci debian-13 matrix image help clean \
    distclean format fuzz
EASY += deb deb-twice deb-test deb-systemd tarball tarball-twice tarball-test release release-check
ifneq ($(filter-out $(EASY),$(or $(MAKECMDGOALS),all)),)
include $(B)/flags.mk
endif

.PHONY: all
##@ Build
## all: build the program, the lock library and the examples (the default)
all: $(B)/latchwork $(B)/liblatchwork.so.$(VERSION) $(B)/manuals examples

# --- what there is: a .c file in one of these folders is in the program; nothing is listed by hand
DIRS := base config lock queue handlers kafka consumer monitor ops api cli
MAIN := cli/main
SRC := $(filter-out $(MAIN).c,$(sort $(shell find $(wildcard $(DIRS)) -name examples -prune \
    -o -name '*.c' -print)))
LUA := $(sort $(wildcard queue/lua/*.lua lock/lua/*.lua))
LUA_PARTS := $(wildcard queue/lua/parts/*.lua)
OPS_LUA := $(sort $(wildcard ops/lua/*.lua))
OBJ := $(SRC:%.c=$(B)/%.o) $(B)/scripts.gen.o $(B)/ops-scripts.gen.o $(B)/lock-scripts.gen.o \
    $(B)/pages.gen.o $(B)/templates.gen.o $(B)/page.gen.o
# The lock library consists of lock/ without lane/, and of those files of base/ that it needs.
LOCKLUA := $(sort $(wildcard lock/lua/lib/*.lua))
LOCKSRC := $(sort $(wildcard lock/*.c lock/redlock/*.c)) base/buf.c base/clock.c base/err.c \
    base/thread.c base/redis/connection.c base/redis/login.c base/redis/servers.c \
    base/redis/search.c base/redis/cluster.c base/redis/reply.c base/redis/slot.c \
    base/redis/stream.c base/tls.c base/redis/url.c
LOCKOBJ := $(LOCKSRC:%.c=$(B)/%.o) $(B)/lock-scripts.gen.o
LOCKLIB := $(B)/liblatchwork.a
SONAME := liblatchwork.so.0
SO := liblatchwork.so.$(VERSION)
$(LOCKOBJ): PIC := -fPIC
$(LOCKOBJ): Makefile
CORE := $(B)/liblatchwork-core.a
LIB := $(CORE) $(LOCKLIB)

$(B)/flags.mk: scripts/packages.txt scripts/need.sh Makefile
	@mkdir -p $(@D)
	@scripts/need.sh "$(CC)" "$(NEEDS)"
	@{ echo "LW_CFLAGS := $$(pkg-config --cflags $(PKGS))"; \
	    echo "LW_LIBS := $$(pkg-config --libs $(PKGS))"; \
	    echo "LW_HARDEN := $$(for f in -fstack-clash-protection -fcf-protection; do \
	        $(CC) -Werror $$f -c -x c -o /dev/null /dev/null 2> /dev/null && printf '%s ' $$f; \
	    done)"; } > $@.tmp && mv $@.tmp $@

$(B)/%.o: %.c $(B)/flags.mk
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALLFLAGS) -MMD -MP -c -o $@ $<

$(B)/scripts.gen.c: $(LUA_PARTS) $(LUA) queue/codes.h scripts/embed-lua.sh Makefile
	@mkdir -p $(@D)
	@scripts/embed-lua.sh base/redis/script.h lw_script_ queue/lua/parts queue/codes.h $(LUA) \
	    > $@.tmp && mv $@.tmp $@
$(B)/lock-scripts.gen.c: $(wildcard lock/lua/parts/*.lua) $(LOCKLUA) scripts/embed-lua.sh Makefile
	@mkdir -p $(@D)
	@scripts/embed-lua.sh lock/scripts.h lw_lock_script_ lock/lua/parts /dev/null $(LOCKLUA) \
	    > $@.tmp && mv $@.tmp $@
$(B)/ops-scripts.gen.c: $(LUA_PARTS) $(OPS_LUA) queue/codes.h ops/script.h scripts/embed-lua.sh \
    Makefile
	@mkdir -p $(@D)
	@scripts/embed-lua.sh ops/script.h lw_op_ queue/lua/parts queue/codes.h $(OPS_LUA) \
	    > $@.tmp && mv $@.tmp $@
# These pages hold what the reference of the commands says beyond the commands' tables.
PAGES := $(sort $(wildcard cli/*/page.md))
$(B)/pages.gen.c: $(PAGES) scripts/embed-pages.sh
	@mkdir -p $(@D)
	@scripts/embed-pages.sh $(PAGES) > $@.tmp && mv $@.tmp $@
# These are the files that `latchwork handler new` writes, as LANG:PATH:FILE.
T := cli/handler/templates
TEMPLATES := $(foreach l,c c++ python node go,$l:README.md:$T/$l/README.md.in \
    $l:@NAME@.json:$T/$l/config.json.in) \
    $(foreach l,c c++,$l:Makefile:$T/$l/Makefile.in $l:messages.jsonl:$T/messages-c.jsonl.in) \
    $(foreach l,python node go,$l:messages.jsonl:$T/messages.jsonl.in) \
    c:handler.c:$T/c/handler.c.in c++:handler.cpp:$T/c++/handler.cpp.in \
    python:handler.py:$T/python/handler.py.in \
    python:test_handler.py:$T/python/test_handler.py.in \
    python:latchwork/__init__.py:sdk/python/latchwork/__init__.py \
    python:latchwork/testing.py:sdk/python/latchwork/testing.py \
    node:handler.js:$T/node/handler.js.in node:package.json:$T/node/package.json.in \
    node:latchwork.js:sdk/node/latchwork.js node:latchwork.d.ts:sdk/node/latchwork.d.ts \
    go:handler.go:$T/go/handler.go.in go:go.mod:$T/go/go.mod.in \
    go:latchwork/latchwork.go:sdk/go/latchwork.go
$(B)/templates.gen.c: $(foreach t,$(TEMPLATES),$(lastword $(subst :, ,$t))) \
    scripts/embed-templates.sh Makefile
	@mkdir -p $(@D)
	@scripts/embed-templates.sh $(TEMPLATES) > $@.tmp && mv $@.tmp $@
# These files are the page that the exporter serves.
PAGE := $(addprefix monitor/page/,index.html app.js app.css favicon.svg)
$(B)/page.gen.c: $(PAGE) scripts/embed-files.sh
	@mkdir -p $(@D)
	@scripts/embed-files.sh $(PAGE) > $@.tmp && mv $@.tmp $@
$(B)/scripts.gen.o $(B)/ops-scripts.gen.o $(B)/lock-scripts.gen.o $(B)/pages.gen.o \
    $(B)/templates.gen.o $(B)/page.gen.o: %.o: %.c
	$(call say,CC,$<)
	$(Q)$(CC) $(ALLFLAGS) -MMD -MP -c -o $@ $<

$(CORE): $(filter-out $(LOCKOBJ),$(OBJ))
	@rm -f $@
	$(Q)$(AR) qcs $@ $^
$(LOCKLIB): $(LOCKOBJ)
	@rm -f $@
	$(Q)$(AR) qcs $@ $^
$(B)/$(SO): $(LOCKOBJ)
	$(call say,LD)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) $(if $(SAN),,-Wl,-z,defs) $(HARDEN_LD) $(CFLAGS) $(SAN) \
	    $(LDFLAGS) -o $@ $^ $(shell pkg-config --libs hiredis openssl) -lpthread
	@ln -sf $(SO) $(B)/$(SONAME) && ln -sf $(SO) $(B)/liblatchwork.so
$(B)/latchwork: $(B)/$(MAIN).o $(LIB)
	$(call say,LD)
	$(Q)$(CC) -pie $(HARDEN_LD) $(CFLAGS) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)
# The man pages and the completion scripts are made of the program's tables and of the headers. They
# are installed, and are not in the repository.
COMPLETION := $(B)/completion.bash $(B)/completion.zsh
$(B)/manuals: $(B)/latchwork scripts/man-pages.py cli/page.md $(wildcard include/latchwork/*.h)
	$(call say,GEN)
	@rm -rf $(B)/man && mkdir -p $(B)/man
	@scripts/man-pages.py $(B)/latchwork $(B)/man
	@for f in $(notdir $(COMPLETION)); do $(B)/latchwork reference $$f > $(B)/$$f || exit 1; done
	@touch $@

# --- tests: each test_*.c of tests/unit/*, tests/server, tests/lua, tests/lock is a cmocka program;
# tests/sim has one program; tests/tools are helpers of the live tests
include tests/tests.mk
include tests/fuzz/fuzz.mk

include scripts/lint.mk

# --- the rest -------------------------------------------------------------------------------------
# As many jobs as processors, unless make was told a number.
PARALLEL = --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))
.PHONY: deps deps-test demo test ci asan tsan soak matrix chart otlp image debian-13 install \
    uninstall clean format help examples reference
##@ Build
## deps: install the packages that the build needs
deps:
	@scripts/deps.sh build
## deps-test: install the packages that build and tests need
deps-test:
	@scripts/deps.sh check
##@ Try it
## demo: install, build, then consume 20,000 messages while a worker is killed; ends by itself
demo: deps
	@+$(MAKE) --no-print-directory all
	@$(B)/latchwork dev --demo
##@ Tests
## test: install, build, then run the tests that a newcomer waits for: five minutes
test:
	@scripts/deps.sh test
	@mkdir -p $(B)
	@+tests/live/kafka/kafka.sh archive > $(B)/kafka-fetch.log 2>&1 & $(MAKE) $(PARALLEL) tests && wait
	@+$(MAKE) $(PARALLEL) check-quick
## ci: run what a change must pass: test, a cell of the matrix per axis, asan and tsan with clang, debian-13
ci:
	@.ci/run

## asan: run check-pure under AddressSanitizer and UndefinedBehaviorSanitizer
asan:
	@+$(MAKE) --no-print-directory B=$(B)/asan CFLAGS="-O1 -g -fno-omit-frame-pointer" \
	    SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined" \
	    FUZZ_S=20000x $(if $(BUILD_ONLY),tests,check-pure $(if $(findstring clang,$(CC)),check-fuzz))
## tsan: run the tests of threads, the whole program and its page under load under ThreadSanitizer
tsan:
	@+$(MAKE) --no-print-directory B=$(B)/tsan CFLAGS="-O1 -g1" SAN="-fsanitize=thread" WERROR= \
	    $(if $(BUILD_ONLY),tests-tsan,check-tsan)

# Both targets need root, because they make chroots. CI runs debian-13, and some cells of the
# matrix. BUILD_ONLY=1 makes debian-13, asan and tsan build, and run nothing.
## debian-13: build in a Debian 13 chroot and run the tests that need no Kafka (as root)
debian-13:
	@tests/matrix/debian.sh trixie sh -c 'scripts/deps.sh plain && make all tests $(if $(BUILD_ONLY),,\
	    && tests/run.sh plain build)'
## chart: check the Helm chart: lint, the schemas of Kubernetes and the CRDs, what it renders (the first time it builds helm, for minutes)
chart: $(B)/latchwork
	@scripts/deps.sh chart
	@tests/helm/test_chart.py $(B)
## otlp: check spans against a collector of OpenTelemetry and the published definitions (the first time it builds the collector, for minutes)
otlp: $(B)/latchwork $(B)/tests/tools/spantool
	@tests/otlp/test_otlp.py $(B)
## image: build the container images without a daemon, and run them (as root)
image:
	@scripts/deps.sh image
	@tests/container/build.sh $(B)
## matrix: run tests on each distribution, server, librdkafka and Kafka, and write doc/reference/support.md (as root; over an hour)
matrix:
	@tests/matrix/matrix.py

##@ Build
## examples: build the examples of handlers and of the lock library
examples: $(B)/latchwork
	@for d in handlers/examples/*/ examples/*/; do \
	    if ls $$d*.cpp >/dev/null 2>&1 && ! command -v $(CXX) >/dev/null; then \
	        echo "  $$d is left out: no C++ compiler"; continue; fi; \
	    [ ! -f $$d/Makefile ] || $(MAKE) --no-print-directory -s -C $$d \
	        OUT=$(abspath $(B))/$$d CPPFLAGS=-I$(abspath include) \
	        LDLIBS="$(abspath $(LOCKLIB)) -lhiredis -lssl -lcrypto -lpthread -lm $(SAN)" \
	        CC=$(CC) CXX=$(CXX) || exit 1; done

# --- figures --------------------------------------------------------------------------------------
include bench/bench.mk

include packaging/packaging.mk


# tests/cli/test_docs.sh compares the generated pages with what the program prints.
##@ Upkeep
## reference: write again the pages in doc/reference that are made from tables
reference: $(B)/latchwork
	@for f in $$($(B)/latchwork reference | grep ^doc/); do $(B)/latchwork reference $$f > $$f.tmp && \
	    mv $$f.tmp $$f || exit 1; done

# These are the installation directories. DESTDIR precedes each of them, for packagers.
BINDIR := $(PREFIX)/bin
LIBDIR := $(PREFIX)/lib
DATADIR := $(PREFIX)/share/latchwork
SDKDIR := $(DATADIR)/sdk
DOCDIR := $(PREFIX)/share/doc/latchwork
MANDIR := $(PREFIX)/share/man
UNITDIR := $(PREFIX)/lib/systemd/system
SYSUSERSDIR := $(PREFIX)/lib/sysusers.d
TMPFILESDIR := $(PREFIX)/lib/tmpfiles.d
COMPDIR := $(PREFIX)/share/bash-completion/completions
ZSHDIR := $(PREFIX)/share/zsh/site-functions
to = $(DESTDIR)$(1)
below = $(patsubst $(PREFIX)/%,%,$(1))
install_files = install -d $(call to,$(2)) && install -m 644 $(1) $(call to,$(2))/
fill_in = sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@VERSION@|$(VERSION)|g' \
    -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|g'
# The linker's cache is updated if root installs on this machine, without DESTDIR.
refresh_linker = [ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ! PATH="$$PATH:/sbin:/usr/sbin" \
    command -v ldconfig >/dev/null || PATH="$$PATH:/sbin:/usr/sbin" ldconfig

PYTHON_MODULE := $(addprefix sdk/python/latchwork/,__init__.py testing.py py.typed)
NODE_SDK := $(addprefix sdk/node/,README.md package.json latchwork.js latchwork.d.ts)
# These examples are of the lock library; all others in examples/ are of handlers.
LOCK_EXAMPLES := $(addprefix examples/,inventory redlock rowlock)
##@ Install
## install: install below PREFIX (/usr/local), or below DESTDIR/PREFIX for a package
install: all
	install -d $(call to,$(BINDIR)) $(call to,$(LIBDIR)/pkgconfig) $(call to,$(UNITDIR)) \
	    $(call to,$(SYSUSERSDIR)) $(call to,$(TMPFILESDIR)) $(call to,$(COMPDIR)) \
	    $(call to,$(ZSHDIR)) $(call to,$(DOCDIR)) $(call to,$(DATADIR))
	install -m 755 $(B)/latchwork $(call to,$(BINDIR))/
	$(call install_files,include/latchwork/*.h,$(PREFIX)/include/latchwork)
	install -m 644 $(LOCKLIB) $(call to,$(LIBDIR))/
	install -m 755 $(B)/$(SO) $(call to,$(LIBDIR))/
	cp -P $(B)/$(SONAME) $(B)/liblatchwork.so $(call to,$(LIBDIR))/
	$(fill_in) scripts/latchwork.pc.in > $(call to,$(LIBDIR))/pkgconfig/latchwork.pc
	$(call install_files,$(B)/man/*.1,$(MANDIR)/man1)
	$(call install_files,$(B)/man/*.3,$(MANDIR)/man3)
	$(call install_files,$(B)/man/*.5,$(MANDIR)/man5)
	install -m 644 $(B)/completion.bash $(call to,$(COMPDIR))/latchwork
	install -m 644 $(B)/completion.zsh $(call to,$(ZSHDIR))/_latchwork
	$(fill_in) deploy/latchwork@.service > $(call to,$(UNITDIR))/latchwork@.service
	install -m 644 deploy/sysusers.conf $(call to,$(SYSUSERSDIR))/latchwork.conf
	install -m 644 deploy/tmpfiles.conf $(call to,$(TMPFILESDIR))/latchwork.conf
	$(call install_files,deploy/grafana-dashboard.json deploy/prometheus-alerts.yml,$(DATADIR))
	cp -r doc/. $(call to,$(DOCDIR))/
	$(call install_files,README.md CHANGELOG.md LICENSE,$(DOCDIR))
	$(call install_files,LICENSE sdk/python/README.md sdk/python/pyproject.toml,$(SDKDIR)/python)
	$(call install_files,$(PYTHON_MODULE),$(SDKDIR)/python/latchwork)
	$(call install_files,LICENSE $(NODE_SDK),$(SDKDIR)/node)
	$(call install_files,LICENSE sdk/go/README.md sdk/go/go.mod sdk/go/latchwork.go,$(SDKDIR)/go)
	install -d $(call to,$(DOCDIR))/examples
	cp -r config/examples $(call to,$(DOCDIR))/examples/config
	cp -r handlers/examples $(call to,$(DOCDIR))/examples/handlers
	install -d $(call to,$(DOCDIR))/examples/lock
	cp -r $(LOCK_EXAMPLES) $(call to,$(DOCDIR))/examples/lock/
	cp -r $(filter-out $(LOCK_EXAMPLES),$(wildcard examples/*)) $(call to,$(DOCDIR))/examples/
	scripts/install-links.sh $(call to,$(PREFIX)) $(call below,$(DOCDIR)) $(call below,$(SDKDIR)) \
	    include $(call below,$(DATADIR))
	$(refresh_linker)
## uninstall: remove what install has put there
uninstall:
	rm -rf $(call to,$(BINDIR))/latchwork $(call to,$(PREFIX))/include/latchwork \
	    $(call to,$(LIBDIR))/liblatchwork.* $(call to,$(LIBDIR))/pkgconfig/latchwork.pc \
	    $(call to,$(MANDIR))/man[135]/latchwork[.-]* \
	    $(call to,$(COMPDIR))/latchwork $(call to,$(ZSHDIR))/_latchwork \
	    $(call to,$(UNITDIR))/latchwork@.service $(call to,$(SYSUSERSDIR))/latchwork.conf \
	    $(call to,$(TMPFILESDIR))/latchwork.conf $(call to,$(DATADIR)) $(call to,$(DOCDIR))
	$(refresh_linker)

##@ Upkeep
## clean: remove the build folder
clean:
	rm -rf $(B)
## format: lay out every C file with clang-format, and every Python file with ruff
format:
	clang-format -i $$(git ls-files '*.c' '*.h')
	scripts/lint-python.sh $(B) $(RUFF_VERSION) --format
## help: list the targets
help:
	@sed -n '2,3s/^# //p' Makefile
	@awk -f scripts/help.awk Makefile scripts/lint.mk tests/tests.mk tests/fuzz/fuzz.mk \
	    bench/bench.mk bench/limits/limits.mk bench/locks/locks.mk packaging/packaging.mk

-include $(OBJ:.o=.d) $(B)/$(MAIN).d
