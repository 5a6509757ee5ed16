#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# kvshm-bench replay serves exactly what an independent count says, and hardly less when four servers work at once.

: "${abs_top_srcdir:?}"
. "$abs_top_srcdir/tests/tool_lib.sh"

count=$abs_top_srcdir/tests/bench_count.py
requests=2000
[ -z "${KVSHM_TEST_QUICK-}" ] || requests=1000

# replay FILE OPTION...: the result in $TMPDIR/result, which value NAME reads.
replay()
{
    trace=$1
    shift
    kvshm-bench replay --json "$@" "$trace" >"$TMPDIR/result"
}

value()
{
    "$PYTHON" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$TMPDIR/result" "$1"
}

# Sets requests, blocks, served, distinct, longest as the independent count has them.
independent()
{
    # shellcheck disable=SC2046 # five numbers
    set -- $("$PYTHON" "$count" "$1")
    requests=$1 blocks=$2 served=$3 distinct=$4 longest=$5
}

# One process serves that number of blocks, not one more or less, none of them another's, and keeps each block once.
exactly()
{
    pages_per_block=$1
    shift
    independent "$1" && replay "$@" --procs=1 --unlimited || return 1
    echo "independent: $requests requests, $served of $blocks blocks; kvshm-bench: $(value blocks_served)"
    [ "$(value requests)" = "$requests" ] && [ "$(value blocks)" = "$blocks" ] &&
        [ "$(value blocks_served)" = "$served" ] && [ "$(value blocks_of_others)" = 0 ] &&
        [ "$(value pages)" = $((distinct * pages_per_block)) ] && [ "$(value evicted_pages)" = 0 ] &&
        [ "$served" -gt 0 ]
}

# Several processes: no more but what a killed server had inserted already; and at least 0.95 of it, most of it others',
# in some run: where the scheduler lets one process alone work for long, or sleep over a request, it is less.
nearly()
{
    kills=$1
    shift
    independent "$1" || return 1
    for _ in $(seq 50); do
        replay "$@" --procs=4 --unlimited --kill="$kills" || return 1
        got=$(value blocks_served)
        echo "independent: $served, four processes: $got, of others: $(value blocks_of_others)"
        [ "$got" -le $((served + kills * longest)) ] && [ "$(value kills)" = "$kills" ] &&
            [ "$(value evicted_entries)" = 0 ] || return 1
        [ "$got" -lt $((served * 95 / 100)) ] || [ "$(value blocks_of_others)" -le $((got / 2)) ] || return 0
    done
    echo "that was less than 0.95, or not mostly of others, each time"
    return 1
}

kvshm-bench generate --requests=$requests >"$TMPDIR/one" || exit 99
kvshm-bench generate --requests=$requests --seed=7 >"$TMPDIR/seven" || exit 99

# The same ids behind other ids are other blocks; requests that are wholly cached, and cached beyond their end.
line()
{
    echo "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [$1]}"
}
{
    line "1, 2, 3"
    line "1, 3, 2, 3"
    line "2, 3"
    line "1, 2"
    line "1, 2, 3"
    line "2, 3, 9223372036854775807, 0"
    line "1, 3, 2, 3, 1"
    line "0"
    line "2, 3, 9223372036854775807, 1"
} >"$TMPDIR/hand"

check "one process, seed 1" exactly 1 "$TMPDIR/one"
check "one process, seed 7" exactly 1 "$TMPDIR/seven"
check "one process, a trace made by hand" exactly 1 "$TMPDIR/hand"
check "one process, eight pages a block" exactly 8 "$TMPDIR/one" --page-tokens=64 --page-bytes=100
check "one process, 512 pages a block" exactly 512 "$TMPDIR/hand" --page-tokens=1 --page-bytes=1
check "four processes" nearly 0 "$TMPDIR/one"
check "four processes, one killed" nearly 1 "$TMPDIR/seven"
finish
