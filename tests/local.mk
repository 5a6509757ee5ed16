# SPDX-License-Identifier: Apache-2.0
# The tests. A module's test is a line in MODULE_TESTS: tests/check_NAME is made from tests/check_NAME.c and linked
# to the internal library and to Check. A script is a line in SCRIPT_TESTS. One a line, sorted.

MODULE_TESTS =

SCRIPT_TESTS = \
	tests/tool_ctl.sh \
	tests/tool_manual.sh \
	tests/tool_servers.sh \
	tests/tool_view.sh

# Scripts that only `make check-long` runs.
LONG_TESTS =

check_PROGRAMS += $(MODULE_TESTS)

# What tests run and what is no test itself.
check_PROGRAMS += tests/tool_server
tests_tool_server_LDADD = lib/libkvshm-internal.la

TESTS += $(MODULE_TESTS) $(SCRIPT_TESTS)

# What a program of this tree is linked to unless it says otherwise.
LDADD = lib/libkvshm-internal.la $(CHECK_LIBS)

# Each test runs in tests/runner, which makes TAP of what it does; see there for what a test may print.
TEST_EXTENSIONS = .sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
LOG_COMPILER = $(SHELL) $(top_srcdir)/tests/runner
SH_LOG_COMPILER = $(LOG_COMPILER)

# What tests find in their environment. The folder they run in is the top of the build tree.
AM_TESTS_ENVIRONMENT = \
	abs_top_srcdir='$(abs_top_srcdir)'; export abs_top_srcdir; \
	abs_top_builddir='$(abs_top_builddir)'; export abs_top_builddir; \
	CC='$(CC)'; export CC; \
	CXX='$(CXX)'; export CXX; \
	MANDOC='$(MANDOC)'; export MANDOC; \
	PYTHON='$(PYTHON)'; export PYTHON; \
	KVSHM_CFLAGS='$(AM_CFLAGS) $(CFLAGS)'; export KVSHM_CFLAGS; \
	KVSHM_LIBTOOL='$(SHELL) $(abs_top_builddir)/libtool'; export KVSHM_LIBTOOL; \
	KVSHM_SANITIZERS='$(SANITIZERS)'; export KVSHM_SANITIZERS; \
	ASAN_OPTIONS=$${ASAN_OPTIONS-abort_on_error=1}; export ASAN_OPTIONS; \
	UBSAN_OPTIONS=$${UBSAN_OPTIONS-print_stacktrace=1}; export UBSAN_OPTIONS; \
	TSAN_OPTIONS=$${TSAN_OPTIONS-halt_on_error=1 die_after_fork=0}; export TSAN_OPTIONS;

# The same tests with fewer random calls, kills and rounds; and with more, and with those that take long.
.PHONY: check-quick check-long
check-quick:
	KVSHM_TEST_QUICK=1 $(MAKE) $(AM_MAKEFLAGS) check

check-long:
	KVSHM_TEST_LONG=1 $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(TESTS) $(LONG_TESTS)'

EXTRA_DIST += \
	tests/runner \
	tests/tool_ctl.expected \
	tests/tool_lib.sh \
	tests/tool_servers.expected \
	tests/tool_view.expected \
	$(SCRIPT_TESTS) \
	$(LONG_TESTS)
