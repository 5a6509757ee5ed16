#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/open_together in memory that fits one arena: a small file system in a mount namespace of its own.

set -u
: "${abs_top_builddir:?}"

small=$TMPDIR/small
mkdir "$small" || exit 1

# in_namespace COMMAND: as root, else as root of a user namespace.
in_namespace()
{
    if [ "$(id -u)" -eq 0 ]; then
        unshare -m sh -c "$1"
    else
        unshare -r -m sh -c "$1"
    fi
}

mount="mount -t tmpfs -o size=16m kvshm-small '$small'"
if ! in_namespace "$mount" >"$TMPDIR/said" 2>&1; then
    echo "no mount namespace to be had: $(tail -n 1 "$TMPDIR/said")"
    exit 77
fi

in_namespace "$mount && KVSHM_DIR='$small' exec '$abs_top_builddir/examples/open_together'" >"$TMPDIR/said" 2>&1
status=$?
cat "$TMPDIR/said"
[ "$status" -eq 0 ] || exit 1
grep -q '8 servers opened one name .* 1 created, 7 attached, in memory that fits one arena' "$TMPDIR/said"
