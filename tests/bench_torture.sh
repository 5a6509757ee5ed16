#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# kvshm-bench torture: servers that do all that servers can, stopped and killed anywhere, get no wrong byte and lose no
# frame; a seed gives the same schedule; a fault is found, told with its seed, and leaves no arena. With a spill file they
# lose no slot either; what was removed or cleared is not served again, in later arenas on the file neither.

: "${abs_top_srcdir:?}"
. "$abs_top_srcdir/tests/tool_lib.sh"

kills=600
spill_kills=250
[ -z "${KVSHM_TEST_QUICK-}" ] || kills=100 spill_kills=100
[ -z "${KVSHM_TEST_LONG-}" ] || kills=20000 spill_kills=4000
seed=${KVSHM_TEST_SEED-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "# seed $seed (KVSHM_TEST_SEED)"

empty()
{
    [ -z "$(ls -A "$KVSHM_DIR")" ]
}

# torture OPTION...: the result in $TMPDIR/result. What failed is said by the tool, with the seed.
torture()
{
    kvshm-bench torture --json --seed="$seed" --check=torture_audit "$@" >"$TMPDIR/result" && empty
}

# holds EXPRESSION: true of the result, whose values are names in it.
holds()
{
    "$PYTHON" -c 'import json, sys
result = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2], {**result, "result": result}) else "not so: %s in %s" % (sys.argv[2], result))' \
        "$TMPDIR/result" "$1"
}

# Nothing was wrong, nothing was lost, and all that was asked for was done.
sound()
{
    holds "kills >= $1 and stops >= $1 // 2 and processes >= $1 + 4" &&
        holds "wrong_bytes == 0 and frames_lost == 0 and frames == 96 and checks > $1 // 300" &&
        holds "options['seed'] == $seed"
}

# Adds the result to those before, and says what all of them together have not seen yet: whom a strike meets, and where,
# is the machine's. Everything was done; servers died and were stopped inside the lock, and others met that. The first
# result in which a server that took another's place took a step is kept.
unseen()
{
    "$PYTHON" - "$TMPDIR/result" "$TMPDIR/sum" "$TMPDIR/kept" <<'END'
import json, os, sys
r = json.load(open(sys.argv[1]))
least = {"kills_in_lock": 1, "stops_in_lock": 1, "takeovers": 1, "stalls": 1, "hits": 101, "pages_checked": 1001}
least.update({"calls of " + call: 1 for call in r["calls"]})
later = sum(step["process"] > 0 for step in r["last_steps"])
least["later_steps"] = 1
seen = {"later_steps": later}
seen.update((name, r[name]) for name in r if isinstance(r[name], int) and name != "version")
seen.update({"calls of " + call: n for call, n in r["calls"].items()})
if os.path.exists(sys.argv[2]):
    seen = {name: n + seen[name] for name, n in json.load(open(sys.argv[2])).items()}
if later and seen["later_steps"] == later:
    json.dump(r, open(sys.argv[3], "w"))
json.dump(seen, open(sys.argv[2], "w"))
print(*("%s %d, not %d" % (name, seen[name], n) for name, n in least.items() if seen[name] < n), sep="; ")
END
}

# One run, and more with seeds that follow from its own until all was seen.
whole()
{
    first=$seed
    runs=1
    torture --procs=4 --kills=$kills && sound $kills || return 1
    left=$(unseen) || return 1
    while [ -n "$left" ] && [ $runs -lt 200 ]; do
        seed=$((first + runs))
        runs=$((runs + 1))
        torture --procs=4 --kills=100 && sound 100 || return 1
        left=$(unseen) || return 1
    done
    seed=$first
    echo "# in $runs runs: $(tr -d '{}"' <"$TMPDIR/sum")" >>"$TMPDIR/notes"
    [ -z "$left" ] || echo "not seen in $runs runs: $left"
    [ -z "$left" ]
}

# The last steps of each server are those that --show has for them: a seed's schedule does not depend on the run.
schedule()
{
    "$PYTHON" - "$TMPDIR/kept" <<'END'
import json, subprocess, sys
result = json.load(open(sys.argv[1]))
last, seed = result["last_steps"], result["options"]["seed"]
assert 0 < len(last) <= 4 * 16
processes = sorted({(step["server"], step["process"]) for step in last})
assert any(process > 0 for server, process in processes)
for server, process in processes:
    mine = [s for s in last if (s["server"], s["process"]) == (server, process)]
    shown = subprocess.run(["kvshm-bench", "torture", "--seed=%d" % seed,
                            "--show=%d,%d,%d" % (server, process, max(s["step"] for s in mine) + 1)],
                           check=True, capture_output=True, text=True).stdout.splitlines()
    for s in mine:
        assert shown[s["step"]] == "%d %s %d" % (s["step"], s["does"], s["number"]), (s, shown[s["step"]])
END
}

another_seed()
{
    kvshm-bench torture --seed=1 --show=0,0,100 >"$TMPDIR/a" && kvshm-bench torture --seed=1 --show=0,0,100 >"$TMPDIR/b" &&
        cmp "$TMPDIR/a" "$TMPDIR/b" && [ "$(wc -l <"$TMPDIR/a")" = 100 ] || return 1
    for other in --seed=2\ --show=0,0,100 --seed=1\ --show=1,0,100 --seed=1\ --show=0,1,100; do
        # shellcheck disable=SC2086
        kvshm-bench torture $other >"$TMPDIR/b" && ! cmp -s "$TMPDIR/a" "$TMPDIR/b" || return 1
    done
}

few()
{
    torture --procs=1 --kills=20 --stops=5 && holds 'kills == 20 and stops == 5 and frames_lost == 0' &&
        torture --procs=2 --kills=20 --stops=0 --frames=3 && holds 'kills >= 20 and stops == 0 and frames == 3'
}

# With a spill file that has room for all, then with little memory and a file that is full: arenas begin on it, the first
# on that of the others too. What was not seen in one run must be seen in one of the next.
tier_holds()
{
    torture --procs=4 --kills="$1" --spill="$TMPDIR/spill" "$2" "$3" &&
        holds "kills >= $1 and wrong_bytes == 0 and frames_lost == 0 and slots_lost == 0 and spill_errors == 0" &&
        holds "slots > 20 and spilled_pages > 0" || return 1
}

tier()
{
    first=$seed
    left=$5
    for run in $(seq 0 99); do
        seed=$((first + run))
        tier_holds "$1" "$2" "$3" || return 1
        left=$("$PYTHON" -c 'import json, sys
result = json.load(open(sys.argv[1]))
print(*(name for name in sys.argv[2].split() if result[name] == 0))' "$TMPDIR/result" "$left") || return 1
        seed=$first
        [ -n "$left" ] || break
        set -- 100 "$2" "$3" "$4" "$5"
    done
    rm -f "$TMPDIR/spill"
    echo "# $4: $((run + 1)) runs"
    [ -z "$left" ] || echo "not seen in $((run + 1)) runs: $left"
    [ -z "$left" ]
}

# The first strike of this seed kills all five servers, which is more than are to be killed: it ends.
more_than_wanted()
{
    timeout 120 kvshm-bench torture --json --seed=31 --procs=5 --kills=1 --stops=0 --frames=40 --spill="$TMPDIR/spill" \
        --spill-size=900000 >"$TMPDIR/result" && rm "$TMPDIR/spill" && holds 'kills == 5 and slots_lost == 0' && empty
}

# What cannot begin says why, and reports nothing.
no_file()
{
    kvshm-bench torture --kills=1 --spill="$TMPDIR/none/spill" >"$TMPDIR/result" 2>"$TMPDIR/err"
    [ $? = 1 ] && [ ! -s "$TMPDIR/result" ] && grep -q "$TMPDIR/none" "$TMPDIR/err" && empty
}

# It ends by time, and strikes until then; how often, is the machine's, so longer where that was not often enough.
timed()
{
    for seconds in 1 4 16 64; do
        torture --procs=3 --seconds=$seconds &&
            holds "elapsed_ns >= $seconds * 10**9 and frames_lost == 0 and options['kills'] is None" || return 1
        holds 'kills > 0 and stops > 0' && return 0
    done
    return 1
}

# Bytes of all frames are changed while it runs: that must be found, and told with the command that runs it again.
damage()
{
    kvshm-bench torture --procs=2 --seconds=600 --seed="$seed" >"$TMPDIR/out" 2>"$TMPDIR/err" &
    torturer=$!
    bench_scribble "kvshm-bench-$torturer" &
    scribbler=$!
    wait $torturer
    status=$?
    wait $scribbler || return 1
    cat "$TMPDIR/err"
    [ $status = 1 ] && grep -q ' wrong bytes in ' "$TMPDIR/err" &&
        grep -q "kvshm-bench torture --procs=2 --seconds=600 --frames=96 --seed=$seed\$" "$TMPDIR/err" && empty
}

: >"$TMPDIR/notes"
check "$kills kills" whole
cat "$TMPDIR/notes"
check "the schedule is that of the seed" schedule
check "another seed, server or process has another schedule" another_seed
check "one server; three frames" few
seen="kills_in_lock kills_in_transfer takeovers pending restored_pages arenas"
check "$spill_kills kills with a spill file" tier $spill_kills --frames=96 --spill-size=2M "much room" \
    "$seen entries_flushed"
check "little memory and a full file" tier $spill_kills --frames=24 --spill-size=600000 "little room" "$seen"
check "a strike that kills more than are wanted" more_than_wanted
check "no folder of the file" no_file
check "by time" timed
check "damage is found" damage
finish
