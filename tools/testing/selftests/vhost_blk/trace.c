// SPDX-License-Identifier: GPL-2.0
/* See trace.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend.h"
#include "ktap.h"
#include "trace.h"

#define TRACEFS		"/sys/kernel/tracing"
#define INSTANCE	TRACEFS "/instances/vhost_blk_test"

void trace_begin(const char *event)
{
	if (access(TRACEFS "/instances", F_OK) &&
	    run_command("mount -t tracefs none " TRACEFS))
		ktap_skip("this kernel has no tracefs");
	trace_cleanup();
	EXPECT(!mkdir(INSTANCE, 0700));
	EXPECT_EQ(write_text(INSTANCE "/buffer_size_kb", "4096"), 0);
	trace_add(event);
}

void trace_add(const char *event)
{
	char enable[160];

	snprintf(enable, sizeof(enable), INSTANCE "/events/%s/enable", event);
	EXPECT_EQ(write_text(enable, "1"), 0);
}

/* Events that a full buffer has overwritten, over all CPUs. */
static unsigned long lost_events(void)
{
	FILE *f = popen("cat " INSTANCE "/per_cpu/cpu*/stats", "r");
	unsigned long lost = 0, n;
	char line[128];

	EXPECT(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "overrun: %lu", &n) == 1 ||
		    sscanf(line, "dropped events: %lu", &n) == 1)
			lost += n;
	pclose(f);
	return lost;
}

void trace_filter(const char *event, const char *filter)
{
	char path[160];

	snprintf(path, sizeof(path), INSTANCE "/events/%s/filter", event);
	EXPECT_EQ(write_text(path, filter), 0);
}

void trace_end(void (*see)(const char *line, void *arg), void *arg)
{
	char line[512];
	FILE *f;

	EXPECT_EQ(write_text(INSTANCE "/tracing_on", "0"), 0);
	EXPECT_EQ(lost_events(), 0);
	f = fopen(INSTANCE "/trace", "r");
	EXPECT(f);
	while (fgets(line, sizeof(line), f))
		if (line[0] != '#')
			see(line, arg);
	fclose(f);
	trace_cleanup();
}

struct devs {
	int *dev;
	unsigned int n, max;
};

static void see_dev(const char *line, void *arg)
{
	const char *at = strstr(line, " dev=");
	struct devs *d = arg;

	if (!at)
		return;
	EXPECT(d->n < d->max);
	d->dev[d->n++] = atoi(at + 5);
}

unsigned int trace_end_devs(int *dev, unsigned int max)
{
	struct devs d = { .dev = dev, .max = max };

	trace_end(see_dev, &d);
	return d.n;
}

void trace_cleanup(void)
{
	if (!access(INSTANCE, F_OK))
		EXPECT(!rmdir(INSTANCE));
}
