# SPDX-License-Identifier: Apache-2.0
# The library. Every file of lib/ stands in lib_libkvshm_internal_la_SOURCES, one a line, sorted, headers and .def
# files too; kvshm.h alone is installed and stands in include_HEADERS.

include_HEADERS += lib/kvshm.h

# All modules, with their hidden names: what the tests and the tools link to.
noinst_LTLIBRARIES += lib/libkvshm-internal.la
lib_libkvshm_internal_la_SOURCES =

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
