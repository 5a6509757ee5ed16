#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
#   demo.sh BUILDDIR
#
# Shows what kvshm does: four server processes answer 2,000 requests over one arena, and one of them is killed on the
# way; with little memory, with a spill file behind it, and again on the file when the arena has gone. The arenas are its
# own, and are removed after. The exit status is 0 if all was right.

set -eu

[ $# -eq 1 ] || { echo "usage: demo.sh BUILDDIR" >&2; exit 2; }
bench=$1/tools/kvshm-bench
requests=2000
procs=4
frames=1000

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

"$bench" generate --requests=$requests --seed=1 >"$work/requests.jsonl"

cat <<END

kvshm demo: $procs server processes answer $requests requests over one shared cache.
Each prompt is a list of blocks of 512 tokens. Each server looks for the blocks that any server has computed before,
reads them in place and checks every byte, computes the others and shares them. One server is killed on the way.

Three runs: with memory for $frames blocks; with a spill file behind that memory; and the same requests again, when all
servers have ended and the memory is gone, by new servers on that file.

END

status=0
# run N OPTION...
run()
{
    result=$work/result$1
    shift
    "$bench" replay --procs=$procs --frames=$frames --kill=1 --json "$@" "$work/requests.jsonl" >"$result" || status=$?
}
run 1
run 2 --spill="$work/spill"
run 3 --spill="$work/spill"

# Prints the table; what is not there is an error.
awk -F '[":, ]+' '
    function value(run, name)
    {
        if ((run, name) in found)
            return found[run, name]
        print "demo.sh: no " name " in result " run >"/dev/stderr"
        bad = 1
        return 0
    }
    function line(text, cell, unit)
    {
        printf "  %-44s %13s %13s %13s%s\n", text, cell[1], cell[2], cell[3], unit ? "  " unit : ""
    }
    # A line of the values of that name, divided by.
    function values(text, name, by, format, unit, cell, run)
    {
        for (run = 1; run <= 3; run++)
            cell[run] = sprintf(format ? format : "%d", value(run, name) / (by ? by : 1))
        line(text, cell, unit)
    }
    # Parts of what is under another name, in percent.
    function percents(text, name, of, cell, run)
    {
        for (run = 1; run <= 3; run++)
            cell[run] = value(run, of) ? sprintf("%.1f", 100 * value(run, name) / value(run, of)) : "-"
        line(text, cell, "percent")
    }
    FNR == 1 { runs++ }
    /"restarts"/ { next }
    NF >= 3 { found[runs, $2] = $3 }
    END {
        split("little memory,and a file,a new start", heading, ",")
        line("", heading)
        found[1, "blocks_restored"] = 0
        for (run = 1; run <= 3; run++)
            found[run, "lost"] = value(run, "frames") - value(run, "frames_accounted")
        values("requests answered", "requests")
        values("blocks in their prompts", "blocks")
        values("blocks that were not computed again", "blocks_served")
        percents("  of all blocks", "blocks_served", "blocks")
        values("  of these, read from the file", "blocks_restored")
        values("  of these, computed by another process", "blocks_of_others")
        values("wrong bytes among all that were read", "wrong_bytes")
        values("servers killed, and replaced", "kills")
        values("finding what is cached of a prompt, median", "match_median_ns", 1000, "%.1f", "microseconds")
        values("memory of the cache", "segment_bytes", 1048576, "%.0f", "MiB")
        values("pages of that memory lost", "lost")
        exit bad
    }' "$work/result1" "$work/result2" "$work/result3" || status=1

if [ $status -eq 0 ]; then
    verdict="All was right. The caches and the file were removed."
else
    verdict="SOMETHING WAS WRONG, see above (status $status)."
fi
cat <<END

$verdict

Next:
  $bench generate > requests.jsonl
      writes these requests to a file
  $bench replay --kill=20 requests.jsonl
      answers them again, and kills twenty servers
  $bench replay --frames=500 --spill=FILE --restart=3 requests.jsonl
      with memory for 500 pages, and a file; three times all is killed, and goes on from the file
END
exit $status
