# SPDX-License-Identifier: Apache-2.0
# Models of the protocol: `make check-models` needs spin and gcc.

.PHONY: check-models
check-models:
	$(srcdir)/models/check

EXTRA_DIST += \
	models/README.md \
	models/chain.inc \
	models/check \
	models/clear.pml \
	models/copy.pml \
	models/epochs.pml \
	models/fork.pml \
	models/index.pml \
	models/join.pml \
	models/lease.pml \
	models/limbo.pml \
	models/restore.pml \
	models/slots.pml \
	models/writer.pml
