#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# kvshm-bench generate: a seed gives the same trace everywhere, which is what the manual says.

: "${abs_top_srcdir:?}"
. "$abs_top_srcdir/tests/tool_lib.sh"

same_everywhere()
{
    kvshm-bench generate --requests=2000 --seed=1 >"$TMPDIR/a" && kvshm-bench generate >"$TMPDIR/b" &&
        cmp "$TMPDIR/a" "$TMPDIR/b" && sha256sum "$TMPDIR/a" &&
        [ "$(sha256sum <"$TMPDIR/a")" = "55973e90d8987617e2ff096065813dc6da8b99648504f963ace73059654a567a  -" ]
}

another_seed()
{
    kvshm-bench generate --seed=2 >"$TMPDIR/b" && ! cmp -s "$TMPDIR/a" "$TMPDIR/b"
}

longer()
{
    kvshm-bench generate --requests=2500 | head -n 2000 | cmp - "$TMPDIR/a"
}

# Form and model: new ids count up; an id has always the same ids before it; how often each kind of prompt comes.
model()
{
    "$PYTHON" - "$TMPDIR/a" <<'END'
import json, sys
before, first_use, next_id, time, new_prompts = {}, {}, 0, 0, 0
last_use, pauses = {}, []
requests = [json.loads(line) for line in open(sys.argv[1])]
for number, request in enumerate(requests):
    assert list(request) == ["timestamp", "input_length", "output_length", "hash_ids"]
    ids = request["hash_ids"]
    assert 0 <= request["timestamp"] - time <= 600
    time = request["timestamp"]
    assert 512 * (len(ids) - 1) < request["input_length"] <= 512 * len(ids)
    assert 1 <= request["output_length"] <= 1024
    new = [i for i in ids if i not in before]
    assert new and new == ids[-len(new):] == list(range(next_id, next_id + len(new)))
    next_id += len(new)
    for place, i in enumerate(ids):
        assert before.setdefault(i, ids[:place]) == ids[:place]
    new_prompts += len(new) == len(ids)
    known = ids[-len(new) - 1] if len(new) < len(ids) else None
    if known is not None and place > 3 and known in last_use and len(before[known]) >= 3:
        pauses.append(number - last_use[known])
    last_use.update((i, number) for i in ids)
assert len(requests) == 2000
assert 0.15 < new_prompts / 2000 < 0.25, new_prompts
assert len(pauses) > 500 and min(pauses) > 96, (len(pauses), min(pauses))
END
}

closed()
{
    ! kvshm-bench generate --requests=100000 >/dev/full 2>"$TMPDIR/err" && grep -q 'standard output' "$TMPDIR/err"
}

check "a seed gives the same trace everywhere" same_everywhere
check "another seed makes another trace" another_seed
check "a longer trace begins alike" longer
check "form and model" model
check "output that is not written is an error" closed
finish
