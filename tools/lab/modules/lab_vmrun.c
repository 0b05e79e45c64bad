// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps QEMU's emulator from delivering an interrupt of a nested guest twice.
 *
 * Seen with QEMU 7.2: a guest is interrupted with interrupts off (lab_irqs counts
 * that), and may lose a task for ever: one that is just being taken off the run
 * queue is found to be the current one, and is woken without being put back.
 *
 * The account that fits: QEMU emulates a VMRUN that injects an interrupt by
 * delivering it at once, but keeps its number as an exception to be raised until
 * the next VM exit, or until the guest has any other exception.  If something
 * else stops the emulated CPU before that (another CPU wants it, a timer of
 * QEMU's), the number is raised, wherever the guest is by then.
 *
 * A VM exit forgets the number.  KVM can be asked for one right after a VMRUN,
 * and here is, for each VMRUN that injects an interrupt: the interrupt is still
 * delivered in between.  With that, none has been seen again.
 *
 * It costs one exit an interrupt, which "forced" counts (a few of them would have
 * come by themselves, for an interrupt of the host's).
 *
 * And from losing interrupts of the host VM.  Seen through QEMU's monitor: a CPU is
 * halted, its local APIC has an interrupt waiting that nothing masks, and nobody
 * tells the CPU any more, for good.
 *
 * The account: for a VMRUN with a virtual interrupt waiting QEMU adds a bit to the
 * CPU's requests, without the lock under which other threads add theirs, which may
 * get lost.  A write to the task priority has the APIC look again.  So the priority
 * is written anew, as it was, after each exit.
 *
 * For the lab's host VM under TCG only; tools/lab/pvlab/guest.py loads it.
 */
#include <linux/kprobes.h>
#include <linux/kvm_host.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <asm/apic.h>

static DEFINE_PER_CPU(unsigned long, forced);

static int forced_get(char *buffer, const struct kernel_param *kp)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(forced, cpu);
	return sysfs_emit(buffer, "%lu\n", sum);
}

static const struct kernel_param_ops forced_ops = { .get = forced_get };
module_param_cb(forced, &forced_ops, NULL, 0444);
MODULE_PARM_DESC(forced, "VM exits that were asked for");

/*
 * The second argument's bit 0 asks for the exit: KVM_RUN_FORCE_IMMEDIATE_EXIT of
 * run_flags; a bool in the kernels before those.
 */
static int before_run(struct kprobe *p, struct pt_regs *regs)
{
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)regs->di;

	if (vcpu->arch.interrupt.injected) {
		regs->si |= 1;
		this_cpu_inc(forced);
	}
	return 0;
}

static int after_exit(struct kprobe *p, struct pt_regs *regs)
{
	apic->write(APIC_TASKPRI, apic->read(APIC_TASKPRI));
	return 0;
}

static struct kprobe run = {
	.symbol_name = "svm_vcpu_run",
	.pre_handler = before_run,
};

static struct kprobe handle_exit = {
	.symbol_name = "svm_handle_exit",
	.pre_handler = after_exit,
};

static struct kprobe *probes[] = { &run, &handle_exit };

static int __init lab_vmrun_init(void)
{
	return register_kprobes(probes, ARRAY_SIZE(probes));
}

static void __exit lab_vmrun_exit(void)
{
	unregister_kprobes(probes, ARRAY_SIZE(probes));
}

module_init(lab_vmrun_init);
module_exit(lab_vmrun_exit);

MODULE_DESCRIPTION("Works around QEMU's emulation of VMRUN");
MODULE_LICENSE("GPL");
