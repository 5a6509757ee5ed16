#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The library on another C library: Debian's musl-gcc builds it, shared and static, without a warning; programs of musl use
# it, and share an arena with programs of the C library that the rest is built on.
#
# musl-gcc looks at musl's headers alone. Those of Linux and of xxhash, which is a header only, come behind them.

set -u
: "${abs_top_srcdir:?}" "${abs_top_builddir:?}" "${CC:?}"

command -v musl-gcc >/dev/null || { echo "there is no musl-gcc"; exit 77; }

lib=$abs_top_srcdir/lib
flags="-std=gnu11 -O1 -g -Wall -Wextra -Werror -D_GNU_SOURCE -fPIC -fvisibility=hidden -I$lib"
flags="$flags -idirafter /usr/include -idirafter /usr/include/$(gcc -print-multiarch)"
sources=$(awk '/^lib_libkvshm_internal_la_SOURCES/ { on = 1; next } on { print $1 } on && !/\\$/ { exit }' "$lib/local.mk" |
    grep '\.c$')
number=0

# check NAME COMMAND...
check()
{
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"$TMPDIR/said" 2>&1; then
        echo "ok $number - $name"
    else
        sed 's/^/# /' "$TMPDIR/said"
        echo "not ok $number - $name"
    fi
}

compile()
{
    for source in $sources; do
        # shellcheck disable=SC2086
        musl-gcc $flags -c "$abs_top_srcdir/$source" -o "$TMPDIR/$(basename "$source" .c).o" || return 1
    done
    [ -e "$TMPDIR/arena.o" ]
}

# host NAME ARGUMENT...: load_host.c as a program of musl.
host()
{
    name=$1
    shift
    # shellcheck disable=SC2086
    musl-gcc $flags -o "$TMPDIR/$name" "$abs_top_srcdir/tests/load_host.c" "$@"
}

link()
{
    musl-gcc -shared -Wl,-z,defs -Wl,--version-script="$lib/libkvshm.map" -o "$TMPDIR/libkvshm.so" "$TMPDIR"/*.o &&
        ar rc "$TMPDIR/libkvshm.a" "$TMPDIR"/*.o &&
        host shared -L"$TMPDIR" -lkvshm -Wl,-rpath,"$TMPDIR" &&
        host static -static "$TMPDIR/libkvshm.a"
}

needs_musl_alone()
{
    needed=$(objdump -p "$TMPDIR/libkvshm.so" | awk '$1 == "NEEDED" { print $2 }')
    echo "$needed"
    [ "$needed" = libc.so ]
}

# Both ways: one fills, the other reads and adds.
together()
{
    sanitizers=
    for s in ${KVSHM_SANITIZERS-}; do
        sanitizers="$sanitizers -fsanitize=$s"
    done
    # shellcheck disable=SC2086
    $CC $sanitizers -I"$lib" -o "$TMPDIR/other" "$abs_top_srcdir/tests/load_host.c" -L"$abs_top_builddir/lib/.libs" \
        -Wl,-rpath,"$abs_top_builddir/lib/.libs" -lkvshm &&
        "$TMPDIR/other" fill && "$TMPDIR/shared" read && "$TMPDIR/static" fill && "$TMPDIR/other" read
}

echo "1..6"
check builds compile
check links link
check needs_musl_alone needs_musl_alone
check shared_library "$TMPDIR/shared" plain
check static_library "$TMPDIR/static" plain
check shares_an_arena_with_the_other_c_library together
