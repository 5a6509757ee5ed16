# SPDX-License-Identifier: Apache-2.0
# Options and checks of configure.ac that are longer than a line.

# KVSHM_WERROR: --enable-werror. Off unless asked for, so that a newer compiler's new warnings stop no user.
AC_DEFUN([KVSHM_WERROR], [
AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [warnings are errors])])
KVSHM_CFLAGS="-std=gnu11 -fvisibility=hidden -Wall -Wextra"
kvshm_werror_words="told"
AS_IF([test "x$enable_werror" = xyes],
    [KVSHM_CFLAGS="$KVSHM_CFLAGS -Werror"
     kvshm_werror_words="are errors"])
AC_SUBST([KVSHM_CFLAGS])
])

# KVSHM_URING: is liburing here, with which transfers between memory and file are made many at once?
#
# Its static form is linked into the library if it can be, so that programs load the C library alone: in a shared
# object its code has to be position-independent, which is tried here.
AC_DEFUN([KVSHM_URING], [
AC_ARG_WITH([liburing],
    [AS_HELP_STRING([--without-liburing], [make transfers by pread and pwrite alone])])
URING_CPPFLAGS=
URING_LIBS=
URING_PC_LIBS=
kvshm_uring_words="by pread and pwrite alone"
AS_IF([test "x$with_liburing" != xno],
    [PKG_CHECK_MODULES([LIBURING], [liburing >= 2.3],
        [URING_CPPFLAGS="-DKVSHM_LIBURING=1 $LIBURING_CFLAGS"
         URING_PC_LIBS=$LIBURING_LIBS
         kvshm_save_CFLAGS=$CFLAGS
         kvshm_save_LIBS=$LIBS
         URING_LIBS=`AS_ECHO(["$LIBURING_LIBS"]) | $SED 's/-luring/-l:liburing.a/'`
         CFLAGS="$CFLAGS $LIBURING_CFLAGS -shared -fPIC"
         LIBS="$URING_LIBS $LIBS"
         AC_MSG_CHECKING([whether liburing.a links into a shared library])
         AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <liburing.h>]],
                [[struct io_uring u; return io_uring_queue_init(1, &u, 0) + io_uring_submit(&u);]])],
            [AC_MSG_RESULT([yes])
             kvshm_uring_words="by io_uring too, liburing linked statically"],
            [AC_MSG_RESULT([no])
             URING_LIBS=$LIBURING_LIBS
             kvshm_uring_words="by io_uring too, liburing loaded with the library"])
         CFLAGS=$kvshm_save_CFLAGS
         LIBS=$kvshm_save_LIBS],
        [AS_IF([test "x$with_liburing" = xyes], [AC_MSG_ERROR([liburing 2.3 or newer is not here])])])])
AC_SUBST([URING_CPPFLAGS])
AC_SUBST([URING_LIBS])
AC_SUBST([URING_PC_LIBS])
])

# KVSHM_LMDB: is LMDB here, beside which kvshm-bench measures lookups?
AC_DEFUN([KVSHM_LMDB], [
PKG_CHECK_MODULES([LMDB], [lmdb],
    [LMDB_CPPFLAGS="-DKVSHM_LMDB=1 $LMDB_CFLAGS"
     kvshm_lmdb_words="measures beside LMDB"],
    [LMDB_CPPFLAGS=
     kvshm_lmdb_words="measures without LMDB, which is not here"])
AC_SUBST([LMDB_CPPFLAGS])
])

# KVSHM_SANITIZERS: --enable-asan, --enable-ubsan, --enable-tsan.
#
# A sanitizer takes malloc over, so the tools are not linked to jemalloc in such a build.
# ThreadSanitizer does not understand fences: KVSHM_TSAN makes a macro turn them into operations that it does, and
# of the compilers only clang builds that without a warning.
AC_DEFUN([KVSHM_SANITIZERS], [
AC_ARG_ENABLE([asan],
    [AS_HELP_STRING([--enable-asan], [build with AddressSanitizer])])
AC_ARG_ENABLE([ubsan],
    [AS_HELP_STRING([--enable-ubsan], [build with UndefinedBehaviorSanitizer])])
AC_ARG_ENABLE([tsan],
    [AS_HELP_STRING([--enable-tsan], [build with ThreadSanitizer (needs CC=clang)])])

kvshm_sanitizers=
AS_IF([test "x$enable_asan" = xyes], [AS_VAR_APPEND([kvshm_sanitizers], [" address"])])
AS_IF([test "x$enable_ubsan" = xyes], [AS_VAR_APPEND([kvshm_sanitizers], [" undefined"])])
AS_IF([test "x$enable_tsan" = xyes],
    [AS_IF([test "x$enable_asan" = xyes],
        [AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other])])
     AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#ifndef __clang__
#error "not clang"
#endif
]])], [], [AC_MSG_ERROR([--enable-tsan needs clang: configure with CC=clang])])
     AS_VAR_APPEND([kvshm_sanitizers], [" thread"])])

SANITIZER_CPPFLAGS=
SANITIZER_CFLAGS=
for kvshm_s in $kvshm_sanitizers; do
    SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fsanitize=$kvshm_s"
done
AS_IF([test "x$enable_ubsan" = xyes],
    [SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fno-sanitize-recover=all"])
AS_IF([test "x$enable_tsan" = xyes], [SANITIZER_CPPFLAGS="-DKVSHM_TSAN=1"])
kvshm_sanitizer_words=none
AS_IF([test "x$kvshm_sanitizers" != x],
    [SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fno-omit-frame-pointer"
     kvshm_sanitizer_words=$kvshm_sanitizers
     JEMALLOC_CFLAGS=
     JEMALLOC_LIBS=
     kvshm_save_CFLAGS=$CFLAGS
     CFLAGS="$CFLAGS $SANITIZER_CFLAGS"
     AC_MSG_CHECKING([whether $CC links with$SANITIZER_CFLAGS])
     AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([the sanitizers' run-time library is missing (Debian: libclang-rt-14-dev for clang)])])
     CFLAGS=$kvshm_save_CFLAGS])
AM_CONDITIONAL([TSAN], [test "x$enable_tsan" = xyes])
AC_SUBST([SANITIZERS], [$kvshm_sanitizers])
AC_SUBST([SANITIZER_CPPFLAGS])
AC_SUBST([SANITIZER_CFLAGS])
])

# KVSHM_TEST_TOOLS: what only `make check` needs. None is an error here, since a user who installs does without.
AC_DEFUN([KVSHM_TEST_TOOLS], [
kvshm_missing=
PKG_CHECK_MODULES([CHECK], [check >= 0.15], [], [AS_VAR_APPEND([kvshm_missing], [" check"])])
AC_ARG_VAR([PYTHON], [Python 3 interpreter, for the tests])
AC_ARG_VAR([MANDOC], [mandoc, which checks the manuals in the tests])
AC_ARG_VAR([CXX], [C++ compiler, which the tests show the public header])
AC_PATH_PROGS([PYTHON], [python3])
AC_PATH_PROGS([MANDOC], [mandoc])
AS_CASE([$CC],
    [*clang*], [AC_CHECK_PROGS([CXX], [clang++ g++ c++])],
    [AC_CHECK_PROGS([CXX], [g++ clang++ c++])])
AS_IF([test "x$PYTHON" = x], [AS_VAR_APPEND([kvshm_missing], [" python3"])])
AS_IF([test "x$MANDOC" = x], [AS_VAR_APPEND([kvshm_missing], [" mandoc"])])
AS_IF([test "x$CXX" = x], [AS_VAR_APPEND([kvshm_missing], [" g++"])])
kvshm_test_words="can run"
AS_IF([test "x$kvshm_missing" != x],
    [kvshm_test_words="cannot run, missing:$kvshm_missing"
     AC_MSG_WARN([make check needs what is missing here:$kvshm_missing])])
])
