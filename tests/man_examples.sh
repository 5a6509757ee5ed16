#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The example of each manual of section 3, and of those of section 7 that have one, compiles, ends with status 0,
# and prints what its page says it prints.
#
# A page has one display (.Bd) under EXAMPLES; the lines behind it that begin with .Dl are what it prints. An example
# that is no program stands in the program of kvshm(7), in the place of its comment. All are compiled as they stand,
# with main renamed, and linked once; each runs in a KVSHM_DIR of its own.

set -eu
: "${abs_top_srcdir:?}" "${abs_top_builddir:?}" "${CC:?}" "${KVSHM_LIBTOOL:?}"

comment='/\* the example \*/'

# extract PAGE BASE: the example into BASE.text, what it prints into BASE.expected.
extract()
{
    : >"$2.text"
    : >"$2.expected"
    awk -v base="$2" '
        function plain(line) {
            sub(/^\\&/, "", line)
            gsub(/\\-/, "-", line)
            gsub(/\\\(aq/, "\047", line)
            gsub(/\\\(ha/, "^", line)
            gsub(/\\\(ti/, "~", line)
            gsub(/\\\(ga/, "`", line)
            gsub(/\\e/, "\\", line)
            return line
        }
        /^\.Sh / { inside = $2 == "EXAMPLES" }
        !inside { next }
        /^\.Bd/ { blocks++; text = 1; next }
        /^\.Ed/ { text = 0; next }
        text { print plain($0) >(base ".text") }
        /^\.Dl / { print plain(substr($0, 5)) >(base ".expected") }
        END { exit blocks == 1 ? 0 : 1 }' "$1"
}

# frame BASE: a program of the example.
frame()
{
    if grep -q '^int main(void)' "$1.text"; then
        cp "$1.text" "$1.c"
    else
        sed -e "\\|$comment|{r $1.text" -e 'd;}' "$TMPDIR/kvshm.7.text" >"$1.c"
    fi
}

compile()
{
    # shellcheck disable=SC2086 # lists of words
    $CC $KVSHM_CFLAGS -I"$abs_top_srcdir/lib" "-Dmain=example_$2" -c -o "$1.o" "$1.c"
}

# run NUMBER NAME: runs it in a place of its own, in which it leaves no arena and no file, and compares.
run()
{
    mkdir "$TMPDIR/arenas.$2"
    mkdir "$TMPDIR/files.$2"
    if (cd "$TMPDIR/files.$2" && KVSHM_DIR=$TMPDIR/arenas.$2 "$TMPDIR/examples" "$2") >"$TMPDIR/$2.said" 2>&1 &&
        diff -u "$TMPDIR/$2.expected" "$TMPDIR/$2.said" >"$TMPDIR/difference" &&
        rmdir "$TMPDIR/arenas.$2" "$TMPDIR/files.$2"; then
        echo "ok $1 - $2"
    else
        sed 's/^/# /' "$TMPDIR/$2.said"
        find "$TMPDIR/arenas.$2" "$TMPDIR/files.$2" -type f | sed 's/^/# left: /'
        echo "not ok $1 - $2"
    fi
}

extract "$abs_top_srcdir/man/kvshm.7" "$TMPDIR/kvshm.7"
grep -q "$comment" "$TMPDIR/kvshm.7.text"

names=
objects=
for page in "$abs_top_srcdir"/man/*.3 "$abs_top_srcdir"/man/*.7; do
    name=$(basename "$page" | tr .- __)
    if [ "${page%.7}" != "$page" ] && ! grep -q '^\.Sh EXAMPLES' "$page"; then
        continue
    fi
    if ! extract "$page" "$TMPDIR/$name"; then
        echo "$page: not one display under EXAMPLES"
        exit 1
    fi
    frame "$TMPDIR/$name"
    compile "$TMPDIR/$name" "$name"
    names="$names $name"
    objects="$objects $TMPDIR/$name.o"
done

{
    echo '#include <string.h>'
    for name in $names; do
        echo "int example_$name(void);"
    done
    echo 'int main(int argc, char **argv) {'
    for name in $names; do
        echo "if (argc == 2 && strcmp(argv[1], \"$name\") == 0) return example_$name();"
    done
    echo 'return 2; }'
} >"$TMPDIR/main.c"
# shellcheck disable=SC2086 # lists of words
$KVSHM_LIBTOOL --quiet --tag=CC --mode=link $CC $KVSHM_CFLAGS -o "$TMPDIR/examples" "$TMPDIR/main.c" $objects \
    "$abs_top_builddir/lib/libkvshm.la"

echo "1..$(echo "$names" | wc -w)"
number=0
for name in $names; do
    number=$((number + 1))
    run "$number" "$name"
done
