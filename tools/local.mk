# SPDX-License-Identifier: Apache-2.0
# The tools: viewer and benchmark for every user, the one that changes arenas for administrators. A program is a
# line in bin_PROGRAMS or sbin_PROGRAMS and its list of files, one a line, sorted.

TOOLS_LIBS = lib/libkvshm-internal.la $(JSON_C_LIBS) $(SMARTCOLS_LIBS) $(JEMALLOC_LIBS)
