# SPDX-License-Identifier: Apache-2.0
#
# What the tests of the tools share; read by them with ".".
#
#   golden NAME COMMAND...   runs the command; its output, errors and status, made equal between runs by the filters,
#                            must be the section "== NAME" of the file named $expected
#   check NAME COMMAND...    the command must answer 0
#   start NAME LABEL ACTION...   starts a tests/tool_server with pause; sets $pid and $client
#   finish                   prints the plan, the last command of a test
#
# With KVSHM_UPDATE=FILE in the environment the sections are written there, to be looked at and taken over.

# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154 # $pid, $client and $expected are also the reader's
set -u
: "${abs_top_builddir:?}"

PATH=$abs_top_builddir/tools:$abs_top_builddir/tests:$PATH
LC_ALL=C
TZ=UTC
export PATH LC_ALL TZ
unset ARGP_HELP_FMT COLUMNS

# What $filters holds is many words and no pattern of file names.
set -f

cases=0
failures=0
servers=
filters=

result()
{
    cases=$((cases + 1))
    if [ "$1" = 0 ]; then
        echo "ok $cases - $2"
    else
        failures=$((failures + 1))
        echo "not ok $cases - $2"
    fi
}

section()
{
    awk -v title="== $1" '$0 == title { on = 1; next } /^== / { on = 0 } on' "$expected"
}

golden()
{
    golden_name=$1
    shift
    # shellcheck disable=SC2086
    { "$@" 2>&1; echo "status $?"; } </dev/null |
        sed -e "s|$KVSHM_DIR|DIR|g" -e '/^NUMA: interleave$/d' $filters >"$TMPDIR/got"
    [ -z "${KVSHM_UPDATE-}" ] || { echo "== $golden_name"; cat "$TMPDIR/got"; } >>"$KVSHM_UPDATE"
    section "$golden_name" >"$TMPDIR/wanted"
    if diff -u "$TMPDIR/wanted" "$TMPDIR/got" >"$TMPDIR/diff"; then
        result 0 "$golden_name"
    else
        sed 's/^/# /' "$TMPDIR/diff"
        result 1 "$golden_name"
    fi
}

check()
{
    check_name=$1
    shift
    "$@" >"$TMPDIR/said" 2>&1
    check_status=$?
    [ "$check_status" = 0 ] || sed 's/^/# /' "$TMPDIR/said"
    result "$check_status" "$check_name"
}

# Reads the line that a paused server prints, through a pipe of its own.
start()
{
    mkfifo "$TMPDIR/ready"
    tool_server "$@" pause >"$TMPDIR/ready" &
    servers="$servers $!"
    read -r pid client <"$TMPDIR/ready" || { pid=0 client=0; echo "# server $2 did not start"; }
    rm "$TMPDIR/ready"
}

stop_servers()
{
    for server in $servers; do
        kill -KILL "$server" 2>/dev/null
    done
    wait
    servers=
}

finish()
{
    stop_servers
    echo "1..$cases"
    [ "$failures" = 0 ]
}

trap 'stop_servers' EXIT
