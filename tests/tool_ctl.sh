#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What kvshmctl does, says and refuses, by golden output.

: "${abs_top_srcdir:?}"
expected=$abs_top_srcdir/tests/tool_ctl.expected
. "$abs_top_srcdir/tests/tool_lib.sh"

# What the library says is tested where it is said; that it names the field is looked at below.
library="-e s/^\(kvshmctl:.[A-Za-z0-9./-]*:\).*/\1.REASON/"

# create
golden "create" kvshmctl create chat --layers=2 --kv-heads=2 --head-dim=16 --dtype=bf16 --frames=100 --backing=small
golden "create opaque pages" kvshmctl create --page-bytes 4K --page-tokens 8 --memory 4M --backing small pages
golden "create with all options" kvshmctl create all --layers 4 --kv-heads 8 --head-dim 32 --dtype f16 \
    --page-tokens 32 --shards 4 --token-scale 2 --frames 5 --capacity 7 --backing small --mode 0640 \
    --group "$(id -gn)" --max-clients 3 --max-leases 9 --stall-ms 1234 \
    --fingerprint 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
golden "what was created" kvshm all -o \
    page,page-tokens,token-scale,shards,frames,capacity,backing-asked,backing,max-clients,max-leases,stall-ms
mode_is()
{
    path=$(kvshm -J "$1" | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["arenas"][0]["path"])')
    [ "$(stat -c '%a %g' "$path")" = "$2" ]
}
check "mode and group" mode_is all "640 $(id -g)"
golden "unlimited, as said" kvshmctl create unlimited --page-bytes 64 --frames 1 --capacity unlimited \
    --backing small
golden "no name" kvshmctl create --page-bytes 64 --frames 1
golden "two names" kvshmctl create a b --page-bytes 64 --frames 1
golden "no number" kvshmctl create x --frames 1x --page-bytes 64
golden "a negative number" kvshmctl create x --frames=-1 --page-bytes 64
golden "a number that is too large" kvshmctl create x --layers 4294967296 --frames 1
golden "a number beyond all" kvshmctl create x --frames 99999999999999999999 --page-bytes 64
golden "no size" kvshmctl create x --memory 1KB --page-bytes 64
golden "a size that is too large" kvshmctl create x --memory 16777216T --page-bytes 64
golden "no type" kvshmctl create x --dtype f64 --frames 1
golden "no backing" kvshmctl create x --backing gold --frames 1
golden "no mode" kvshmctl create x --mode 999 --frames 1
golden "a mode that is too large" kvshmctl create x --mode 4755 --frames 1
golden "no group" kvshmctl create x --group no-such-group --frames 1
golden "no fingerprint" kvshmctl create x --fingerprint 00zz --frames 1
golden "a short fingerprint" kvshmctl create x --fingerprint 0011 --frames 1

filters=$library
golden "it exists" kvshmctl create chat --page-bytes 64 --frames 1
golden "a bad name" kvshmctl create .chat --page-bytes 64 --frames 1
golden "no geometry" kvshmctl create x --frames 1
golden "two geometries" kvshmctl create x --page-bytes 64 --layers 1 --kv-heads 1 --head-dim 64 --frames 1
golden "frames and memory" kvshmctl create x --page-bytes 64 --frames 1 --memory 1M
golden "neither frames nor memory" kvshmctl create x --page-bytes 64
filters=
says()
{
    wanted=$1
    shift
    "$@" >"$TMPDIR/out" 2>&1
    grep -q -e "$wanted" "$TMPDIR/out" || { cat "$TMPDIR/out"; return 1; }
}
check "an error names the field" says shards kvshmctl create x --page-bytes 64 --shards 3 --frames 1
golden "nothing is left by errors" kvshm -o name

# set
golden "set" kvshmctl set chat capacity=12 stall_ms=50
golden "what was set" kvshm -o name,capacity,stall-ms chat
golden "set unlimited" kvshmctl set chat capacity=unlimited
golden "no setting" kvshmctl set chat capacity=1 colour=red
golden "no value" kvshmctl set chat capacity
golden "a bad value" kvshmctl set chat stall_ms=1s
golden "settings that were not set" kvshm -o name,capacity,stall-ms chat
golden "set nothing" kvshmctl set chat
filters=$library
golden "set of no arena" kvshmctl set nowhere capacity=1
filters=

# evict, clear: only if it is said
tool_server chat filler insert:1:64 insert:2:64 insert:3:64 insert:4:64 hit:1:64 || exit 99
golden "evict without a word" kvshmctl evict chat
golden "evict" kvshmctl evict chat --yes
golden "evict two" kvshmctl evict --yes chat 2
golden "the one used last stays" kvshm -e chat -o tenant,order
golden "evict more than there is" kvshmctl evict chat 100 --yes
golden "evict of nothing" kvshmctl evict chat --yes
golden "evict no number" kvshmctl evict chat all --yes
tool_server chat filler insert:1:64 insert:2:64 || exit 99
golden "lower the capacity without a word" kvshmctl set chat capacity=1
golden "clear without a word" kvshmctl clear chat
golden "nothing was cleared" kvshm -o entries,epoch,capacity chat
golden "clear" kvshmctl clear chat --yes
golden "what was cleared" kvshm -o entries,epoch,free,cleared-entries chat

# reap: what dead clients held comes back, and of KVSHM_DEVICE only where its owner is named
tool_server chat decode reserve:3 device:2 || exit 99
tool_server chat other device:4 || exit 99
golden "before a reap" kvshm -o used,reserved chat
golden "reap" kvshmctl reap chat
golden "after a reap" kvshm -o used,reserved chat
golden "reap by label without a word" kvshmctl reap chat --label decode
golden "reap by label" kvshmctl reap chat --label decode --yes
other=$(kvshm -pJ chat | "$PYTHON" -c '
import json, sys
print(*[c["client"] for c in json.load(sys.stdin)["clients"] if c["label"] == "other"])')
golden "reap by client" kvshmctl reap chat "$other" --yes
golden "after all reaps" kvshm -o used,reserved chat
golden "reap of nothing" kvshmctl reap chat --yes
golden "reap of two" kvshmctl reap chat 1 --label decode --yes
golden "reap of client 0" kvshmctl reap chat 0 --yes
start chat living device:1
filters="$library"
golden "reap of the living" kvshmctl reap chat "$client" --yes

# rm
golden "rm with a living client" kvshmctl rm chat --yes
filters=
check "the living are named" says "$pid" kvshmctl rm chat --yes
golden "rm without a word" kvshmctl rm all
golden "rm" kvshmctl rm --yes all
golden "rm by force" kvshmctl rm --yes --force chat
golden "what is left" kvshm -o name
filters=$library
golden "rm of no arena" kvshmctl rm --yes all
filters=

# A terminal is asked; the answers stand in the terminal's own input.
on_terminal()
{
    "$PYTHON" -c '
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
said = b""
asked = False
try:
    while True:
        more = os.read(terminal, 1024)
        if not more:
            break
        said += more
        if b"[y/N]" in said and not asked:
            asked = True
            os.write(terminal, sys.argv[1].encode() + b"\n")
except OSError:
    pass
print(said.decode().replace("\r\n", "\n"), end="")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
' "$@"
}
golden "asked, and no" on_terminal n kvshmctl rm pages
golden "asked, and nothing said" on_terminal "" kvshmctl rm pages
golden "not removed" kvshm -o name
golden "asked, and yes" on_terminal y kvshmctl rm pages
golden "removed" kvshm -o name

# An arena that cannot be read can be removed.
path=$(kvshm -J unlimited | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["arenas"][0]["path"])')
printf '\377' | dd of="$path" bs=1 seek=200 conv=notrunc 2>"$TMPDIR/said" || exit 99
filters="-e s/(.*)/(REASON)/"
golden "rm of a damaged arena without a word" kvshmctl rm unlimited
golden "rm of a damaged arena" kvshmctl rm unlimited --yes
filters=
golden "nothing is left" kvshm -o name

golden "no command" kvshmctl
golden "an unknown command" kvshmctl destroy chat
golden "an unknown option" kvshmctl rm chat --really
golden "an option of another command" kvshmctl clear chat --force
golden "help" kvshmctl --help
golden "help of create" kvshmctl create --help
golden "help of rm" kvshmctl rm --help
golden "help of set" kvshmctl set --help
golden "help of clear" kvshmctl clear --help
golden "help of evict" kvshmctl evict --help
golden "help of reap" kvshmctl reap --help
golden "version" kvshmctl --version
golden "version of a command" kvshmctl rm --version
finish
