#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A malformed trace is an error that names the line and the field, and makes no arena.

: "${abs_top_srcdir:?}"
. "$abs_top_srcdir/tests/tool_lib.sh"

good='{"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [1, 2]}'
start='{"timestamp": 0, "input_length": 700, "output_length": 1'

# refused MESSAGE TEXT: two good lines, then the text (of printf) as line 3.
refused()
{
    # shellcheck disable=SC2059 # a format
    { echo "$good"; echo "$good"; printf "$2"; } >"$TMPDIR/trace"
    kvshm-bench replay "$TMPDIR/trace" >"$TMPDIR/out" 2>"$TMPDIR/err"
    status=$?
    echo "status $status"
    cat "$TMPDIR/out" "$TMPDIR/err"
    [ $status = 1 ] && [ ! -s "$TMPDIR/out" ] && [ "$(ls "$KVSHM_DIR")" = "" ] &&
        [ "$(cat "$TMPDIR/err")" = "kvshm-bench: $TMPDIR/trace:3: $1" ]
}

# accepted TEXT: the text is a trace, from standard input, of one block that is served once.
accepted()
{
    # shellcheck disable=SC2059 # a format
    printf "$1" >"$TMPDIR/trace"
    kvshm-bench replay --procs=1 - <"$TMPDIR/trace" | grep -q '^blocks served  *1 '
}

whole='no whole number from 0'
check "an empty line" refused "is empty" '\n'
check "blanks" refused "is empty" ' \t\n'
check "no JSON" refused "is no JSON at column 1: unexpected character" 'hello\n'
check "a truncated line" refused "is no JSON at column 16: unexpected end of data" '{"timestamp": 0'
check "more behind it" refused "is no JSON at column $((${#good} + 2)): unexpected character" "$good x\\n"
check "a NUL in it" refused "goes on behind its JSON value, at column $((${#good} + 1))" "$good\\000 x\\n"
check "no UTF-8" refused "is no JSON at column 1: invalid utf-8 string" '\377\n'
check "a number" refused "is no JSON object" '12\n'
check "an array" refused "is no JSON object" '[]\n'
check "null" refused "is no JSON object" 'null\n'
check "no timestamp" refused "timestamp: is missing" '{"input_length": 1}\n'
check "a timestamp of text" refused "timestamp: is no number from 0" '{"timestamp": "0"}\n'
check "a timestamp before the start" refused "timestamp: is no number from 0" '{"timestamp": -1}\n'
check "no input_length" refused "input_length: is missing" '{"timestamp": 0}\n'
check "half a token" refused "input_length: is $whole" '{"timestamp": 0, "input_length": 0.5}\n'
check "no output_length" refused "output_length: is missing" '{"timestamp": 0, "input_length": 1}\n'
check "fewer tokens than none" refused "output_length: is $whole" \
    '{"timestamp": 0, "input_length": 1, "output_length": -1}\n'
check "no hash_ids" refused "hash_ids: is missing" "$start}\\n"
check "hash_ids that are no array" refused "hash_ids: is no array" "$start, \"hash_ids\": 1}\\n"
check "no ids" refused "hash_ids: is empty; at least one id is needed" "$start, \"hash_ids\": []}\\n"
check "a negative id" refused "hash_ids: id 2 is $whole to 2^63 - 1: -2" "$start, \"hash_ids\": [1, -2]}\\n"
check "an id of text" refused "hash_ids: id 1 is $whole to 2^63 - 1: \"a\"" "$start, \"hash_ids\": [\"a\"]}\\n"
check "an id that is too large" refused "hash_ids: id 1 is $whole to 2^63 - 1: 9223372036854775808" \
    "$start, \"hash_ids\": [9223372036854775808]}\\n"
check "null as an id" refused "hash_ids: id 1 is $whole to 2^63 - 1: null" "$start, \"hash_ids\": [null]}\\n"

empty()
{
    : >"$TMPDIR/trace"
    kvshm-bench replay "$TMPDIR/trace" 2>"$TMPDIR/err"
    [ $? = 1 ] && [ "$(cat "$TMPDIR/err")" = "kvshm-bench: $TMPDIR/trace: no request in it" ]
}
missing()
{
    kvshm-bench replay "$TMPDIR/none" 2>"$TMPDIR/err"
    [ $? = 1 ] && [ "$(cat "$TMPDIR/err")" = "kvshm-bench: $TMPDIR/none: No such file or directory" ]
}
check "an empty trace" empty
check "no such file" missing
check "the last line without a newline" accepted '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [5]}
{"timestamp": 1.5, "input_length": 1, "output_length": 1, "hash_ids": [5]}'
check "other fields, blanks, carriage returns" accepted ' {"hash_ids":[5],"timestamp":0,"input_length":1,"output_length":1,"chat":{"a":[]}}\r
{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [ 5 ] }\t\r\n'
finish
