// SPDX-License-Identifier: GPL-2.0
/* A cgroup for a test; see cgroup.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend.h"
#include "cgroup.h"
#include "ktap.h"

#define ROOT	"/sys/fs/cgroup"
#define OURS	ROOT "/vbt"

void cgroup_enter(void)
{
	char pid[16];

	if (access(ROOT "/cgroup.controllers", F_OK))
		run_command("mount -t cgroup2 none " ROOT " 2>/dev/null");
	if (write_text(ROOT "/cgroup.subtree_control", "+io +memory"))
		ktap_skip("no cgroups with io and memory controllers here");
	EXPECT(!mkdir(OURS, 0700));
	snprintf(pid, sizeof(pid), "%d", getpid());
	EXPECT_EQ(cgroup_set("cgroup.procs", pid), 0);
}

void cgroup_leave(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	EXPECT_EQ(write_text(ROOT "/cgroup.procs", pid), 0);
}

void cgroup_limit_cpu(const char *limit)
{
	if (write_text(ROOT "/cgroup.subtree_control", "+cpu") || cgroup_set("cpu.max", limit))
		ktap_skip("no limits for CPU time here");
}

u64 cgroup_cpu(const char *key)
{
	FILE *f = fopen(OURS "/cpu.stat", "r");
	unsigned long long value;
	char name[64];

	EXPECT(f);
	while (fscanf(f, "%63s %llu", name, &value) == 2)
		if (!strcmp(name, key))
			break;
	EXPECT(!strcmp(name, key));
	fclose(f);
	return value;
}

/* How many threads are in it, and whether @thread is one of them. */
static unsigned int count_threads(int thread, bool *has)
{
	FILE *f = fopen(OURS "/cgroup.threads", "r");
	unsigned int nr = 0;
	int one;

	EXPECT(f);
	*has = false;
	for (; fscanf(f, "%d", &one) == 1; nr++)
		*has |= one == thread;
	fclose(f);
	return nr;
}

bool cgroup_has_thread(int thread)
{
	bool has;

	count_threads(thread, &has);
	return has;
}

unsigned int cgroup_threads(void)
{
	bool has;

	return count_threads(0, &has);
}

int cgroup_set(const char *file, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), OURS "/%s", file);
	return write_text(path, value);
}

u64 cgroup_memory(void)
{
	unsigned long long bytes = 0;
	FILE *f = fopen(OURS "/memory.current", "r");

	EXPECT(f);
	EXPECT_EQ(fscanf(f, "%llu", &bytes), 1);
	fclose(f);
	return bytes;
}

const char *cgroup_disk(const char *disk)
{
	static char name[32];
	struct stat st;

	EXPECT(!stat(disk, &st));
	snprintf(name, sizeof(name), "%u:%u", major(st.st_rdev),
		 minor(st.st_rdev));
	return name;
}

u64 cgroup_io(const char *disk, const char *key)
{
	const char *name = cgroup_disk(disk);
	FILE *f = fopen(OURS "/io.stat", "r");
	char line[512], *at;
	u64 value = 0;

	EXPECT(f);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, strlen(name)) ||
		    line[strlen(name)] != ' ')
			continue;
		at = strstr(line, key);
		if (at && at[strlen(key)] == '=')
			value = strtoull(at + strlen(key) + 1, NULL, 10);
	}
	fclose(f);
	return value;
}

int cgroup_remove(void)
{
	return rmdir(OURS) ? -errno : 0;
}

void cgroup_cleanup(void)
{
	cgroup_remove();
}
