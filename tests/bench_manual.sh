#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The manual of kvshm-bench says what kvshm-bench says: its commands, their options; its examples run.

: "${abs_top_srcdir:?}"
. "$abs_top_srcdir/tests/tool_lib.sh"

page=$abs_top_srcdir/man/kvshm-bench.1

same()
{
    diff -u "$TMPDIR/manual" "$TMPDIR/help" && [ -s "$TMPDIR/help" ]
}

kvshm-bench --help | sed -n '/^ *Commands:/,/^$/s/^  \([a-z]\{1,\}\) .*/\1/p' >"$TMPDIR/help"
sed -n 's/^\.Ss //p' "$page" >"$TMPDIR/manual"
check "commands" same

for command in replay generate lookup create memory spill torture; do
    kvshm-bench $command --help | sed -n 's/^ \{2,6\}\(--[^ ]*\).*/\1/p' | grep -v -e '--usage' | sort >"$TMPDIR/help"
    awk -v part=$command '/^\.S[hs] / { on = $0 == ".Ss " part }
        on && /^\.It Fl -/ { sub(/^\.It Fl /, "-"); sub(/ Ns = Ns Ar /, "="); print }' "$page" | sort >"$TMPDIR/manual"
    check "options of $command" same
done

# Each line of the examples; those that follow one another share a folder.
examples()
{
    sed -n 's/^\.Dl \$ //p' "$page" >"$TMPDIR/lines"
    [ "$(wc -l <"$TMPDIR/lines")" -ge 4 ] && (cd "$TMPDIR" && sh -eu lines)
}
check "examples" examples

finish
