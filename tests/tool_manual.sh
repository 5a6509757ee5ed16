#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The manuals of the tools say what the tools say: the options with their arguments, the columns, the commands.

: "${abs_top_srcdir:?}"
expected=/dev/null
. "$abs_top_srcdir/tests/tool_lib.sh"

man=$abs_top_srcdir/man

# "-o --output=COLUMNS" of each option in what --help prints.
options_of_help()
{
    sed -n 's/^ \{2,6\}\(-[^ ,-]\(, --[^ ]*\)\{0,1\}\|--[^ ]*\).*/\1/p' | tr -d ',' | sort
}

# The same of the items of a manual, or of its subsection.
options_of_manual()
{
    awk -v part="${2-}" '
        /^\.S[hs] / { on = part == "" || $0 == ".Ss " part }
        on && /^\.It Fl / {
            line = $0
            sub(/^\.It /, "", line)
            gsub(/ Ns = Ns Ar /, "=", line)
            gsub(/\\&/, "", line)
            gsub(/Fl /, "-", line)
            gsub(/ ,/, "", line)
            print line
        }' "$man/$1" | sort
}

# Those that every tool and command has, said once in a sentence in kvshmctl's manual.
common='-? --help
-V --version
--usage'

same()
{
    diff -u "$TMPDIR/manual" "$TMPDIR/help" && [ -s "$TMPDIR/help" ]
}

kvshm --help | options_of_help >"$TMPDIR/help"
options_of_manual kvshm.1 >"$TMPDIR/manual"
check "options of kvshm" same

kvshmctl --help | options_of_help >"$TMPDIR/help"
echo "$common" | sort >"$TMPDIR/manual"
check "options of kvshmctl" same

commands=$(kvshmctl --help | sed -n '/^ *Commands:/,/^$/s/^ *\([a-z]\{1,\}\) [ A-Z].*/\1/p')
for command in $commands; do
    kvshmctl "$command" --help | options_of_help >"$TMPDIR/help"
    { options_of_manual kvshmctl.8 "$command"; echo "$common"; } | sort >"$TMPDIR/manual"
    check "options of kvshmctl $command" same
done

echo "$commands" | sort >"$TMPDIR/help"
sed -n 's/^\.Ss //p' "$man/kvshmctl.8" | sort >"$TMPDIR/manual"
check "commands of kvshmctl" same

# Columns: the first word behind the marks; in the manual in the order of the views.
kvshm --help | sed -n '/^ *Columns/,$s/^ \{2,3\}[* ][u ][s ] \([A-Z-]\{2,\}\) .*/\1/p' >"$TMPDIR/help"
sed -n '/^\.Sh COLUMNS/,/^\.Sh JSON/s/^\.It Cm //p' "$man/kvshm.1" >"$TMPDIR/manual"
check "columns of kvshm" same

# Counters: what the table that makes them says of each.
sed -n 's/^KVSHM_\(LEASE_\)\{0,1\}COUNTER(\([a-z_]*\), *[a-z]*, *"\(.*\)")$/\2 \3/p' \
    "$abs_top_srcdir/lib/counters.def" >"$TMPDIR/help"
awk '/^\.It Cm LOOKUP-HITS/ { on = 1 } /^\.El/ { on = 0 }
    on && /^\.It Cm/ { name = tolower($3); gsub(/-/, "_", name); next }
    on { sub(/\.$/, ""); print name, tolower(substr($0, 1, 1)) substr($0, 2) }' "$man/kvshm.1" >"$TMPDIR/manual"
check "counters in the manual of kvshm" same

if [ -n "$MANDOC" ] && [ "$MANDOC" != no ]; then
    for page in kvshm.1 kvshmctl.8; do
        check "mandoc finds nothing in $page" "$MANDOC" -Tlint -W warning "$man/$page"
    done
else
    cases=$((cases + 1))
    echo "ok $cases - mandoc finds nothing # SKIP mandoc is not installed"
fi
finish
