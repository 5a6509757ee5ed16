#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What kvshm shows of clients: four servers, of which one is stopped and alive, and one killed and dead. With all the
# living stopped everything is still shown, and the segment stays as it is, byte for byte.

: "${abs_top_srcdir:?}"
expected=$abs_top_srcdir/tests/tool_servers.expected
. "$abs_top_srcdir/tests/tool_lib.sh"

kvshmctl create chat --page-bytes 256 --page-tokens 16 --frames 64 --max-clients 8 --max-leases 16 \
    >"$TMPDIR/said" || exit 99
path=$(kvshm -J chat | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["arenas"][0]["path"])')

start chat prefill insert:1:32 lease:1:32:7 lease:1:32:9
pid1=$pid client1=$client
start chat decode insert:2:40 lease:2:40:0 reserve:2
pid2=$pid client2=$client
start chat stopped lease:1:32:1 lease:1:32:2 lease:1:32:3 lease:1:32:4 lease:1:32:5 reserve:1 device:3
pid3=$pid client3=$client
start chat killed lease:2:40:0 reserve:4
pid4=$pid client4=$client

# The state that the kernel gives a process, its third field in /proc, becomes that; or the process goes.
state_is()
{
    until [ "$(sed 's/.*) //; s/ .*//' "/proc/$1/stat")" = "$2" ]; do
        [ -e "/proc/$1" ] || return 1
        sleep 0.01
    done
}

kill -STOP "$pid3"
check "one is stopped" state_is "$pid3" T
kill -KILL "$pid4"
wait "$pid4" 2>/dev/null
[ ! -e "/proc/$pid4" ]
result $? "one is dead"

# Numbers and processes are of this run; ages too. What remains is what each holds. A process's number is taken for one
# only where it stands: it may be equal to a count.
filters=
i=0
for number in "$pid1" "$pid2" "$pid3" "$pid4"; do
    i=$((i + 1))
    filters="$filters -e s/^\(chat.\)\{0,1\}$number\>/\1PID$i/ -e s/\(\"pid\":\)$number,/\1PID$i,/"
done
filters="$filters -e s/([0-9]*m\{0,1\}[0-9]*s)/(AGE)/g -e s/\<[0-9]*m\{0,1\}[0-9]*s\>/AGE/"
filters="$filters -e s/\(_ns\":\)[0-9]\{1,\}/\1N/ -e s/\(client\":\)[0-9]\{1,\}/\1N/ -e s/\(uid\":\)[0-9]\{1,\}/\1N/"
squeezed()
{
    "$@" | tr -s ' ' | sed 's/^ //'
}

golden "clients" squeezed kvshm -p -o pid,status,label,leases,reservations,frames,device-frames,writer,tags chat
golden "clients by default" squeezed kvshm -p -o name,pid,status,attached,label
golden "clients, JSON" kvshm -pJ chat
golden "leases of entries" kvshm -e -o tenant,tokens,pages,leases chat
golden "living clients" kvshm -o name,clients,reserved chat

numbers()
{
    [ "$(kvshm -p -o client chat | tail -n +2 | tr -d ' ' | sort -n | tr '\n' ' ')" = \
        "$client1 $client2 $client3 $client4 " ]
}
check "numbers are those of the clients" numbers

# All that live are stopped.
kill -STOP "$pid1" "$pid2"
check "all the living are stopped" state_is "$pid1" T
check "the second too" state_is "$pid2" T
before=$(sha256sum "$path"; stat -c '%y %z' "$path")
golden "clients, all stopped" squeezed kvshm -p -o pid,status,label,leases,reservations,tags chat
golden "entries, all stopped" kvshm -e -o tenant,tokens,pages,leases chat
golden "summary, all stopped" kvshm -u -o name,used,reserved,limbo,free
check "JSON of all, all stopped" sh -c 'kvshm -J && kvshm -uJ && kvshm -pJ && kvshm -eJ'
check "default views, all stopped" sh -c 'kvshm && kvshm -u && kvshm -p chat && kvshm -e chat'
[ "$before" = "$(sha256sum "$path"; stat -c '%y %z' "$path")" ]
result $? "the segment's bytes are unchanged by looking"

# They go on, and what the dead one had reserved is given back.
kill -CONT "$pid1" "$pid2" "$pid3"
golden "reap" kvshmctl reap chat
golden "after the reap" squeezed kvshm -o name,clients,reserved chat
golden "frames after the reap" squeezed kvshm -p -o status,label,frames chat
finish
