# SPDX-License-Identifier: Apache-2.0
# The manuals, mdoc, one a line, sorted; each goes to the folder of its section.

dist_man_MANS += \
	man/kvshm.1 \
	man/kvshmctl.8

# Further names of a page: NAME.SECTION=PAGE.SECTION, one a line, sorted. Each is installed as a page that says
# ".so manSECTION/PAGE.SECTION".
MAN_LINKS =

install-data-hook:
	@for link in $(MAN_LINKS); do \
	    name=$${link%%=*}; page=$${link#*=}; \
	    $(MKDIR_P) "$(DESTDIR)$(mandir)/man$${name##*.}" && \
	    echo ".so man$${page##*.}/$$page" > "$(DESTDIR)$(mandir)/man$${name##*.}/$$name" || exit 1; \
	done

uninstall-hook:
	@for link in $(MAN_LINKS); do \
	    name=$${link%%=*}; rm -f "$(DESTDIR)$(mandir)/man$${name##*.}/$$name"; \
	done
