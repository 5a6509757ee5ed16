#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# kvshm-bench replay with a second tier: with little memory it serves what unlimited memory serves, again on the file of
# an earlier run, and over restarts; with kills, with a file that is too small, without a file.

: "${abs_top_srcdir:?}"
. "$abs_top_srcdir/tests/tool_lib.sh"

kvshm-bench generate --requests=600 >"$TMPDIR/trace" || exit 99
file=$TMPDIR/file

# is EXPRESSION: what Python says of the result, as r, is true.
is()
{
    "$PYTHON" -c '
import json, sys
r = json.load(open(sys.argv[1]))
o = r["options"]
assert r["requests"] == 600 and r["wrong_bytes"] == 0 and r["frames_accounted"] == r["frames"] > 0
assert r["blocks_in_memory"] + r["blocks_restored"] + r["blocks_missed"] == r["blocks"]
assert r["blocks_in_memory"] + r["blocks_restored"] == r["blocks_served"]
assert r["spill_bytes_written"] >= r["spilled_pages"] * o["page_bytes"]
assert r["spill_bytes_read"] >= r["restored_pages"] * o["page_bytes"]
assert len(r["restarts"]) == o["restart"]
for x in r["restarts"]:
    assert x["pages_lost"] == max(0, x["pages_before"] - x["pages_found"]), x
assert eval(sys.argv[2]), sys.argv[2]
' "$TMPDIR/result" "$1"
}

# holds EXPRESSION OPTION...: replays; the result is in order, and the expression is true of it.
holds()
{
    expression=$1
    shift
    kvshm-bench replay --json --spill="$file" "$@" "$TMPDIR/trace" >"$TMPDIR/result" && cat "$TMPDIR/result" &&
        [ "$(ls "$KVSHM_DIR")" = "" ] && is "$expression"
}

# What unlimited memory serves, by an independent count; and the pages of the trace.
# shellcheck disable=SC2046 # five numbers
set -- $("$PYTHON" "$abs_top_srcdir/tests/bench_count.py" "$TMPDIR/trace")
served=$3

little="--procs=1 --frames=150"
# shellcheck disable=SC2086 # words
{
    check "little memory serves all" holds \
        "r['blocks_served'] == $served and r['blocks_restored'] > 0 and r['pages_found'] == 0 and r['spilled_pages'] > 0" \
        $little
    check "on the file of before nothing is missed" holds \
        "r['blocks_served'] > $served and r['pages_found'] > 0 and r['blocks_missed'] < r['blocks_served']" $little
    rm "$file"
    check "restarts with a flush lose nothing" holds \
        "r['blocks_served'] == $served and all(x['pages_lost'] == 0 < x['pages_restored'] for x in r['restarts'])" \
        $little --restart=3 --flush
    rm "$file"
    check "restarts without one say what is lost" holds \
        "r['blocks_served'] <= $served and all(x['pages_found'] > 0 for x in r['restarts'])" $little --restart=3
    rm "$file"
    check "a file that is too small" holds "r['blocks_served'] < $served and r['slots'] < 500" $little --spill-size=4M
    rm "$file"
}
check "servers, kills and restarts" holds "r['kills'] == 6" --procs=3 --frames=300 --kill=6 --restart=2
rm "$file"

text()
{
    kvshm-bench replay --procs=1 --frames=150 --restart=1 --flush --spill="$file" "$TMPDIR/trace" >"$TMPDIR/out" || return 1
    cat "$TMPDIR/out"
    grep -q "^blocks served  *$served   0" "$TMPDIR/out" &&
        grep -q '^bytes written  *[0-9]*   [0-9.]* a byte evicted$' "$TMPDIR/out" &&
        grep -q '^restart 1 at request 300: \([0-9]*\) of \1 pages found in the file, 0 lost; since' "$TMPDIR/out"
}
check "text" text

usage()
{
    for arguments in "--restart=1" "--spill-size=1M" "--flush" "--spill=$file --flush" "--spill=$file --restart=x" \
        "--spill=$file --spill-size=1x"; do
        # shellcheck disable=SC2086 # words
        kvshm-bench replay $arguments "$TMPDIR/trace" >"$TMPDIR/out" 2>"$TMPDIR/err"
        status=$?
        echo "'$arguments': $status"
        [ $status = 2 ] && [ ! -s "$TMPDIR/out" ] && grep -q '^kvshm-bench' "$TMPDIR/err" || return 1
    done
}
check "usage errors" usage

# A file that cannot be had is told, and nothing is left.
no_file()
{
    kvshm-bench replay --spill="$TMPDIR/none/file" "$TMPDIR/trace" >"$TMPDIR/out" 2>&1
    status=$?
    cat "$TMPDIR/out"
    [ $status = 1 ] && [ "$(ls "$KVSHM_DIR")" = "" ]
}
check "no file" no_file

# The measurement, with a peer where there is one; nothing is left, and what is there is let be.
measure()
{
    kvshm-bench spill --bytes=1M --page-bytes=4K --rounds=2 --json "$TMPDIR/measured" >"$TMPDIR/result" || return 1
    cat "$TMPDIR/result"
    "$PYTHON" -c '
import json, sys
r = json.load(open(sys.argv[1]))
assert r["version"] == 1 and r["benchmark"] == "spill" and r["bytes"] == 1 << 20 and r["transfer_bytes"] == 4096
assert r["spill_mib_per_s"] > 0 and r["restore_mib_per_s"] > 0 and r["open_s"] > 0
assert ("fio_write_mib_per_s" in r) == (r["peer"] == "fio")
' "$TMPDIR/result" && [ ! -e "$TMPDIR/measured" ] && [ "$(ls "$KVSHM_DIR")" = "" ] || return 1
    kvshm-bench spill --bytes=1M --rounds=1 "$TMPDIR/measured" | grep 'MiB/s' || return 1
    kvshm-bench spill --bytes=0 "$TMPDIR/measured" 2>"$TMPDIR/err"
    [ $? = 2 ] && grep -q -e '--bytes: 0 is too small' "$TMPDIR/err" || return 1
    echo mine >"$TMPDIR/measured"
    ! kvshm-bench spill "$TMPDIR/measured" && [ "$(cat "$TMPDIR/measured")" = mine ]
}
check "the measurement" measure
finish
