# SPDX-License-Identifier: Apache-2.0
# make lint finds faults without running the program. It installs its tools first: the packages of
# the group lint in scripts/packages.txt, and ruff, which Debian 12 does not have, into $(B)/lint
# (scripts/lint-python.sh).
RUFF_VERSION := 0.17.6
SHELLS = $(shell git ls-files '*.sh' .ci/run)
CPPCHECK := cppcheck --std=c11 --quiet -j2 --enable=warning,performance,portability --inline-suppr \
    --library=posix --max-configs=1 \
    --suppressions-list=scripts/cppcheck.txt --include=scripts/cppcheck.h --error-exitcode=1 \
    --template='{file}:{line}: {severity}: {message} [{id}]' -D_GNU_SOURCE \
    -DLW_VERSION='"$(VERSION)"' -I. -Iinclude

TIDY = scripts/tidy.py $(B) --flags "-std=c17 -D_GNU_SOURCE '-DLW_VERSION=\"\"' -I. -Iinclude \
    $(shell pkg-config --cflags $(PKGS) lua5.1)"

.PHONY: lint lint-format lint-spdx lint-words lint-columns lint-shell lint-python lint-c \
    lint-tidy tidy lint-commits
##@ Tests
## lint: install the linters, then check layout, licence lines, words, shell, Python, C and commits
lint:
	@scripts/deps.sh lint
	@+$(MAKE) --no-print-directory -k lint-format lint-spdx lint-words lint-columns \
	    lint-shell lint-python lint-c lint-tidy lint-commits
## lint-format: check the layout of C files (make format mends it)
lint-format:
	@git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror
## lint-spdx: check that each source file says its licence
lint-spdx:
	@scripts/spdx.sh
## lint-words: check that no retired phrase is used
lint-words:
	@scripts/words.py
## lint-columns: check that no line of code is longer than 100 columns
lint-columns:
	@scripts/columns.py
## lint-shell: check shell scripts with shellcheck
lint-shell:
	@shellcheck -x $(SHELLS)
## lint-python: check Python scripts with ruff, or with pyflakes on a machine that cannot get ruff
lint-python:
	@scripts/lint-python.sh $(B) $(RUFF_VERSION)
## lint-c: check the program's C files with cppcheck
lint-c:
	@$(CPPCHECK) $(DIRS)
## lint-tidy: check C files with clang-tidy, without its analyzer; a file that did not change is not checked again
lint-tidy:
	@$(TIDY)
## tidy: check the program's C files with clang-tidy and its analyzer: 15 minutes of CPU the first time
tidy:
	@scripts/deps.sh lint
	@$(TIDY) --analyze --include scripts/tidy.h $(MAIN).c $(SRC)
## lint-commits: check the messages of the commits that origin lacks, or of RANGE=A..B
lint-commits:
	@scripts/commits.py $(RANGE)
