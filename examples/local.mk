# SPDX-License-Identifier: Apache-2.0
# Programs that use the library as its users do: kvshm.h and the exported names, nothing else. A program is a line
# in EXAMPLES, made from the file of its name, and a line with its LDADD. Each is a test too: it checks what it claims.

EXAMPLES = \
	examples/chunked_prefill \
	examples/digest_pages \
	examples/open_together \
	examples/readme \
	examples/tensor_parallel

examples_chunked_prefill_LDADD = lib/libkvshm.la
examples_digest_pages_LDADD = lib/libkvshm.la
examples_open_together_LDADD = lib/libkvshm.la
examples_readme_LDADD = lib/libkvshm.la
examples_tensor_parallel_LDADD = lib/libkvshm.la

noinst_PROGRAMS += $(EXAMPLES)
TESTS += $(EXAMPLES)
