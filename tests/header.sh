#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The public header compiles alone, without a warning, as strict C11 and C++17, and programs of both languages link to
# the library and run.

set -u
: "${abs_top_srcdir:?}" "${abs_top_builddir:?}" "${KVSHM_LIBTOOL:?}" "${CC:?}"

strict="-Wall -Wextra -pedantic -Werror"
number=0

# result NAME STATUS: one case, with what was said in $TMPDIR/said.
result()
{
    number=$((number + 1))
    if [ "$2" -eq 0 ]; then
        echo "ok $number - $1"
    else
        sed 's/^/# /' "$TMPDIR/said"
        echo "not ok $number - $1"
    fi
}

# program NAME SOURCE COMPILER...: compiles, links and runs it. KVSHM_CFLAGS has what the library was built with, of
# which a sanitizer is needed here too.
program()
{
    name=$1 source=$2
    shift 2
    sanitizers=
    for s in ${KVSHM_SANITIZERS-}; do
        sanitizers="$sanitizers -fsanitize=$s"
    done
    # shellcheck disable=SC2086
    "$@" $strict $sanitizers -I"$abs_top_srcdir/lib" -c "$source" -o "$TMPDIR/$name.o" >"$TMPDIR/said" 2>&1
    result "$name compiles" $?
    # shellcheck disable=SC2086
    $KVSHM_LIBTOOL --quiet --tag=CC --mode=link "$@" $sanitizers "$TMPDIR/$name.o" -o "$TMPDIR/$name" \
        "$abs_top_builddir/lib/libkvshm.la" >"$TMPDIR/said" 2>&1 &&
        "$TMPDIR/$name" >>"$TMPDIR/said" 2>&1
    result "$name links and runs" $?
}

echo "1..4"
# shellcheck disable=SC2086
program header_c11 "$abs_top_srcdir/tests/header_c11.c" $CC -std=c11
if [ -n "${CXX-}" ]; then
    # shellcheck disable=SC2086
    program header_cxx17 "$abs_top_srcdir/tests/header_cxx17.cc" $CXX -std=c++17
else
    echo "ok 3 - header_cxx17 compiles # SKIP no C++ compiler"
    echo "ok 4 - header_cxx17 links and runs # SKIP no C++ compiler"
fi
