// SPDX-License-Identifier: GPL-2.0
/*
 * Counts interrupts of devices and of the timer, and those of them that came
 * while interrupts were off, which no CPU lets happen.
 */
#include <asm/irq_regs.h>
#include <asm/processor-flags.h>
#include <linux/kprobes.h>
#include <linux/module.h>

static unsigned long devices;
module_param(devices, ulong, 0444);
MODULE_PARM_DESC(devices, "Interrupts of devices");

static unsigned long ticks;
module_param(ticks, ulong, 0444);
MODULE_PARM_DESC(ticks, "Interrupts of the timer");

static unsigned long while_off;
module_param(while_off, ulong, 0444);
MODULE_PARM_DESC(while_off, "Interrupts of both that came while they were off");

static int look(unsigned long *count)
{
	const struct pt_regs *interrupted = get_irq_regs();

	if (!interrupted)
		return 0;
	(*count)++;
	if (!(interrupted->flags & X86_EFLAGS_IF))
		while_off++;
	return 0;
}

static int of_device(struct kprobe *p, struct pt_regs *regs)
{
	return look(&devices);
}

static int of_timer(struct kprobe *p, struct pt_regs *regs)
{
	return look(&ticks);
}

static struct kprobe device = { .symbol_name = "handle_edge_irq", .pre_handler = of_device };
static struct kprobe timer = { .symbol_name = "hrtimer_interrupt", .pre_handler = of_timer };
static struct kprobe *probes[] = { &device, &timer };

static int __init lab_irqs_init(void)
{
	return register_kprobes(probes, ARRAY_SIZE(probes));
}

static void __exit lab_irqs_exit(void)
{
	unregister_kprobes(probes, ARRAY_SIZE(probes));
}

module_init(lab_irqs_init);
module_exit(lab_irqs_exit);

MODULE_DESCRIPTION("Interrupts that no CPU lets happen");
MODULE_LICENSE("GPL");
