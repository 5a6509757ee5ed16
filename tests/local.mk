# SPDX-License-Identifier: Apache-2.0
# The tests. A module's test is a line in MODULE_TESTS: tests/check_NAME is made from tests/check_NAME.c, unless it has
# its own list of files below, and linked to what the tests share, to the internal library and to Check. A script is a
# line in SCRIPT_TESTS. One a line, sorted.

MODULE_TESTS = \
	tests/check_arena \
	tests/check_backing \
	tests/check_bench \
	tests/check_between \
	tests/check_cache \
	tests/check_client \
	tests/check_config \
	tests/check_damage \
	tests/check_differential \
	tests/check_engine \
	tests/check_entries \
	tests/check_errors \
	tests/check_evict \
	tests/check_faults \
	tests/check_fork \
	tests/check_frames \
	tests/check_hot_path \
	tests/check_hugepages \
	tests/check_index \
	tests/check_insert \
	tests/check_landing \
	tests/check_layout \
	tests/check_lease \
	tests/check_limit \
	tests/check_litmus \
	tests/check_look \
	tests/check_mend \
	tests/check_message \
	tests/check_mounts \
	tests/check_numa \
	tests/check_pages \
	tests/check_place \
	tests/check_plan \
	tests/check_populate \
	tests/check_private \
	tests/check_processes \
	tests/check_read_only \
	tests/check_readers \
	tests/check_reap \
	tests/check_rebuild \
	tests/check_recency \
	tests/check_ring \
	tests/check_seed \
	tests/check_segment \
	tests/check_slots \
	tests/check_spill_file \
	tests/check_sys \
	tests/check_threads \
	tests/check_tier \
	tests/check_tier_disk \
	tests/check_tier_file \
	tests/check_tier_mend \
	tests/check_tokens \
	tests/check_tsan \
	tests/check_validate \
	tests/check_writer

tests_check_bench_SOURCES = \
	tests/check_bench.c \
	tools/bench_content.c \
	tools/bench_hist.c \
	tools/bench_trace.c \
	tools/common.c
tests_check_bench_LDADD = $(LDADD) $(JSON_C_LIBS)

tests_check_bounds_SOURCES = \
	tests/check_bounds.c \
	tests/images.h \
	tests/images_mend.c \
	tests/images_scene.c \
	tests/step.c \
	tests/step.h \
	tests/watch.c \
	tests/watch.h

tests_check_damage_SOURCES = \
	tests/check_damage.c \
	tests/damage.h \
	tests/damage_calls.c \
	tests/damage_image.c

tests_check_differential_SOURCES = \
	tests/check_differential.c \
	tests/differ.c \
	tests/differ.h \
	tests/model.c \
	tests/model.h

tests_check_engine_SOURCES = \
	tests/check_engine.c \
	tests/ring_file.c \
	tests/ring_file.h

tests_check_errors_SOURCES = \
	tests/check_errors.c \
	tests/errors.h \
	tests/errors_arena.c
tests_check_errors_LDFLAGS = -Wl,--wrap=kvshm__private_alloc

tests_check_faults_SOURCES = \
	tests/check_faults.c \
	tests/faults.def \
	tests/faults.h \
	tests/faults_scenes.c

tests_check_hot_path_SOURCES = \
	tests/check_hot_path.c \
	tests/hits.h

tests_check_images_SOURCES = \
	tests/check_images.c \
	tests/images.h \
	tests/images_mend.c \
	tests/images_scene.c \
	tests/step.c \
	tests/step.h \
	tests/watch.c \
	tests/watch.h

tests_check_landing_SOURCES = \
	tests/check_landing.c \
	tests/slow_file.c \
	tests/slow_file.h

tests_check_layout_SOURCES = \
	tests/check_layout.c \
	tests/layout.def

STEPPED = tests/libsupport.la tests/libstepped.la lib/libkvshm-internal.la $(CHECK_LIBS)
tests_check_litmus_SOURCES = \
	tests/check_litmus.c \
	tests/litmus.c \
	tests/litmus.h \
	tests/litmus_cases.c \
	tests/litmus_cases.h

tests_check_mend_CPPFLAGS = $(AM_CPPFLAGS) -DKVSHM_STEP
tests_check_mend_LDADD = $(STEPPED)
tests_check_moments_SOURCES = \
	tests/check_moments.c \
	tests/step.c \
	tests/step.h

tests_check_pauseless_SOURCES = \
	tests/check_pauseless.c \
	tests/step.c \
	tests/step.h

tests_check_tier_mend_CPPFLAGS = $(AM_CPPFLAGS) -DKVSHM_STEP
tests_check_tier_mend_LDADD = $(STEPPED)

tests_check_between_SOURCES = \
	tests/check_between.c \
	tests/looker.h
tests_check_between_CPPFLAGS = $(AM_CPPFLAGS) -DKVSHM_STEP
tests_check_between_LDADD = $(STEPPED)

tests_check_readers_SOURCES = \
	tests/check_readers.c \
	tests/looker.h
tests_check_readers_CPPFLAGS = $(AM_CPPFLAGS) -DKVSHM_STEP
tests_check_readers_LDADD = $(STEPPED)

tests_check_ring_SOURCES = \
	tests/check_ring.c \
	tests/ring_file.c \
	tests/ring_file.h

tests_check_tsan_SOURCES = \
	tests/check_tsan.c \
	tests/stress.c \
	tests/stress.h

SCRIPT_TESTS = \
	tests/attach_cost.sh \
	tests/bench_count.sh \
	tests/bench_demo.sh \
	tests/bench_generate.sh \
	tests/bench_manual.sh \
	tests/bench_replay.sh \
	tests/bench_spill.sh \
	tests/bench_torture.sh \
	tests/bench_trace.sh \
	tests/example_open_together.sh \
	tests/exports.sh \
	tests/header.sh \
	tests/hot_path_strace.sh \
	tests/install.sh \
	tests/load.sh \
	tests/man_examples.sh \
	tests/man_lint.sh \
	tests/man_names.sh \
	tests/man_tables.sh \
	tests/musl.sh \
	tests/mutants_table.sh \
	tests/readme_example.sh \
	tests/tool_backing.sh \
	tests/tool_ctl.sh \
	tests/tool_manual.sh \
	tests/tool_servers.sh \
	tests/tool_spill.sh \
	tests/tool_view.sh

# Scripts that only `make check-long` runs.
LONG_TESTS =

# Tests that step a process by instruction, which a process with ThreadSanitizer's threads in it does not bear.
STEPPING_TESTS = \
	tests/check_bounds \
	tests/check_images \
	tests/check_moments \
	tests/check_pauseless
# A process with threads enters no new user or time namespace, and ThreadSanitizer has one of its own.
ALONE_TESTS = tests/check_hosts
if !TSAN
TESTS += $(STEPPING_TESTS) $(ALONE_TESTS)
endif

check_PROGRAMS += $(MODULE_TESTS) $(STEPPING_TESTS) $(ALONE_TESTS)

# What tests run and what is no test itself.
check_PROGRAMS += tests/hot_path
tests_hot_path_SOURCES = \
	tests/hits.h \
	tests/hot_path.c
tests_hot_path_LDADD = lib/libkvshm-internal.la
check_PROGRAMS += tests/attach_cost
tests_attach_cost_LDADD = lib/libkvshm-internal.la
check_PROGRAMS += tests/bench_scribble
tests_bench_scribble_LDADD = lib/libkvshm-internal.la
check_PROGRAMS += tests/torture_audit
tests_torture_audit_LDADD = tests/libsupport.la lib/libkvshm-internal.la

check_PROGRAMS += tests/tool_server
tests_tool_server_LDADD = lib/libkvshm-internal.la

TESTS += $(MODULE_TESTS) $(SCRIPT_TESTS)

# What several tests need.
check_LTLIBRARIES = tests/libsupport.la
tests_libsupport_la_SOURCES = \
	tests/audit.c \
	tests/audit.h \
	tests/audit_look.h \
	tests/audit_tier.c \
	tests/host.c \
	tests/host.h \
	tests/inside.c \
	tests/inside.h \
	tests/spilling.c \
	tests/spilling.h \
	tests/support.c \
	tests/support.h

# What stores to the segment, calling kvshm__step() before each store: for tests that kill between two of them. It comes
# before the internal library, and its objects take the place of those there.
check_LTLIBRARIES += tests/libstepped.la
tests_libstepped_la_CPPFLAGS = $(AM_CPPFLAGS) -DKVSHM_STEP
tests_libstepped_la_SOURCES = \
	lib/ages.c \
	lib/cache.c \
	lib/evict.c \
	lib/fill.c \
	lib/frames.c \
	lib/index.c \
	lib/insert.c \
	lib/lease.c \
	lib/mend.c \
	lib/pages.c \
	lib/reap.c \
	lib/recency.c \
	lib/slots.c \
	lib/spill.c \
	lib/writer.c

# The same threads on libraries in each of which one thing is wrong, for check_tsan: copies of single files of the library,
# with relaxed.h before them, take the place of those in the internal library.
TSAN_MUTANT_CPPFLAGS = $(AM_CPPFLAGS) -include $(top_srcdir)/tests/relaxed.h
TSAN_MUTANT_SOURCES = \
	tests/relaxed.h \
	tests/stress.c \
	tests/stress.h \
	tests/tsan_mutant.c
EXTRA_DIST += $(TSAN_MUTANT_SOURCES)
if TSAN
check_PROGRAMS += tests/tsan_mutant_publication tests/tsan_mutant_release
tests_tsan_mutant_publication_CPPFLAGS = $(TSAN_MUTANT_CPPFLAGS)
tests_tsan_mutant_publication_SOURCES = $(TSAN_MUTANT_SOURCES) \
	lib/index.c \
	lib/pages.c \
	lib/recency.c
tests_tsan_mutant_release_CPPFLAGS = $(TSAN_MUTANT_CPPFLAGS)
tests_tsan_mutant_release_SOURCES = $(TSAN_MUTANT_SOURCES) \
	lib/cache.c
endif

# What a program of this tree is linked to unless it says otherwise.
LDADD = tests/libsupport.la lib/libkvshm-internal.la $(CHECK_LIBS)

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
	URING_LIBS='$(URING_LIBS)'; export URING_LIBS; \
	ASAN_OPTIONS=$${ASAN_OPTIONS-abort_on_error=1}; export ASAN_OPTIONS; \
	UBSAN_OPTIONS=$${UBSAN_OPTIONS-print_stacktrace=1}; export UBSAN_OPTIONS; \
	TSAN_OPTIONS=$${TSAN_OPTIONS-halt_on_error=1 die_after_fork=0 suppressions=$(abs_top_srcdir)/tests/tsan.supp}; \
	export TSAN_OPTIONS;

# The same tests with fewer random calls, kills and rounds; and with more, and with those that take long.
.PHONY: check-quick check-long
check-quick:
	KVSHM_TEST_QUICK=1 $(MAKE) $(AM_MAKEFLAGS) check

check-long:
	$(MAKE) $(AM_MAKEFLAGS) check-models
	KVSHM_TEST_LONG=1 $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(TESTS) $(LONG_TESTS)'
	$(MAKE) $(AM_MAKEFLAGS) check-mutants

# The library with one fault at a time, each of which a test has to catch. It compiles by itself, in a folder here.
MUTANTS_FLAGS = --jobs 2
.PHONY: check-mutants
check-mutants:
	$(PYTHON) $(srcdir)/tests/mutants.py $(MUTANTS_FLAGS) .

# The check of a segment's header, fed by clang's libFuzzer for so many seconds. No part of make check.
FUZZ_CC = clang
FUZZ_S = 60
.PHONY: fuzz-segment
fuzz-segment:
	@mkdir -p tests
	$(FUZZ_CC) -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	  $(DEFS) $(AM_CPPFLAGS) $(CPPFLAGS) -o tests/fuzz_segment $(srcdir)/tests/fuzz_segment.c \
	  $(filter %.c,$(lib_libkvshm_internal_la_SOURCES:lib/%=$(srcdir)/lib/%)) $(LIBS) $(URING_LIBS)
	tests/fuzz_segment -max_total_time=$(FUZZ_S) -max_len=4096
CLEANFILES += tests/fuzz_segment
EXTRA_DIST += tests/fuzz_segment.c tests/tsan.supp

EXTRA_DIST += \
	tests/bench_count.py \
	tests/bench_interrupt.py \
	tests/header_c11.c \
	tests/header_cxx17.cc \
	tests/load_host.c \
	tests/load_host.py \
	tests/README.md \
	tests/man_names.py \
	tests/mutants.py \
	tests/mutants_list.py \
	tests/only.h \
	tests/runner \
	tests/tool_backing.expected \
	tests/tool_ctl.expected \
	tests/tool_lib.sh \
	tests/tool_servers.expected \
	tests/tool_spill.expected \
	tests/tool_view.expected \
	tests/vectors/fxhash.tsv \
	$(SCRIPT_TESTS) \
	$(LONG_TESTS)
