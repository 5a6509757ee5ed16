#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
#   demo.sh BUILDDIR
#
# Shows what kvshm does: four server processes answer 2,000 requests over one arena, and one of them is killed on the
# way. The arena is one of its own, and is removed after. The exit status is 0 if all was right.

set -eu

[ $# -eq 1 ] || { echo "usage: demo.sh BUILDDIR" >&2; exit 2; }
bench=$1/tools/kvshm-bench
requests=2000
procs=4

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

"$bench" generate --requests=$requests --seed=1 >"$work/requests.jsonl"

cat <<END

kvshm demo: $procs server processes answer $requests requests over one shared cache.
Each prompt is a list of blocks of 512 tokens. Each server looks for the blocks that any server has computed before,
reads them in place and checks every byte, computes the others and shares them. One server is killed on the way.

END

status=0
"$bench" replay --procs=$procs --unlimited --kill=1 --json "$work/requests.jsonl" >"$work/result" || status=$?

# Prints the table; what is not there is an error.
awk -F '[":, ]+' '
    function value(name)
    {
        if (name in found)
            return found[name]
        print "demo.sh: no " name " in the result" >"/dev/stderr"
        bad = 1
        return 0
    }
    function line(text, number, more) { printf "  %-48s %8s%s\n", text, number, more ? "  " more : "" }
    function percent(part, whole) { return whole ? sprintf("%.1f %%", 100 * part / whole) : "" }
    NF >= 3 { found[$2] = $3 }
    END {
        served = value("blocks_served")
        others = value("blocks_of_others")
        line("requests answered", value("requests"))
        line("blocks in their prompts", value("blocks"))
        line("blocks that were not computed again", served, percent(served, value("blocks")))
        line("  of these, computed by another process", others, percent(others, served))
        line("wrong bytes among all that were read", value("wrong_bytes"))
        line("servers killed, and replaced", value("kills"))
        line("finding what is cached of a prompt, median", sprintf("%.1f", value("match_median_ns") / 1000),
             "microseconds")
        line("memory of the cache", sprintf("%.0f", value("segment_bytes") / 1048576), "MiB")
        line("pages of that memory lost", value("frames") - value("frames_accounted"))
        exit bad
    }' "$work/result" || status=1

if [ $status -eq 0 ]; then
    verdict="All was right. The cache was removed."
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
  $bench replay --frames=2000 requests.jsonl
      with memory for 2000 pages only: the least recently used leave
END
exit $status
