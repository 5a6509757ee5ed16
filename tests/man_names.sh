#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The manuals and the public header name the same things.

set -eu
: "${abs_top_srcdir:?}"

if [ -z "${PYTHON-}" ]; then
    echo "there is no Python"
    exit 77
fi
exec "$PYTHON" "$abs_top_srcdir/tests/man_names.py" "$abs_top_srcdir"
