# SPDX-License-Identifier: Apache-2.0
# The tools: viewer and benchmark for every user, the one that changes arenas for administrators. A program is a
# line in bin_PROGRAMS or sbin_PROGRAMS and its list of files, one a line, sorted.

TOOLS_LIBS = lib/libkvshm-internal.la $(JSON_C_LIBS) $(SMARTCOLS_LIBS) $(JEMALLOC_LIBS)

bin_PROGRAMS += tools/kvshm
tools_kvshm_SOURCES = \
	tools/columns.c \
	tools/columns.h \
	tools/common.c \
	tools/common.h \
	tools/kvshm.c
tools_kvshm_LDADD = $(TOOLS_LIBS)

sbin_PROGRAMS += tools/kvshmctl
tools_kvshmctl_SOURCES = \
	tools/common.c \
	tools/common.h \
	tools/create_options.c \
	tools/create_options.h \
	tools/kvshmctl.c
tools_kvshmctl_LDADD = $(TOOLS_LIBS)

bin_PROGRAMS += tools/kvshm-bench
tools_kvshm_bench_SOURCES = \
	tools/bench.h \
	tools/bench_arena.c \
	tools/bench_arena.h \
	tools/bench_bed.c \
	tools/bench_bed.h \
	tools/bench_content.c \
	tools/bench_content.h \
	tools/bench_create.c \
	tools/bench_generate.c \
	tools/bench_hist.c \
	tools/bench_hist.h \
	tools/bench_lmdb.c \
	tools/bench_lmdb.h \
	tools/bench_lookup.c \
	tools/bench_memory.c \
	tools/bench_progress.c \
	tools/bench_progress.h \
	tools/bench_readers.c \
	tools/bench_readers.h \
	tools/bench_replay.c \
	tools/bench_report.c \
	tools/bench_report.h \
	tools/bench_server.c \
	tools/bench_server.h \
	tools/bench_spill.c \
	tools/bench_torture.c \
	tools/bench_torture.h \
	tools/bench_torture_act.c \
	tools/bench_torture_act.h \
	tools/bench_torture_check.c \
	tools/bench_torture_content.c \
	tools/bench_torture_fork.c \
	tools/bench_torture_gone.c \
	tools/bench_torture_report.c \
	tools/bench_torture_server.c \
	tools/bench_trace.c \
	tools/bench_trace.h \
	tools/common.c \
	tools/common.h \
	tools/kvshm-bench.c
tools_kvshm_bench_CPPFLAGS = $(AM_CPPFLAGS) $(LMDB_CPPFLAGS)
tools_kvshm_bench_LDADD = $(TOOLS_LIBS) $(LMDB_LIBS)

EXTRA_DIST += tools/demo.sh
