#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The demo: it says that all was right, and what it says is right by an independent count.

: "${abs_top_srcdir:?}"
: "${abs_top_builddir:?}"
. "$abs_top_srcdir/tests/tool_lib.sh"

limit_kib=1048576 # of all its processes together

demo()
{
    sh "$abs_top_srcdir/tools/demo.sh" "$abs_top_builddir" >"$TMPDIR/out" 2>"$TMPDIR/err"
    status=$?
    cat "$TMPDIR/out" "$TMPDIR/err"
    [ $status = 0 ] && [ ! -s "$TMPDIR/err" ] && grep -q '^All was right\.' "$TMPDIR/out" &&
        [ "$(ls "$KVSHM_DIR")" = "" ]
}

# number TEXT RUN: what stands behind it in the table, of that run.
number()
{
    sed -n "s/^ *$1  *\([0-9]*[0-9. -]*\).*/\1/p" "$TMPDIR/out" | awk -v run="$2" '{ print $run }'
}

# What must hold of each run: with a file as much is served as unlimited memory would serve, and more on it afterwards.
sound()
{
    # shellcheck disable=SC2046 # five numbers
    set -- $("$PYTHON" "$abs_top_srcdir/tests/bench_count.py" "$TMPDIR/trace")
    for run in 1 2 3; do
        served=$(number 'blocks that were not computed again' $run)
        echo "independent count: $3, demo, run $run: $served"
        [ "$(number 'requests answered' $run)" = 2000 ] && [ "$1" = 2000 ] &&
            [ "$(number 'blocks in their prompts' $run)" = "$2" ] &&
            [ "$(number 'wrong bytes among all that were read' $run)" = 0 ] &&
            [ "$(number 'servers killed, and replaced' $run)" = 1 ] &&
            [ "$(number 'pages of that memory lost' $run)" = 0 ] &&
            [ "$(number 'memory of the cache' $run)" -lt 64 ] || return 1
    done
    little=$(number 'blocks that were not computed again' 1)
    again=$served
    served=$(number 'blocks that were not computed again' 2)
    [ "$little" -lt "$served" ] && [ "$served" -le $(($3 + $5)) ] && [ "$again" -gt "$served" ] &&
        [ "$(number 'of these, read from the file' 1)" = 0 ] &&
        [ "$(number 'of these, read from the file' 2)" -gt 0 ] &&
        [ "$(number 'of these, read from the file' 3)" -gt 0 ]
}

# At least 0.95 of the count, most of it of others.
shared()
{
    # shellcheck disable=SC2046 # five numbers
    set -- $("$PYTHON" "$abs_top_srcdir/tests/bench_count.py" "$TMPDIR/trace")
    [ "$served" -ge $((($3 * 95 + 99) / 100)) ] &&
        [ "$(number 'of these, computed by another process' 2)" -gt $((served / 2)) ]
}

# Of the run that was made, or of one more: where the scheduler lets one process alone work for long, they share less.
right()
{
    kvshm-bench generate >"$TMPDIR/trace" && sound || return 1
    for _ in $(seq 50); do
        shared && return 0
        demo && sound || return 1
    done
    echo "they shared less than 0.95, or did not share most, each time"
    return 1
}

# The arena, and what each process has beside it: the largest one five times.
small()
{
    "$PYTHON" - "$abs_top_srcdir/tools/demo.sh" "$abs_top_builddir" <<'END' >"$TMPDIR/peak" || return 1
import resource, subprocess, sys
subprocess.run(["sh"] + sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
END
    echo "largest process: $(cat "$TMPDIR/peak") KiB, arena included"
    [ $(($(cat "$TMPDIR/peak") * 5)) -le $limit_kib ]
}

# A benchmark that fails makes the demo fail, and is told.
failing()
{
    mkdir -p "$TMPDIR/build/tools"
    cat >"$TMPDIR/build/tools/kvshm-bench" <<END
#!/bin/sh
kvshm-bench "\$@"
[ "\$1" = generate ]
END
    chmod +x "$TMPDIR/build/tools/kvshm-bench"
    sh "$abs_top_srcdir/tools/demo.sh" "$TMPDIR/build" >"$TMPDIR/bad" 2>&1
    [ $? = 1 ] && grep -q '^SOMETHING WAS WRONG' "$TMPDIR/bad"
}

check "the demo" demo
check "its numbers" right
case $KVSHM_SANITIZERS in
    *address* | *thread*)
        ;; # they take memory of their own
    *)
        check "its memory" small ;;
esac
check "a demo that fails" failing
finish
