// SPDX-License-Identifier: GPL-2.0
/* See inject.h. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "inject.h"
#include "ktap.h"

#define DEBUGFS	"/sys/kernel/debug"
#define MANY	"1000000000"

void inject_begin(void)
{
	run_command("mountpoint -q " DEBUGFS " || mount -t debugfs none " DEBUGFS);
}

/* The fault that is on may hit us as well, when we turn it off above all. */
static void fault_set(const char *fault, const char *attr, const char *value)
{
	unsigned int tries = 1000;
	char path[160];

	snprintf(path, sizeof(path), DEBUGFS "/%s/%s", fault, attr);
	while (write_text(path, value) == -ENOMEM && --tries)
		;
	EXPECT(tries);
}

void fault_on(const char *fault, unsigned int percent, bool by_task)
{
	char path[160], text[16];

	snprintf(path, sizeof(path), DEBUGFS "/%s/probability", fault);
	if (access(path, F_OK))
		ktap_skip("this kernel has no such fault injection");
	snprintf(text, sizeof(text), "%u", percent);
	fault_set(fault, "verbose", "0");
	fault_set(fault, "interval", "1");
	fault_set(fault, "times", MANY);
	fault_set(fault, "space", "0");
	fault_set(fault, "ignore-gfp-wait", "0");
	fault_set(fault, "cache-filter", "0");
	fault_set(fault, "task-filter", by_task ? "1" : "0");
	fault_set(fault, "probability", text);
}

unsigned int faults_hit(const char *fault)
{
	char path[160];
	int left;
	FILE *f;

	snprintf(path, sizeof(path), DEBUGFS "/%s/times", fault);
	f = fopen(path, "r");
	EXPECT(f);
	EXPECT_EQ(fscanf(f, "%d", &left), 1);
	fclose(f);
	return atoi(MANY) - left;
}

void faults_off(void)
{
	static const char *const faults[] = {
		"failslab", "fail_make_request", "fail_usercopy",
		"fail_page_alloc"
	};
	unsigned int i;

	for (i = 0; i < KTAP_COUNT(faults); i++)
		fault_set(faults[i], "probability", "0");
}

void fail_task(const char *pid, const char *on)
{
	char path[300];

	snprintf(path, sizeof(path), "/proc/%s/make-it-fail", pid);
	write_text(path, on);
}

unsigned int fail_threads(const char *kind, const char *name, const char *on)
{
	char path[300], comm[64];
	struct dirent *e;
	DIR *dir = opendir("/proc");
	unsigned int found = 0;
	FILE *f;

	while (dir && (e = readdir(dir))) {
		if (!isdigit(e->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(comm, sizeof(comm), f) && strstr(comm, name) &&
		    strstr(comm, kind)) {
			fail_task(e->d_name, on);
			found++;
		}
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return found;
}
