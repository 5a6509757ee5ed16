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
	tools/kvshmctl.c
tools_kvshmctl_LDADD = $(TOOLS_LIBS)
