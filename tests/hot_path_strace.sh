#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A hit makes no system call: hits of all kinds between two marks, seen by strace. Also while other threads of the process
# move pages to a spill file and back.

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

# ThreadSanitizer's own locks are no calls of the library.
own_calls='^$'
case " ${KVSHM_SANITIZERS-} " in
*' thread '*) own_calls='futex\(' ;;
esac

# between ARGUMENTS: system calls of the thread that makes the marks, between them, or what went wrong.
between()
{
    strace -f -o "$TMPDIR/trace" "$abs_top_builddir/tests/hot_path" "$@" >"$TMPDIR/said" 2>&1 || {
        cat "$TMPDIR/said" >&2
        echo "hot_path failed"
        return
    }
    awk -v own_calls="$own_calls" '/getsid resumed/ || $0 ~ own_calls { next }
        /getsid\(/ { marks++; thread = $1; next }
        marks == 1 && $1 == thread { calls++; print > "/dev/stderr" }
        END { if (marks == 2) print calls + 0; else print "marks: " marks + 0 }' "$TMPDIR/trace"
}

# result NUMBER NAME ANSWER EXPECTED
result()
{
    if [ "$3" = "$4" ]; then
        echo "ok $1 - $2"
    else
        echo "not ok $1 - $2: system calls between the marks: $3, expected $4"
    fi
}

echo "1..5"
result 1 "100000 hits make no system call" "$(between 100000)" 0
result 2 "a system call between the marks is seen" "$(between 10 noise 2>"$TMPDIR/seen")" 1
result 3 "hits beside a tier that writes and reads make no system call" "$(between 20000 tier "$TMPDIR/spill")" 0
if awk '/getsid\(/ { marks++; thread = $1; next } marks == 1 && $1 != thread { found = 1 } END { exit !found }' \
    "$TMPDIR/trace"; then
    echo "ok 4 - those of the tier are seen"
else
    echo "not ok 4 - those of the tier are seen"
fi

# Writing and reading 2048 pages, by one thread, all of whose calls count; without fio, which makes some of its own.
mkdir "$TMPDIR/without" || exit 99
printf '#!/bin/sh\nexit 1\n' >"$TMPDIR/without/fio"
chmod +x "$TMPDIR/without/fio"
PATH=$TMPDIR/without:$PATH strace -f -o "$TMPDIR/trace" "$abs_top_builddir/tools/kvshm-bench" spill --rounds=1 \
    --page-bytes=4K --bytes=8M "$TMPDIR/paged" >"$TMPDIR/said" 2>&1 || cat "$TMPDIR/said" >&2
awk -v own_calls="$own_calls" '/io_uring_enter/ { tier[$1] = 1 }
    !/resumed>|\+\+\+|---/ && $0 !~ own_calls { calls[$1]++ }
    END { for (thread in tier) sum += calls[thread]; print sum + 0 }' "$TMPDIR/trace" >"$TMPDIR/calls"
read -r calls <"$TMPDIR/calls"
if [ "$calls" -gt 0 ] && [ "$calls" -lt 4096 ]; then
    echo "ok 5 - a page written or read takes less than one system call"
else
    echo "not ok 5 - a page written or read takes less than one system call: $calls calls of the tier for 4096 transfers"
fi
echo "# $calls system calls of the tier, 2048 pages written and 2048 read"
