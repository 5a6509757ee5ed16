# SPDX-License-Identifier: Apache-2.0
# The manuals, mdoc, one a line, sorted; each goes to the folder of its section.

dist_man_MANS += \
	man/kvshm-bench.1 \
	man/kvshm-counters.7 \
	man/kvshm.1 \
	man/kvshm.5 \
	man/kvshm.7 \
	man/kvshm_at.3 \
	man/kvshm_attach.3 \
	man/kvshm_cancel.3 \
	man/kvshm_clear.3 \
	man/kvshm_config_init.3 \
	man/kvshm_contains.3 \
	man/kvshm_copy_out.3 \
	man/kvshm_create.3 \
	man/kvshm_detach.3 \
	man/kvshm_errors.7 \
	man/kvshm_evict_lru.3 \
	man/kvshm_flush.3 \
	man/kvshm_foreach.3 \
	man/kvshm_hash_tokens.3 \
	man/kvshm_info.3 \
	man/kvshm_insert.3 \
	man/kvshm_join.3 \
	man/kvshm_lease_page.3 \
	man/kvshm_list.3 \
	man/kvshm_lookup.3 \
	man/kvshm_match.3 \
	man/kvshm_page_bytes.3 \
	man/kvshm_prefetch.3 \
	man/kvshm_prefix_init.3 \
	man/kvshm_release.3 \
	man/kvshm_remove.3 \
	man/kvshm_reserve.3 \
	man/kvshm_stats.3 \
	man/kvshm_strerror.3 \
	man/kvshm_unlink.3 \
	man/kvshm_wait.3 \
	man/kvshmctl.8

# Further names of a page: NAME.SECTION=PAGE.SECTION, one a line, sorted. Each is installed as a page that says
# ".so manSECTION/PAGE.SECTION".
MAN_LINKS = \
	kvshm_at_writable.3=kvshm_at.3 \
	kvshm_config_init_sized.3=kvshm_config_init.3 \
	kvshm_errmsg.3=kvshm_strerror.3 \
	kvshm_eventfd.3=kvshm_wait.3 \
	kvshm_info_init.3=kvshm_info.3 \
	kvshm_info_init_sized.3=kvshm_info.3 \
	kvshm_lease_offsets.3=kvshm_lease_page.3 \
	kvshm_lease_pages.3=kvshm_lease_page.3 \
	kvshm_lease_tag.3=kvshm_lease_page.3 \
	kvshm_leave.3=kvshm_join.3 \
	kvshm_open.3=kvshm_attach.3 \
	kvshm_pages_for_tokens.3=kvshm_page_bytes.3 \
	kvshm_prefix_init_hash.3=kvshm_prefix_init.3 \
	kvshm_prefix_init_key.3=kvshm_prefix_init.3 \
	kvshm_reservation_offsets.3=kvshm_reserve.3 \
	kvshm_reservation_page.3=kvshm_reserve.3 \
	kvshm_stats_init.3=kvshm_stats.3 \
	kvshm_stats_init_sized.3=kvshm_stats.3 \
	kvshm_version.3=kvshm_strerror.3

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
