#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# kvshm-bench replay with kills, with little memory and with damage; its forms of output; how it ends.

: "${abs_top_srcdir:?}"
. "$abs_top_srcdir/tests/tool_lib.sh"

requests=3000
kills=60
[ -z "${KVSHM_TEST_QUICK-}" ] || requests=600 kills=12
kvshm-bench generate --requests=$requests >"$TMPDIR/trace" || exit 99
kvshm-bench generate --requests=50 >"$TMPDIR/short" || exit 99
kvshm-bench generate --requests=5000 >"$TMPDIR/damage" || exit 99
kvshm-bench generate --requests=50000 >"$TMPDIR/long" || exit 99

nothing_left()
{
    [ "$(ls "$KVSHM_DIR")" = "" ]
}

# is EXPRESSION: what Python says of the result, as r, is true.
is()
{
    "$PYTHON" -c '
import json, sys
r = json.load(open(sys.argv[1]))
assert eval(sys.argv[2]), sys.argv[2]
' "$TMPDIR/result" "$1"
}

# holds EXPRESSION OPTION...: replays; the result is in order, and the expression is true of it.
holds()
{
    expression=$1
    shift
    kvshm-bench replay --json "$@" >"$TMPDIR/result" && cat "$TMPDIR/result" && nothing_left &&
        "$PYTHON" -c '
import json, sys
r = json.load(open(sys.argv[1]))
assert r["version"] == 1 and r["benchmark"] == "replay"
assert r["requests"] > 0 and r["wrong_bytes"] == 0 and r["frames_accounted"] == r["frames"] > 0
assert r["matches"] >= r["requests"] and 0 < r["match_median_ns"] <= r["match_p99_ns"]
assert r["blocks_of_others"] <= r["blocks_served"] <= r["blocks"]
assert abs(r["served_ratio"] - r["blocks_served"] / r["blocks"]) < 1e-6
' "$TMPDIR/result" && is "$expression"
}

# Where a kill meets a server is the scheduler's: again, with another seed, until one met it in a request.
kills_in_requests()
{
    for kill_seed in $(seq 100); do
        holds "r['kills'] == $kills and r['evicted_entries'] == 0" --kill=$kills --seed="$kill_seed" "$TMPDIR/trace" ||
            return 1
        is "r['kills_in_request'] > 0" 2>"$TMPDIR/err" && return 0
    done
    echo "no server was killed in a request, in 100 replays"
    return 1
}

check "many kills" kills_in_requests
check "more kills than requests" holds "r['kills'] == 120 and r['requests'] == 50" --kill=120 --procs=2 "$TMPDIR/short"
check "little memory" holds "r['evicted_entries'] > 0 and r['evicted_pages'] > 0 and r['frames'] == 500" \
    --frames=500 "$TMPDIR/trace"
check "little memory and kills" holds "r['evicted_entries'] > 0 and r['kills'] == $kills" \
    --frames=500 --kill=$kills "$TMPDIR/trace"
check "less memory than a prompt" holds "r['not_inserted'] > 0 and r['pages'] <= 8 and r['frames'] == 8" \
    --frames=8 "$TMPDIR/trace"
check "few entries" holds "r['entries'] == 5 and r['evicted_entries'] > 0 and r['options']['capacity'] == 5" \
    --capacity=5 "$TMPDIR/trace"
check "no entries" holds "r['entries'] == 0 and r['blocks_served'] == 0" --capacity=0 --procs=1 "$TMPDIR/trace"
check "many servers" holds "r['options']['procs'] == 100" --procs=100 "$TMPDIR/short"
check "eight pages a block, pages of odd size" holds "r['blocks_served'] > 0 and r['pages'] % 8 == 0" \
    --page-tokens=64 --page-bytes=101 "$TMPDIR/trace"

# The text says the same as the JSON, and standard error says nothing where it is no terminal.
text()
{
    kvshm-bench replay --procs=1 "$TMPDIR/short" >"$TMPDIR/out" 2>"$TMPDIR/err" || return 1
    cat "$TMPDIR/out"
    # shellcheck disable=SC2046 # five numbers
    set -- $("$PYTHON" "$abs_top_srcdir/tests/bench_count.py" "$TMPDIR/short")
    [ ! -s "$TMPDIR/err" ] && grep -q "^requests  *$1\$" "$TMPDIR/out" &&
        grep -q "^blocks of 512 tokens  *$2\$" "$TMPDIR/out" &&
        grep -q "^blocks served  *$3   0\.[0-9]* of all blocks\$" "$TMPDIR/out" &&
        grep -q "^wrong bytes  *0\$" "$TMPDIR/out"
}

# On a terminal there is a bar, which is wiped away. What is shown is read meanwhile: a terminal holds only so much.
bar()
{
    "$PYTHON" - "$TMPDIR/trace" <<'END'
import os, pty, re, subprocess, sys
master, slave = pty.openpty()
bench = subprocess.Popen(["kvshm-bench", "replay", sys.argv[1]], stdout=subprocess.PIPE, stderr=slave)
os.close(slave)
shown = b""
try:
    while chunk := os.read(master, 65536):
        shown += chunk
except OSError:
    pass
out = bench.communicate()[0]
assert bench.returncode == 0, bench.returncode
assert re.search(rb"\r\[[# ]{30}\]  *\d+%  \d+ of \d+ requests, \d+/s, \d+:\d\d left", shown), shown
assert shown.endswith(b"\r\x1b[K"), shown
assert out.startswith(b"requests "), out
END
}

# What is damaged behind its back is told. It may be over before the damage comes: then again.
damaged()
{
    for _ in $(seq 100); do
        bench_scribble damaged &
        scribbler=$!
        kvshm-bench replay --json --name=damaged --frames=1000 "$TMPDIR/damage" >"$TMPDIR/result" 2>"$TMPDIR/err"
        status=$?
        nothing_left || return 1
        [ $status = 0 ] || break
        kill $scribbler 2>"$TMPDIR/said"
        wait $scribbler
    done
    [ "$status" = 0 ] || wait "$scribbler" || return 1
    cat "$TMPDIR/result" "$TMPDIR/err"
    [ "$status" = 1 ] && grep -q 'kvshm-bench: [0-9]* wrong bytes were served' "$TMPDIR/err" &&
        is "r['wrong_bytes'] > 0"
}

# An arena that is there is not used, and stays.
not_mine()
{
    kvshmctl create mine --page-bytes=64 --frames=4 >"$TMPDIR/said" || return 1
    kvshm-bench replay --name=mine "$TMPDIR/short" 2>"$TMPDIR/err"
    status=$?
    cat "$TMPDIR/err"
    [ $status = 1 ] && [ "$(ls "$KVSHM_DIR")" = mine ] && kvshmctl rm mine --yes && nothing_left
}

usage()
{
    for arguments in "" "none" "replay" "replay a b" "replay --frames=0 a" "replay --frames=1 --unlimited a" \
        "replay --page-tokens=3 a" "replay --page-tokens=1024 a" "replay --procs=0 a" "replay --kill=x a" \
        "replay --backing=gold a" "replay --capacity=-1 a" "generate 5" "generate --requests=0" "generate --seed=" \
        "lookup --entries=1,,2" "lookup --entries=0" "lookup --pages=0" "lookup more"; do
        # shellcheck disable=SC2086 # words
        kvshm-bench $arguments >"$TMPDIR/out" 2>"$TMPDIR/err" </dev/null
        status=$?
        echo "'$arguments': $status"
        [ $status = 2 ] && [ ! -s "$TMPDIR/out" ] && grep -q '^kvshm-bench' "$TMPDIR/err" || return 1
    done
    [ "$(kvshm-bench --version)" = "$(kvshm-bench replay --version)" ] && nothing_left
}

lookup()
{
    kvshm-bench lookup --entries=1,300 --rounds=3 --pages=2 --json >"$TMPDIR/result" && cat "$TMPDIR/result" &&
        nothing_left && [ -z "$(ls -d "$TMPDIR"/kvshm-bench-lmdb-* 2>"$TMPDIR/err")" ] && "$PYTHON" -c '
import json, sys
r = json.load(open(sys.argv[1]))
assert r["version"] == 1 and r["benchmark"] == "lookup" and r["pages"] == 2
one = [x for x in r["results"] if x["readers"] == 1]
assert [(x["entries"], x["kind"], x["caches"]) for x in one] == [
    (n, k, c) for n in (1, 300) for k in ("key", "tokens") for c in ("warm", "cold")]
for x in one:
    assert 0 < x["fastest_ns"] <= x["median_ns"] <= x["slowest_ns"]
    assert x.get("peer") == {"key": "LMDB" if r["peer"] else None, "tokens": "memcmp"}[x["kind"]]
    if "peer" in x:
        assert 0 < x["peer_fastest_ns"] <= x["peer_median_ns"] <= x["peer_slowest_ns"]
    if x["kind"] == "key" and r["peer"]:
        # of figures that are rounded to a tenth, to a thousandth
        low = (x["median_ns"] - 0.06) / (x["peer_median_ns"] + 0.06) - 0.001
        assert low < x["ratio"] < (x["median_ns"] + 0.06) / (x["peer_median_ns"] - 0.06) + 0.001
for x in r["results"]:
    if x["readers"] == 2:
        assert x["share_of_sum"] > 0 and x["first_alone_ns"] > 0 and x["second_together_ns"] > 0
' "$TMPDIR/result" && kvshm-bench lookup --entries=20 --rounds=1 >"$TMPDIR/out" &&
        grep -q '^ *20  tokens  *warm  *[0-9.]* ' "$TMPDIR/out" && nothing_left &&
        kvshm-bench lookup --match=20 --entries=50 --rounds=1 >"$TMPDIR/out" && cat "$TMPDIR/out" &&
        grep -q '^ *50  match  *warm  *[0-9.]* ' "$TMPDIR/out" && nothing_left
}

check "text" text
check "a bar on a terminal" bar
check "wrong bytes are told" damaged
check "an arena of that name" not_mine
check "usage errors" usage
check "lookup" lookup
for what in server SIGINT SIGTERM SIGHUP; do
    check "ended from outside: $what" "$PYTHON" "$abs_top_srcdir/tests/bench_interrupt.py" $what "$TMPDIR/long"
done
finish
