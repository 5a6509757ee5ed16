#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each change of the mutation run still fits the library, each test that it names is there, and README.md of the tests has
# its table, and names every test. Nothing is compiled: make check-mutants does that.

set -u
: "${abs_top_srcdir:?}"

if [ -z "${PYTHON-}" ]; then
    echo "there is no python3"
    exit 77
fi
exec "$PYTHON" "$abs_top_srcdir/tests/mutants.py" --current
