/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of QEMU's interface for plugins that insns.c uses.  Debian packages no
 * header.  Only these declarations stay the same from version 1 of the interface
 * (QEMU 7.2) on, with the exception of qemu_plugin_insn_data(), see there.
 */
#ifndef LAB_QEMU_PLUGIN_H
#define LAB_QEMU_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;

struct qemu_plugin_info {
	const char *target;
	struct {
		int min;
		int cur;
	} version;
	bool system;
	struct {
		int smp_vcpus;
		int max_vcpus;
	} cpus;
};

enum { QEMU_PLUGIN_CB_NO_REGS };

typedef void (*qemu_plugin_simple_fn)(uint64_t id);
typedef void (*qemu_plugin_trans_fn)(uint64_t id, struct qemu_plugin_tb *tb);
typedef void (*qemu_plugin_exec_fn)(unsigned int vcpu, void *data);

void qemu_plugin_reset(uint64_t id, qemu_plugin_simple_fn fn);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
					   qemu_plugin_trans_fn fn);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  qemu_plugin_exec_fn fn, int flags,
					  void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    qemu_plugin_exec_fn fn, int flags,
					    void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb,
						 size_t index);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *insn);

/*
 * Up to version 2 it takes the instruction alone and returns its bytes; from
 * version 3 on it copies them and returns how many.  Declared without a type, so
 * that each call has to say which one it means.
 */
void qemu_plugin_insn_data(void);

#endif /* LAB_QEMU_PLUGIN_H */
