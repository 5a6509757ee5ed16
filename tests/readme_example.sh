#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The C program of README.md is examples/readme.c; it compiles as it stands there; run twice, it prints what README
# says.

set -eu
: "${abs_top_srcdir:?}" "${abs_top_builddir:?}" "${CC:?}" "${KVSHM_LIBTOOL:?}"

# The first block of C into example.c, the block of text behind it into expected.
awk -v out="$TMPDIR" '
    /^```c$/ && !seen { seen = 1; file = out "/example.c"; next }
    /^```text$/ && seen == 1 { seen = 2; file = out "/expected"; next }
    /^```$/ { file = ""; next }
    file != "" { print >file }' "$abs_top_srcdir/README.md"

diff -u "$abs_top_srcdir/examples/readme.c" "$TMPDIR/example.c"
[ "$(wc -l <"$TMPDIR/example.c")" -le 35 ]

# shellcheck disable=SC2086 # lists of words
$KVSHM_LIBTOOL --quiet --tag=CC --mode=link $CC $KVSHM_CFLAGS -I"$abs_top_srcdir/lib" -o "$TMPDIR/example" \
    "$TMPDIR/example.c" "$abs_top_builddir/lib/libkvshm.la"
for _ in 1 2; do
    echo "\$ ./example"
    "$TMPDIR/example"
done >"$TMPDIR/said"
diff -u "$TMPDIR/expected" "$TMPDIR/said"
