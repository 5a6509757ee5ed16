#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What kvshm shows of arenas, entries and damage, by golden output. tool_servers.sh looks at clients.

: "${abs_top_srcdir:?}"
expected=$abs_top_srcdir/tests/tool_view.expected
. "$abs_top_srcdir/tests/tool_lib.sh"

# Ids, stamps and times are of this run alone.
filters="-e s/[0-9a-f]\{32\}/PAGE-ID/ -e s/\(\(_ns\|last_used\|pid\|uid\)\":\)[0-9]\{1,\}/\1N/"

golden "no arenas" kvshm
golden "no arenas, JSON" kvshm -J

kvshmctl create chat --layers 2 --kv-heads 2 --head-dim 16 --dtype bf16 --page-tokens 16 --frames 100 \
    --stall-ms 700 --backing small --numa local >"$TMPDIR/said" || exit 99
kvshmctl create agent --page-bytes 4K --page-tokens 8 --frames 10 --capacity 3 --backing small --numa local \
    >"$TMPDIR/said" || exit 99
golden "empty arenas" kvshm

tool_server chat filler insert:1:40 insert:2:16 key:171:20 hit:1:40 hit:1:40 miss:3:10 || exit 99
golden "arenas" kvshm
golden "arenas by name" kvshm chat agent
golden "summary" kvshm -u
golden "entries" kvshm -e chat
golden "entries of all" kvshm --entries
golden "no entries" kvshm -e agent
golden "columns" kvshm -o Name,PAGE-TOKENS,max_clients,capacity,lookup-hits,stall-ms
golden "a column twice" kvshm -o name,name
golden "JSON of arenas" kvshm -J
golden "JSON of a summary" kvshm -uJ chat
golden "JSON of entries" kvshm -e chat --json
golden "JSON of columns" kvshm -J -o name,page,hit-ratio

# Numbers are numbers, and what JSON says is what the table says.
json_types()
{
    kvshm -J | "$PYTHON" -c '
import json, sys
all = json.load(sys.stdin)
assert all["version"] == 1 and all["errors"] == [] and len(all["arenas"]) == 2
for arena in all["arenas"]:
    for key, value in arena.items():
        text = key in ("name", "backing", "backing_asked", "backing_reason", "numa", "numa_asked", "path", "spill_path", "admission")
        assert isinstance(value, str if text else (int, float)) or value is None, key
assert [a["capacity"] for a in all["arenas"]] == [3, None]
'
}
check "JSON has numbers as numbers" json_types

# Nothing is written by looking: not a byte, and not the time of the file.
unchanged()
{
    path=$(kvshm -J chat | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["arenas"][0]["path"])')
    before=$(sha256sum "$path"; stat -c '%y %z' "$path")
    kvshm && kvshm -u && kvshm -p && kvshm -e && kvshm -J && kvshm -pJ && kvshm -eJ || return 1
    [ "$before" = "$(sha256sum "$path"; stat -c '%y %z' "$path")" ]
}
check "looking changes nothing" unchanged

# A file that begins as an arena does, and is none any more.
damage()
{
    path=$(kvshm -J "$1" | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["arenas"][0]["path"])')
    printf '\377' | dd of="$path" bs=1 seek="$2" conv=notrunc 2>"$TMPDIR/said" || exit 99
}

kvshmctl create broken --page-bytes 64 --frames 4 >"$TMPDIR/said" || exit 99
damage broken 200
filters="$filters -e s/^\(kvshm:.broken:\).*/\1.REASON/ -e s/\(error\":\).*/\1REASON/"
golden "a damaged arena among others" kvshm
golden "a damaged arena among others, JSON" kvshm -pJ
golden "a damaged arena by name" kvshm -e broken chat

golden "no such arena" kvshm -o name,frames chat nowhere
golden "no name of an arena" kvshm ../chat
golden "no such column" kvshm -o name,size
golden "no such column of entries" kvshm -e -o pid
golden "an empty column" kvshm -o name,
golden "two views" kvshm -p -e
golden "one view twice" kvshm -u -u -o name chat
golden "an unknown option" kvshm --wide
golden "help" kvshm --help
golden "version" kvshm --version

# Another user, who may read, sees the same; one who may not is told so.
other_user()
{
    folder=$(mktemp -d /dev/shm/kvshm-other.XXXXXX) || return 1
    status=1
    chmod 755 "$folder"
    if cp "$abs_top_builddir/tools/kvshm" "$folder" &&
        KVSHM_DIR=$folder kvshmctl create open --page-bytes 64 --frames 4 --mode 0644 &&
        KVSHM_DIR=$folder kvshmctl create closed --page-bytes 64 --frames 4 &&
        KVSHM_DIR=$folder tool_server open filler insert:1:10; then
        KVSHM_DIR=$folder setpriv --reuid=65534 --regid=65534 --clear-groups "$folder/kvshm" -e open &&
            ! KVSHM_DIR=$folder setpriv --reuid=65534 --regid=65534 --clear-groups "$folder/kvshm" closed
        status=$?
    fi
    rm -r "$folder"
    return $status
}
if [ "$(id -u)" = 0 ] && command -v setpriv >"$TMPDIR/said"; then
    check "another user" other_user
fi

full_disk()
{
    kvshm >/dev/full
    [ $? = 1 ]
}
if [ -w /dev/full ]; then
    check "output that cannot be written" full_disk
fi
finish
