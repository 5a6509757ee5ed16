#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts where; that a user's program builds against it with pkg-config alone, and runs; that
# `make uninstall` leaves nothing.

set -eu
: "${abs_top_builddir:?}"

root=$TMPDIR/root
number=0

# The build tree's make, as if the user had called it.
make_here()
{
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s -C "$abs_top_builddir" DESTDIR="$root" "$@"
}

make_goal()
{
    make_here "$1" >"$TMPDIR/make" 2>&1 || { cat "$TMPDIR/make"; exit 1; }
}

# folder NAME: where files of this kind are installed, as configure was told.
folder()
{
    # shellcheck disable=SC2016 # for make
    printf 'include Makefile\n.PHONY: folder\nfolder:\n\t@echo "$(%s)"\n' "$1" >"$TMPDIR/folder.mk"
    echo "$root$(make_here -f "$TMPDIR/folder.mk" folder)"
}

# result NAME COMMAND...: the case has passed if the command ends with 0.
result()
{
    number=$((number + 1))
    name=$1
    shift
    if "$@" >"$TMPDIR/said" 2>&1; then
        echo "ok $number - $name"
    else
        sed 's/^/# /' "$TMPDIR/said"
        echo "not ok $number - $name"
    fi
}

files_are_there()
{
    for file in "$includedir/kvshm.h" "$libdir/libkvshm.so" "$libdir/libkvshm.so.0" "$libdir/pkgconfig/kvshm.pc"; do
        [ -f "$file" ] || { echo "missing: $file"; return 1; }
    done
}

header_is_alone()
{
    [ "$(cd "$includedir" && echo ./*)" = "./kvshm.h" ]
}

# Each page is in the folder of its section, and each further name leads to a page.
manuals_stand_where_they_belong()
{
    for page in "$mandir"/man*/*; do
        section=${page##*.}
        [ "$(basename "$(dirname "$page")")" = "man$section" ] || { echo "misplaced: $page"; return 1; }
        target=$(sed -n 's/^\.so //p' "$page")
        [ -z "$target" ] || [ -f "$mandir/$target" ] || { echo "$page: no $target"; return 1; }
    done
}

# The program shows that header and library are of one version.
program_builds_and_runs()
{
    cat >"$TMPDIR/user.c" <<'END'
#include <kvshm.h>
#include <stdio.h>

int main(void)
{
    return printf("%s\n", kvshm_version()) < 0;
}
END
    PKG_CONFIG_PATH=$libdir/pkgconfig
    PKG_CONFIG_SYSROOT_DIR=$root
    export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
    # shellcheck disable=SC2046,SC2086 # lists of words
    $CC $KVSHM_CFLAGS -o "$TMPDIR/user" "$TMPDIR/user.c" $(pkg-config --cflags --libs kvshm) || return 1
    said=$(LD_LIBRARY_PATH=$libdir "$TMPDIR/user") || return 1
    [ "$said" = "$(pkg-config --modversion kvshm)" ] || { echo "kvshm_version() says $said"; return 1; }
}

tools_know_their_version()
{
    for tool in "$bindir/kvshm" "$bindir/kvshm-bench" "$sbindir/kvshmctl"; do
        "$tool" --version || return 1
    done
}

nothing_is_left()
{
    left=$(find "$root" ! -type d)
    [ -z "$left" ] || { echo "left: $left"; return 1; }
}

bindir=$(folder bindir)
includedir=$(folder includedir)
libdir=$(folder libdir)
mandir=$(folder mandir)
sbindir=$(folder sbindir)

make_goal install
echo "1..6"
result files files_are_there
result one_header header_is_alone
result manuals manuals_stand_where_they_belong
result program program_builds_and_runs
result tools tools_know_their_version
make_goal uninstall
result uninstall nothing_is_left
