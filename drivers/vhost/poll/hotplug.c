// SPDX-License-Identifier: GPL-2.0
/*
 * Pollers whose CPU goes offline.
 *
 * Guests must not notice more than a change of speed.  So the thread moves to another CPU until its
 * own CPU is back.  There it must not spin, so it waits for events, whatever its mode is.
 *
 * The callbacks run on the CPU that comes or goes, while it still schedules ordinary threads.  The
 * hotplug core calls one at a time, and keeps the list of pollers, because each poller is an
 * instance of one state.  So this file needs no list and no lock.
 */
#include <linux/cpuhotplug.h>
#include <linux/sched.h>
#include <linux/sched/isolation.h>
#include <trace/events/vhost_poll.h>

#include "poll.h"

static enum cpuhp_state vhost_poll_cpuhp;

static void vhost_poller_move(struct vhost_poller *p, bool away,
			      const struct cpumask *mask)
{
	WRITE_ONCE(p->away, away);
	/*
	 * Pairs with the barrier in crew_place(): either a thread that takes over sees @away, or
	 * this function sees that thread in @task.
	 */
	smp_mb();
	/*
	 * This cannot fail, because the thread is one of this module, and a CPU of the mask is
	 * online.  If it did, the scheduler would push the thread off the dying CPU itself.
	 */
	set_cpus_allowed_ptr(READ_ONCE(p->task), mask);
	vhost_poller_kick(p);
	trace_vhost_poll_mode(p->cpu, READ_ONCE(p->mode), away);
}

static int vhost_poll_cpu_online(unsigned int cpu, struct hlist_node *node)
{
	struct vhost_poller *p = hlist_entry(node, struct vhost_poller, hotplug);

	if (cpu == p->cpu)
		vhost_poller_move(p, false, cpumask_of(cpu));
	return 0;
}

/**
 * vhost_poll_find_elsewhere - set where a poller's threads may run besides its CPU
 * @p: the poller, which is new, or whose CPU goes offline
 */
void vhost_poll_find_elsewhere(struct vhost_poller *p)
{
	/* Avoid CPUs that are isolated for other work, unless no other CPU is online. */
	cpumask_copy(p->elsewhere, housekeeping_cpumask(HK_TYPE_DOMAIN));
	cpumask_clear_cpu(p->cpu, p->elsewhere);
	if (!cpumask_intersects(p->elsewhere, cpu_online_mask)) {
		cpumask_copy(p->elsewhere, cpu_possible_mask);
		cpumask_clear_cpu(p->cpu, p->elsewhere);
	}
}

static int vhost_poll_cpu_offline(unsigned int cpu, struct hlist_node *node)
{
	struct vhost_poller *p = hlist_entry(node, struct vhost_poller, hotplug);

	if (cpu != p->cpu)
		return 0;
	vhost_poll_find_elsewhere(p);
	vhost_poller_move(p, true, p->elsewhere);
	return 0;
}

/* Sets @p->away to false if the CPU is online, and leaves it true if not. */
int vhost_poll_hotplug_add(struct vhost_poller *p)
{
	return cpuhp_state_add_instance(vhost_poll_cpuhp, &p->hotplug);
}

void vhost_poll_hotplug_remove(struct vhost_poller *p)
{
	cpuhp_state_remove_instance_nocalls(vhost_poll_cpuhp, &p->hotplug);
}

int vhost_poll_hotplug_init(void)
{
	int ret = cpuhp_setup_state_multi(CPUHP_AP_ONLINE_DYN,
					  "vhost/poll:online",
					  vhost_poll_cpu_online,
					  vhost_poll_cpu_offline);

	if (ret < 0)
		return ret;
	vhost_poll_cpuhp = ret;
	return 0;
}

void vhost_poll_hotplug_exit(void)
{
	cpuhp_remove_multi_state(vhost_poll_cpuhp);
}
