#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The tables of kvshm_errors(7) and kvshm-counters(7) say what lib/errors.def and lib/counters.def say.
#
#   tests/man_tables.sh           compares; prints TAP
#   tests/man_tables.sh --write   makes the tables in man/ anew (by hand, from the top of the source tree)
#
# The tables are printed by a program that includes the .def files, as the library does.

set -eu
: "${abs_top_srcdir:=$PWD}" "${CC:=cc}" "${TMPDIR:=/tmp}"

work=$(mktemp -d "$TMPDIR/man_tables.XXXXXX")
trap 'rm -rf "$work"' EXIT

cat >"$work/tables.c" <<'EOC'
#include <stdio.h>
#include <string.h>

#define KVSHM_ERROR(code, name, sentence, meaning)                                                 \
    printf(".It Er %s Pq \\-%d\n%s: %s.\n", #name, -(code), sentence, meaning);
#define KVSHM_COUNTER(name, unit, help) printf(".It Va %s Pq %s\n%s.\n", #name, #unit, help);
#define KVSHM_LEASE_COUNTER KVSHM_COUNTER

static void errors(void)
{
#include "errors.def"
}

static void counters(void)
{
#include "counters.def"
}

int main(int argc, char **argv)
{
    puts(".Bl -tag -width Ds");
    if (argc > 1 && strcmp(argv[1], "errors") == 0)
        errors();
    else
        counters();
    puts(".El");
    return 0;
}
EOC
# shellcheck disable=SC2086 # several words, with ccache
$CC -I"$abs_top_srcdir/lib" -o "$work/tables" "$work/tables.c"

# table NAME: as mdoc wants it, each sentence on a line of its own, lines no longer than 78, a capital first.
table()
{
    "$work/tables" "$1" |
        awk '/^\./ { print; next } { print toupper(substr($0, 1, 1)) substr($0, 2) }' |
        awk '/^\./ { print; next } { while (match($0, /\. [A-Z]/)) {
            print substr($0, 1, RSTART); $0 = substr($0, RSTART + 2) } print }' |
        sed 's/ *\(kvshm_[a-z_]*\)()\([;.,]\{0,1\}\) */\n.Fn \1 \2\n/g' |
        sed '/^$/d' | fold -s -w 78 | sed 's/ *$//'
}

# in_page PAGE: what stands between the two marks.
in_page()
{
    awk '/^\.\\" table ends$/ { inside = 0 } inside; /^\.\\" table begins$/ { inside = 1 }' "$1"
}

write()
{
    awk -v table="$1" '
        /^\.\\" table ends$/ { inside = 0 }
        !inside
        /^\.\\" table begins$/ { inside = 1; while ((getline line < table) > 0) print line }' "$2" >"$work/page"
    cat "$work/page" >"$2"
}

number=0
[ "${1-}" = --write ] || echo "1..2"
for name in errors counters; do
    page=$abs_top_srcdir/man/kvshm_errors.7
    [ "$name" = errors ] || page=$abs_top_srcdir/man/kvshm-counters.7
    number=$((number + 1))
    table "$name" >"$work/$name"
    if [ "${1-}" = --write ]; then
        write "$work/$name" "$page"
        continue
    fi
    in_page "$page" >"$work/$name.page"
    : >"$work/difference"
    if [ "$(wc -l <"$work/$name")" -gt 20 ] && diff -u "$work/$name" "$work/$name.page" >"$work/difference"; then
        echo "ok $number - $name"
    else
        sed 's/^/# /' "$work/difference"
        echo "not ok $number - $name: run tests/man_tables.sh --write"
    fi
done
