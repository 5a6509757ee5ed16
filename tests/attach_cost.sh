#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# An attach costs the same system calls and page faults whatever the size of the arena: 1 MiB beside 256 MiB, in the long
# form beside 8 GiB. A few faults more are let pass: where heap, stack and a sanitizer's shadow lie is drawn for each process.
# What touched each page of a table, or of the frames, would take thousands.

set -u
: "${abs_top_builddir:?}"

if ! strace -o "$TMPDIR/trace" true 2>"$TMPDIR/said"; then
    cat "$TMPDIR/said"
    echo "strace cannot trace here"
    exit 77
fi

# The sanitizers' look for leaks cannot run under a tracer.
ASAN_OPTIONS=detect_leaks=0
export ASAN_OPTIONS

small=1048576
large=268435456
[ -z "${KVSHM_TEST_LONG-}" ] || large=8589934592
spare=16

cost=$abs_top_builddir/tests/attach_cost

# least_faults FLAGS: the least page faults of ten attaches, each in a process of its own: where the heap and the stack begin
# is drawn anew for each, and now and then costs one page more
least_faults()
{
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$cost" attach "$1" || return 1
    done >"$TMPDIR/tries" && sort -n "$TMPDIR/tries" | head -n 1
}

# measure BYTES FLAGS: leaves the names of the system calls in calls.BYTES, and the page faults in faults.BYTES
measure()
{
    "$cost" create "$1" && least_faults "$2" >"$TMPDIR/faults.$1" &&
        strace -o "$TMPDIR/trace" "$cost" attach "$2" >/dev/null && "$cost" remove || return 1
    awk '/getppid\(/ { marks++; next }
        marks == 1 { sub(/\(.*/, ""); print }
        END { if (marks != 2) print "marks: " marks + 0 }' "$TMPDIR/trace" >"$TMPDIR/calls.$1"
}

# result NUMBER NAME STATUS
result()
{
    if [ "$3" = 0 ]; then
        echo "ok $1 - $2"
    else
        echo "not ok $1 - $2"
    fi
}

number=0
for flags in 0 1; do
    what=writer
    [ $flags = 0 ] || what=reader
    measure $small $flags && measure $large $flags
    measured=$?
    same=1
    [ $measured = 0 ] && [ -s "$TMPDIR/calls.$small" ] && diff -u "$TMPDIR/calls.$small" "$TMPDIR/calls.$large" &&
        same=0
    number=$((number + 1))
    result $number "system calls of a $what" $same
    few=1
    [ $measured = 0 ] && echo "# page faults: $(cat "$TMPDIR/faults.$small"), $(cat "$TMPDIR/faults.$large")" &&
        [ "$(cat "$TMPDIR/faults.$large")" -le $(($(cat "$TMPDIR/faults.$small") + spare)) ] && few=0
    number=$((number + 1))
    result $number "page faults of a $what" $few
done
echo "1..$number"
