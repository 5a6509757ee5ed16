# SPDX-License-Identifier: Apache-2.0
# Programs that use the library as its users do: kvshm.h and the exported names, nothing else. A program is a line
# in EXAMPLES, its file, and its LDADD.

EXAMPLES =

noinst_PROGRAMS += $(EXAMPLES)
