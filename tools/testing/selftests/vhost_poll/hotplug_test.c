// SPDX-License-Identifier: GPL-2.0
/* Pollers whose CPU goes offline and comes back. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "poller.h"

static void allowed(int pid, char *buf, size_t len)
{
	status_line(pid, "Cpus_allowed_list", buf, len);
}

static void an_offline_cpu_is_refused(void)
{
	unsigned int cpu = need_other_cpu();
	int fd = open_poller();

	EXPECT_EQ(cpu_online(cpu, false), 0);
	EXPECT_EQ(try_create(fd, cpu, VHOST_POLL_MODE_EVENT, "off"), -ENODEV);
	EVENTUALLY(!poller_pid(cpu, "off"));
	EXPECT_EQ(cpu_online(cpu, true), 0);
	EXPECT_EQ(try_create(fd, cpu, VHOST_POLL_MODE_EVENT, "off"), 0);
}

static void it_moves_and_returns(void)
{
	unsigned int cpu = need_other_cpu();
	int fd = create_poller(cpu, VHOST_POLL_MODE_BUSY, "moves");
	char before[256], away[256], after[256];
	int pid = poller_pid(cpu, "moves");

	allowed(pid, before, sizeof(before));
	EXPECT_EQ(cpu_online(cpu, false), 0);
	EXPECT_EQ(poller_stats(fd).state, 1);
	EXPECT_EQ(poller_stats(fd).cpu, cpu);
	EXPECT_EQ(poller_stats(fd).mode, VHOST_POLL_MODE_BUSY);
	allowed(pid, away, sizeof(away));
	EXPECT(strcmp(before, away));
	EXPECT_EQ(cpu_online(cpu, true), 0);
	EXPECT_EQ(poller_stats(fd).state, 0);
	allowed(pid, after, sizeof(after));
	EXPECT(!strcmp(before, after));
}

static void others_stay(void)
{
	unsigned int cpu = need_other_cpu();
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "stays");

	EXPECT_EQ(cpu_online(cpu, false), 0);
	EXPECT_EQ(poller_stats(fd).state, 0);
	EXPECT_EQ(cpu_online(cpu, true), 0);
}

static void work_is_served_meanwhile(void)
{
	unsigned int cpu = need_other_cpu(), mode;

	for (mode = 0; mode < 3; mode++) {
		int fd = create_poller(cpu, mode, "works");
		int source = attached_source(fd);

		add_work(source, 1000);
		expect_served(source);
		EXPECT_EQ(cpu_online(cpu, false), 0);
		add_work(source, 1000);
		expect_served(source);
		EXPECT_EQ(cpu_online(cpu, true), 0);
		add_work(source, 1000);
		expect_served(source);
		close(source);
		close(fd);
	}
}

/* Away from its core it takes nobody else's. */
static void away_it_waits_for_events(void)
{
	unsigned int cpu = need_other_cpu();
	int fd = create_poller(cpu, VHOST_POLL_MODE_BUSY, "away");
	int source = attached_source(fd);
	struct vhost_poll_stats st, later;

	st = poller_stats(fd);
	EVENTUALLY(poller_stats(fd).rounds > st.rounds + 100);
	EXPECT_EQ(cpu_online(cpu, false), 0);
	EVENTUALLY((st = poller_stats(fd), usleep(20000),
		    later = poller_stats(fd), st.rounds == later.rounds));
	EXPECT_EQ(cpu_online(cpu, true), 0);
	EVENTUALLY(poller_stats(fd).rounds > later.rounds + 100);
	close(source);
}

static void close_while_offline(void)
{
	unsigned int cpu = need_other_cpu();
	int fd = create_poller(cpu, VHOST_POLL_MODE_BUSY, "offclose");

	EXPECT_EQ(cpu_online(cpu, false), 0);
	close(fd);
	EVENTUALLY(!poller_pid(cpu, "offclose"));
	EXPECT_EQ(cpu_online(cpu, true), 0);
}

static const struct ktap_test tests[] = {
	{ "an_offline_cpu_is_refused", an_offline_cpu_is_refused, 0 },
	{ "it_moves_and_returns", it_moves_and_returns, 0 },
	{ "others_stay", others_stay, 0 },
	{ "work_is_served_meanwhile", work_is_served_meanwhile, 0 },
	{ "away_it_waits_for_events", away_it_waits_for_events, 0 },
	{ "close_while_offline", close_while_offline, 0 },
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, KTAP_COUNT(tests));
}
