# SPDX-License-Identifier: GPL-2.0
#
# Exit-less storage for KVM guests.  `make help` says what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := modules
MAKEFLAGS += --no-print-directory

CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pvio-lab
PREFIX ?= /usr/local

# The kernel to build against: KDIR if given, else KVER, else the newest
# installed one that has headers.
KVER ?= $(shell scripts/newest-kernel)
KDIR ?= $(if $(KVER),/lib/modules/$(KVER)/build)
RELEASE = $(or $(shell cat $(KDIR)/include/config/kernel.release 2>/dev/null),$(KVER))
# PART=guest: only what a guest loads, in a place of its own.
PART :=
BUILD = $(CURDIR)/out/build/$(RELEASE)$(PART:%=-%)

# Debian's headers come without the vmlinux that BTF would need.
jobs = $(if $(findstring --jobserver,$(MAKEFLAGS)),,-j$(shell nproc))
# Lines with Kbuild begin with +, so that it shares the jobs; `make -n` must only print.
dry := $(findstring n,$(filter-out -%,$(firstword $(MAKEFLAGS))))
kbuild = $(MAKE) $(jobs) -C $(KDIR) M=$(BUILD) W=1 KCFLAGS=-Werror \
	CONFIG_DEBUG_INFO_BTF_MODULES= PVIO_PART=$(PART) $(if $(C),C=$(C) CF="$(CF)")

.PHONY: modules stage install install-guest uninstall clean help tree check soak demo bench bench-host insns \
	mutants pvio modules-dir debug-kernel

build-modules = exec 9>$(BUILD).lock && flock 9 && \
	$(kbuild) modules && scripts/collect-modules $(BUILD)

modules: stage
	+@$(if $(dry),echo $(kbuild) modules,$(build-modules))

stage:
	@scripts/kernel-ready "$(KDIR)" "$(KVER)"
	@mkdir -p $(BUILD) && exec 9>$(BUILD).lock && flock 9 && \
	scripts/stage $(BUILD) && \
	$(if $(PART),true,scripts/private-header "$(KDIR)" "$(KVER)" drivers/vhost/vhost.h \
		$(BUILD)/private/vhost) && \
	scripts/private-header "$(KDIR)" "$(KVER)" fs/fuse/fuse_i.h $(BUILD)/private/fuse

# The selftests' and the lab's modules are built with ours, but nobody else wants
# them: to install, Kbuild gets a list without them.
install-modules = sed -e '\|^$(BUILD)/tools/|d' -e '\|^tools/|d' \
		$(BUILD)/modules.order >$(BUILD)/modules.install && \
	$(kbuild) modules_install MODORDER=$(BUILD)/modules.install \
		INSTALL_MOD_DIR=updates INSTALL_MOD_PATH=$(INSTALL_MOD_PATH) \
		CONFIG_MODULE_SIG_ALL= DEPMOD=true
INSTALL_MOD_PATH ?= $(DESTDIR)
depmod = depmod $(if $(INSTALL_MOD_PATH),-b $(INSTALL_MOD_PATH)) $(RELEASE)
updates = $(INSTALL_MOD_PATH)/lib/modules/$(RELEASE)/updates
pvblkctl = $(DESTDIR)$(PREFIX)/sbin/pvblkctl
pvblk-share = $(DESTDIR)$(PREFIX)/share/pvblk
pvblk-examples := 71-pvblk.rules pvblk.conf initramfs-hook
install-pvblk = install -D -m 755 tools/pvblk/pvblkctl $(pvblkctl) && \
	install -D -m 644 -t $(pvblk-share) $(addprefix tools/pvblk/,$(pvblk-examples)) && \
	sed -i 's|/usr/local/|$(PREFIX)/|' $(pvblk-share)/71-pvblk.rules
# mount(8) looks for its helpers nowhere else.
mount-pvfs = $(DESTDIR)/sbin/mount.pvfs
install-pvfs = install -D -m 755 tools/pvfs/mount.pvfs $(mount-pvfs)
# What was installed loads into the kernel that it was built for only.
say-kernel = @echo "Installed for $(RELEASE); depmod has run (Kbuild's warning of a System.map is about its own)."; \
	$(if $(INSTALL_MOD_PATH),true,[ "$(RELEASE)" = "$$(uname -r)" ] || \
	echo "$$(uname -r) is running: boot that one, or KVER=$$(uname -r).")

install: modules pvio
	+@$(if $(dry),echo $(kbuild) modules_install,$(install-modules))
	$(depmod)
	$(install-pvblk)
	$(install-pvfs)
	$(MAKE) -C tools/pvio install-files BIN=$(CURDIR)/out/bin/pvio prefix=$(PREFIX)
	$(say-kernel)

# A guest gets its drivers and helpers only: without pvio no Rust is needed.
install-guest: PART := guest
install-guest: modules
	+@$(if $(dry),echo $(kbuild) modules_install,$(install-modules))
	$(depmod)
	$(install-pvblk)
	$(install-pvfs)
	$(say-kernel)

# What either of the two installed: modules of this kernel, and what all kernels share.
uninstall:
	@[ -n "$(RELEASE)" ] || { echo "Which kernel? give KVER=" >&2; exit 1; }
	rm -rf $(addprefix $(updates)/,$(addprefix drivers/,vhost/poll vhost/serve vhost/blk vhost/fs virtio/poll block/pvblk) fs/pvfs)
	[ ! -d $(INSTALL_MOD_PATH)/lib/modules/$(RELEASE) ] || $(depmod)
	rm -f $(pvblkctl) $(mount-pvfs)
	rm -f $(addprefix $(pvblk-share)/,$(pvblk-examples))
	rmdir $(pvblk-share) 2>/dev/null || true
	$(MAKE) -C tools/pvio uninstall prefix=$(PREFIX)

clean:
	rm -rf out/build out/bin out/tree out/tests
	@for d in tools/testing/selftests/*/Makefile; do \
		if grep -qs '^clean:\|lib\.mk' $$d; then \
			$(MAKE) -s -C $$(dirname $$d) clean || exit; fi; done

pvio:
	@if [ -f tools/pvio/Cargo.toml ]; then \
		. scripts/rust-env && cd tools/pvio && \
		CARGO_TARGET_DIR=$(CACHE)/cargo cargo build --release --locked && \
		install -D -m 755 $(CACHE)/cargo/release/pvio $(CURDIR)/out/bin/pvio; \
	else echo "tools/pvio is not there yet"; fi

modules-dir:
	@echo $(BUILD)

tree:
	@scripts/tree $(or $(TREE),out/tree)

# Not $(MAKE): `make -n check` must only print.
check:
	@LANE='$(LANE)' T='$(T)' tools/lab/check

soak:
	@tools/lab/setup
	@$(MAKE) pvio
	@LANE='$(LANE)' T='$(T)' N='$(N)' MINUTES='$(MINUTES)' tools/lab/soak

debug-kernel:
	@tools/lab/setup && tools/lab/kernel/build

demo:
	@tools/lab/setup
	@$(MAKE) modules pvio
	@tools/lab/bench/demo

bench:
	@tools/lab/setup
	@$(MAKE) modules pvio
	@tools/lab/bench/bench

bench-host:
	@tools/lab/setup
	@$(MAKE) modules
	@tools/lab/bench/bench-host

insns:
	@tools/lab/setup
	@$(MAKE) modules
	@tools/lab/bench/insns

mutants:
	@tools/lab/setup
	@tools/testing/mutants/run $(T)

help:
	@sed '1,2d; s/^# \?//' scripts/help.txt
