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

static char enable[160];

void trace_begin(const char *event)
{
	if (access(TRACEFS "/instances", F_OK) &&
	    run_command("mount -t tracefs none " TRACEFS))
		ktap_skip("this kernel has no tracefs");
	trace_cleanup();
	EXPECT(!mkdir(INSTANCE, 0700));
	EXPECT_EQ(write_text(INSTANCE "/buffer_size_kb", "4096"), 0);
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

unsigned int trace_end(int *dev, unsigned int max)
{
	char line[512], *at;
	unsigned int n = 0;
	FILE *f;

	EXPECT_EQ(write_text(enable, "0"), 0);
	EXPECT_EQ(lost_events(), 0);
	f = fopen(INSTANCE "/trace", "r");
	EXPECT(f);
	while (fgets(line, sizeof(line), f)) {
		at = line[0] == '#' ? NULL : strstr(line, " dev=");
		if (!at)
			continue;
		EXPECT(n < max);
		dev[n++] = atoi(at + 5);
	}
	fclose(f);
	trace_cleanup();
	return n;
}

void trace_cleanup(void)
{
	if (!access(INSTANCE, F_OK))
		EXPECT(!rmdir(INSTANCE));
}
