#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What the tools say of backings, on a tmpfs with huge=advise in a mount namespace of its own.

set -u
: "${abs_top_srcdir:?}"

if [ "${1-}" != alone ]; then
    unshare -m true 2>/dev/null || { echo "may not make a mount namespace"; exit 77; }
    exec unshare -m "$0" alone
fi
mount --make-rprivate / && mount -t tmpfs -o size=64M,huge=advise none "$KVSHM_DIR" || exit 99

expected=$abs_top_srcdir/tests/tool_backing.expected
. "$abs_top_srcdir/tests/tool_lib.sh"

# A kernel without pages of 1 GiB says so first.
filters='-e s/this.kernel.has.no.pages.of.1G/KVSHM_DIR\x20is\x20no\x20hugetlbfs\x20of\x201G/'
opaque="--page-bytes=64K --page-tokens=4"
# shellcheck disable=SC2086
{
    golden "auto" kvshmctl create best $opaque --memory=20M
    golden "auto, few" kvshmctl create few $opaque --memory=3M
    golden "thp" kvshmctl create named $opaque --memory=20M --backing=thp
    golden "hugetlb-2m" kvshmctl create x $opaque --memory=20M --backing=hugetlb-2m
    golden "no room" kvshmctl create x $opaque --memory=40M --backing=thp
    golden "columns" kvshm -o name,backing,backing_asked,backing_reason
}
check "what failed left nothing" [ ! -e "$KVSHM_DIR/x" ]
check "same for JSON" sh -c "kvshm -J best | grep -q '\"backing\":\"thp\"'"
finish
