# SPDX-License-Identifier: Apache-2.0
# The library. Every file of lib/ stands in lib_libkvshm_internal_la_SOURCES, one a line, sorted, headers and .def
# files too; kvshm.h alone is installed and stands in include_HEADERS.

include_HEADERS += lib/kvshm.h

# All modules, with their hidden names: what the tests and the tools link to.
noinst_LTLIBRARIES += lib/libkvshm-internal.la
lib_libkvshm_internal_la_SOURCES = \
	lib/arena.c \
	lib/atomics.h \
	lib/backing.c \
	lib/backing.h \
	lib/cache.c \
	lib/calls.h \
	lib/client.c \
	lib/client.h \
	lib/config.c \
	lib/config.h \
	lib/counters.def \
	lib/entries.c \
	lib/errors.def \
	lib/evict.c \
	lib/evict.h \
	lib/fill.c \
	lib/fork.c \
	lib/fork.h \
	lib/frames.c \
	lib/frames.h \
	lib/handle.h \
	lib/index.c \
	lib/index.h \
	lib/index_look.h \
	lib/insert.c \
	lib/insert.h \
	lib/layout.h \
	lib/lease.c \
	lib/lease.h \
	lib/limit.c \
	lib/limit.h \
	lib/lines.c \
	lib/lines.h \
	lib/look.c \
	lib/load.c \
	lib/load.h \
	lib/mend.c \
	lib/mend.h \
	lib/message.c \
	lib/message.h \
	lib/mounts.c \
	lib/mounts.h \
	lib/numa.c \
	lib/numa.h \
	lib/pages.c \
	lib/pages.h \
	lib/place.c \
	lib/place.h \
	lib/plan.c \
	lib/plan.h \
	lib/populate.c \
	lib/populate.h \
	lib/private.c \
	lib/private.h \
	lib/reap.c \
	lib/reap.h \
	lib/recency.c \
	lib/recency.h \
	lib/ring.c \
	lib/ring.h \
	lib/segment.c \
	lib/segment.h \
	lib/slots.c \
	lib/slots.h \
	lib/spill.c \
	lib/spill.h \
	lib/spill_file.c \
	lib/spill_file.h \
	lib/spill_layout.h \
	lib/sys.c \
	lib/sys.h \
	lib/adopt.c \
	lib/adopt.h \
	lib/ages.c \
	lib/ages.h \
	lib/batch.c \
	lib/batch.h \
	lib/tier.c \
	lib/tier.h \
	lib/tokens.c \
	lib/tokens.h \
	lib/validate.c \
	lib/validate.h \
	lib/wide.h \
	lib/writer.c \
	lib/writer.h
lib_libkvshm_internal_la_LIBADD = $(URING_LIBS)

# The same objects, with only the public names seen: what is installed.
#
# -version-info CURRENT:REVISION:AGE, changed once a release:
#   only code changed                              REVISION + 1
#   calls, outcomes or fields at a struct's end added   CURRENT + 1, REVISION 0, AGE + 1
#   something removed or changed                   CURRENT + 1, REVISION 0, AGE 0
lib_LTLIBRARIES += lib/libkvshm.la
lib_libkvshm_la_SOURCES =
lib_libkvshm_la_LIBADD = lib/libkvshm-internal.la
lib_libkvshm_la_LDFLAGS = -no-undefined -version-info 0:0:0 \
	-Wl,--version-script=$(top_srcdir)/lib/libkvshm.map
EXTRA_lib_libkvshm_la_DEPENDENCIES = $(top_srcdir)/lib/libkvshm.map
EXTRA_DIST += lib/libkvshm.map

pkgconfig_DATA += lib/kvshm.pc
