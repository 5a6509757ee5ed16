#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The shared library in hosts that it does not know: Python, which loads it at run time, twice too, with and without
# jemalloc before it; a program linked to jemalloc, and a plain one.

set -u
: "${abs_top_srcdir:?}" "${abs_top_builddir:?}" "${CC:?}"

so=$abs_top_builddir/lib/.libs/libkvshm.so
[ -e "$so" ] || { echo "configured without the shared library"; exit 77; }

sanitizers=
for s in ${KVSHM_SANITIZERS-}; do
    sanitizers="$sanitizers -fsanitize=$s"
done

number=0
result()
{
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        sed 's/^/# /' "$TMPDIR/said"
        echo "not ok $number - $2"
    fi
}

# python WHERE [NAME=VALUE]: the cases of load_host.py.
python()
{
    where=$1
    shift
    env "$@" "${PYTHON:-python3}" "$abs_top_srcdir/tests/load_host.py" "$so" "$abs_top_srcdir/lib/kvshm.h" \
        "$TMPDIR/copy.so" >"$TMPDIR/said" 2>&1
    for case in every_function forked loaded_twice memory; do
        grep -qx "ok - ${case}_$where" "$TMPDIR/said"
        result $? "python_${case}_$where"
    done
}

# program WHAT [FLAG...]
program()
{
    what=$1
    shift
    # shellcheck disable=SC2086
    $CC -Wall -Wextra -Werror $sanitizers -I"$abs_top_srcdir/lib" -o "$TMPDIR/$what" "$abs_top_srcdir/tests/load_host.c" \
        -L"$abs_top_builddir/lib/.libs" -Wl,-rpath,"$abs_top_builddir/lib/.libs" -lkvshm "$@" >"$TMPDIR/said" 2>&1 &&
        "$TMPDIR/$what" "$what" >>"$TMPDIR/said" 2>&1
    result $? "program_$what"
}

# A sanitizer has a malloc of its own, and Python has none of its runtime.
if [ -n "$sanitizers" ]; then
    echo "1..1"
    program plain
    exit 0
fi
echo "1..10"
cp "$so" "$TMPDIR/copy.so"
python on_the_c_library
python on_jemalloc LD_PRELOAD=libjemalloc.so.2
program plain
program jemalloc -Wl,--no-as-needed -ljemalloc
