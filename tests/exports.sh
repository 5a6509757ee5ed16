#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The shared library exports the calls that the public header declares, and nothing else; and it loads no library but
# the C library, so that any host can load it.

set -eu
: "${abs_top_srcdir:?}" "${abs_top_builddir:?}"

so=$abs_top_builddir/lib/.libs/libkvshm.so
if [ ! -e "$so" ]; then
    echo "configured without the shared library"
    exit 77
fi

# result NUMBER NAME FILE...: the case has passed if the two files are equal.
result()
{
    number=$1 name=$2
    shift 2
    if diff -u "$@" >"$TMPDIR/difference"; then
        echo "ok $number - $name"
    else
        sed 's/^/# /' "$TMPDIR/difference"
        echo "not ok $number - $name"
    fi
}

sed -n 's/^KVSHM_API .*[ *]\(kvshm_[a-z0-9_]*\)(.*/\1/p' "$abs_top_srcdir/lib/kvshm.h" |
    sort >"$TMPDIR/declared"
nm -D --defined-only "$so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$TMPDIR/exported"
[ -s "$TMPDIR/declared" ] || { echo "no declaration found in kvshm.h"; exit 1; }

echo "1..2"
result 1 "exported_is_declared" "$TMPDIR/declared" "$TMPDIR/exported"

# liburing is loaded with the library only where its static form could not be linked into it.
echo libc.so.6 >"$TMPDIR/allowed"
case " ${URING_LIBS-} " in
    *" -luring "*) echo liburing.so.2 >>"$TMPDIR/allowed" ;;
esac
objdump -p "$so" | awk '
    $1 != "NEEDED" { next }
    $2 ~ /^(ld-linux.*|libpthread\.so\.0|librt\.so\.1)$/ { next }
    $2 ~ /^lib(asan|ubsan|tsan)\.so/ { next }
    { print $2 }' >"$TMPDIR/needed"
sort -o "$TMPDIR/allowed" "$TMPDIR/allowed"
sort -o "$TMPDIR/needed" "$TMPDIR/needed"
result 2 "needs_only_the_c_library" "$TMPDIR/allowed" "$TMPDIR/needed"
