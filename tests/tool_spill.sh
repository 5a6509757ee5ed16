#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What kvshmctl does with a spill file, and what kvshm shows of it, by golden output.

: "${abs_top_srcdir:?}"
expected=$abs_top_srcdir/tests/tool_spill.expected
. "$abs_top_srcdir/tests/tool_lib.sh"

folder=$(cd "$TMPDIR" && pwd -P)
file=$folder/file
same="-e s|$folder|FOLDER|g -e s/io_uring-registered\|io_uring\|pread/ENGINE/"
filters=$same
squeezed()
{
    "$@" | tr -s ' ' | sed 's/^ //'
}

# create
golden "create" kvshmctl create chat --page-bytes 4K --page-tokens 16 --frames 32 --spill "$file" --spill-size 1M \
    --admission reused --wait-ms unlimited --backing small --numa local
relative()
{
    (cd "$TMPDIR" && kvshmctl create near --page-bytes 64 --frames 1 --spill near --spill-size 1M --backing small \
        --numa local) || return 1
    squeezed kvshm -o name,spill-path near
    kvshmctl rm --yes near && rm "$TMPDIR/near"
}
golden "a path from here is kept whole" relative
golden "no size of the file" kvshmctl create x --page-bytes 64 --frames 1 --spill "$folder/x"
golden "no file of the size" kvshmctl create x --page-bytes 64 --frames 1 --spill-size 1M
golden "a size that is too small" kvshmctl create x --page-bytes 64 --frames 1 --spill "$folder/x" --spill-size 10K
golden "no folder" kvshmctl create x --page-bytes 64 --frames 1 --spill "$folder/none/x" --spill-size 1M
golden "no memory" kvshmctl create x --page-bytes 64
golden "a folder" kvshmctl create x --page-bytes 64 --frames 1 --spill "$folder" --spill-size 1M
ln -s "$folder/x" "$folder/link"
golden "a symbolic link" kvshmctl create x --page-bytes 64 --frames 1 --spill "$folder/link" --spill-size 1M
rm "$folder/link"
golden "no admission" kvshmctl create x --page-bytes 64 --frames 1 --admission some
golden "no time" kvshmctl create x --page-bytes 64 --frames 1 --wait-ms soon
golden "a file of another arena" kvshmctl create x --page-bytes 64 --frames 1 --spill "$file" --spill-size 1M
golden "nothing is left by errors" ls "$folder" --ignore=said --ignore=got --ignore=wanted --ignore=diff --ignore=out

# flush, views
golden "an empty file" kvshm -s
tool_server chat filler insert:1:64 insert:2:60 insert:3:10 || exit 99
golden "flush" kvshmctl flush chat
golden "what was written" kvshm -s chat
golden "settings" squeezed kvshm -o spill-path,spill,admission,wait-ms,slots,spilled-entries
golden "another view" kvshm -s -u
sums()
{
    kvshm -Js chat | "$PYTHON" -c '
import json, sys
arena, = json.load(sys.stdin)["spill"]
assert arena["spill_bytes"] == (1 << 20) - 4096 and arena["slots"] - arena["slots_free"] >= arena["spilled"]
assert arena["spilled_pages"] >= 8 and arena["written_bytes"] == arena["spill_bytes_written"] >= 8 * 8192
assert arena["read_bytes"] == arena["spill_bytes_read"] == 0 and arena["spill_failures"] == 0
assert arena["wait_ms"] is None and arena["admission"] == "reused" and arena["spill_path"] == sys.argv[1]
' "$file"
}
check "JSON of the second tier" sums

# Who has moved a page says by which engine; who has not, that it has not.
start chat mover insert:4:16 flush
start chat idle
golden "engines" squeezed kvshm -p -o status,engine,transfers,label chat
stop_servers

# set
golden "set" kvshmctl set chat admission=all wait_ms=250
golden "what was set" kvshm -o admission,wait-ms chat
golden "set too large a file" kvshmctl set chat spill_bytes=2M
golden "set no admission" kvshmctl set chat admission=some
golden "set no size" kvshmctl set chat spill_bytes=much
written()
{
    kvshm -J chat | "$PYTHON" -c 'import json, sys; a = json.load(sys.stdin)["arenas"][0]; print(a["slots"] - a["slots_free"])'
}
smaller()
{
    before=$(written) && kvshmctl set chat spill_bytes=280K && after=$(written) && echo "$before, $after" &&
        [ "$before" -ge 8 ] && [ "$after" -le 3 ] && kvshmctl set chat spill_bytes=1020K && kvshmctl flush chat
}
check "a smaller file gives up its oldest" smaller
plain()
{
    kvshmctl create plain --page-bytes 64 --frames 1 --backing small --numa local || return 1
    kvshmctl set plain spill_bytes=1M
    kvshmctl flush plain
    kvshm -s plain
    kvshmctl rm plain --yes
}
golden "without a file" plain

# Without the file only what needs none works.
mv "$file" "$folder/elsewhere"
golden "set its size without it" kvshmctl set chat spill_bytes=512K
mv "$folder/elsewhere" "$file"
gone()
{
    mv "$file" "$folder/elsewhere"
    kvshmctl flush chat && return 1
    kvshmctl reap chat && kvshmctl set chat wait_ms=3 || return 1
    KVSHM_SPILL=$folder/elsewhere kvshmctl flush chat || return 1
    mv "$folder/elsewhere" "$file"
}
check "a file that is elsewhere" gone

# evict: entries leave memory, those that were not in the file too, and none is lost.
evicted()
{
    kvshmctl create many --page-bytes 4K --page-tokens 16 --frames 64 --spill "$folder/many" --spill-size 2M --backing small \
        --numa local &&
        tool_server many filler insert:1:64 insert:2:64 insert:3:64 insert:4:64 || return 1
    kvshmctl evict many 3 --yes && kvshmctl evict many 9 --yes && kvshmctl evict many --yes || return 1
    squeezed kvshm -o used,entries,spilled-entries,spilled many
    kvshmctl rm many --yes && rm "$folder/many"
}
golden "evict to the file" evicted

full()
{
    kvshmctl create full --page-bytes 4K --page-tokens 16 --frames 64 --spill "$folder/full" --spill-size 1M --backing small \
        --numa local && tool_server full filler insert:1:64 && kvshmctl set full spill_bytes=0 || return 1
    kvshmctl flush full
    kvshmctl rm full --yes && rm "$folder/full"
}
golden "flush to a file without room" full

# load
start chat user insert:5:64 flush
golden "load while it is used" kvshmctl load other "$file" --frames 4
stop_servers
golden "rm" kvshmctl rm chat --yes
golden "load" kvshmctl load chat "$file" --frames 4 --backing small --numa local
golden "what was loaded" squeezed kvshm -o name,page,page-tokens,frames,slots,spill-path
pages_are_there()
{
    kvshm -J chat | "$PYTHON" -c '
import json, sys
a, = json.load(sys.stdin)["arenas"]
assert a["spilled"] >= 4 and a["spilled_entries"] > 0, a'
}
check "its pages are there" pages_are_there
golden "load no file" kvshmctl load x "$folder/none" --frames 4
echo something >"$folder/text"
golden "load another file" kvshmctl load x "$folder/text" --frames 4
kvshmctl rm chat --yes
golden "load without memory" kvshmctl load x "$file"
golden "load with too much" kvshmctl load x "$file" --frames 4 --memory 4M
golden "load for too many clients" kvshmctl load x "$file" --frames 4 --max-clients 65
taken_over()
{
    kvshmctl load first "$file" --frames 4 && kvshmctl load second "$file" --frames 4 || return 1
    kvshmctl flush first >"$TMPDIR/out" 2>&1 && return 1
    cat "$TMPDIR/out"
    grep -q "$file belongs to another arena.*arena first.*KVSHM_SPILL" "$TMPDIR/out" && kvshmctl flush second &&
        kvshmctl rm --yes first && kvshmctl rm --yes second
}
check "a file that another arena has taken over" taken_over
golden "load with a geometry" kvshmctl load x "$file" --frames 4 --page-bytes 64
golden "help of load" kvshmctl load --help
golden "help of flush" kvshmctl flush --help
finish
