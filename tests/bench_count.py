# SPDX-License-Identifier: Apache-2.0
"""An independent count: leading blocks of each request of a trace that requests before it had (an unlimited cache).

bench_count.py TRACE prints: requests, blocks, those served, distinct blocks, blocks of the longest request.
"""
import json
import sys

held = set()
requests = blocks = served = longest = 0
for line in open(sys.argv[1]):
    ids = json.loads(line)["hash_ids"]
    prefixes = [tuple(ids[: i + 1]) for i in range(len(ids))]
    requests += 1
    blocks += len(ids)
    longest = max(longest, len(ids))
    served += next((i for i, prefix in enumerate(prefixes) if prefix not in held), len(ids))
    held.update(prefixes)
print(requests, blocks, served, len(held), longest)
