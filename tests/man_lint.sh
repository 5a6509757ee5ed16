#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# mandoc finds nothing to warn of in any manual.

set -u
: "${abs_top_srcdir:?}"

if [ -z "${MANDOC-}" ]; then
    echo "there is no mandoc"
    exit 77
fi

pages=$(cd "$abs_top_srcdir/man" && echo *.[1-9])
echo "1..$(echo "$pages" | wc -w)"
number=0
for page in $pages; do
    number=$((number + 1))
    if "$MANDOC" -Tlint -W warning "$abs_top_srcdir/man/$page" >"$TMPDIR/said" 2>&1 && [ ! -s "$TMPDIR/said" ]; then
        echo "ok $number - $page"
    else
        sed 's/^/# /' "$TMPDIR/said"
        echo "not ok $number - $page"
    fi
done
