// SPDX-License-Identifier: GPL-2.0
/* See measure.h. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "measure.h"

u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

void lat_add(struct latency *l, u64 ns)
{
	unsigned int shift = 0, i = ns;

	if (ns >> (LAT_SUB_BITS + 1)) {
		shift = 63 - __builtin_clzll(ns) - LAT_SUB_BITS;
		i = (shift << LAT_SUB_BITS) + (ns >> shift);
	}
	l->bucket[i]++;
	l->count++;
	l->sum += ns;
	if (ns > l->max)
		l->max = ns;
}

/* The middle of a bucket, ns. */
static double bucket_value(unsigned int i)
{
	unsigned int shift;
	u64 low;

	if (i < 2U << LAT_SUB_BITS)
		return i;
	shift = (i >> LAT_SUB_BITS) - 1;
	low = (u64)(i - (shift << LAT_SUB_BITS)) << shift;
	return low + (double)(1ULL << shift) / 2;
}

double lat_percentile(const struct latency *l, double p)
{
	u64 want = l->count * p, seen = 0;
	unsigned int i;

	for (i = 0; i < LAT_BUCKETS; i++) {
		seen += l->bucket[i];
		if (seen > want)
			return bucket_value(i);
	}
	return l->max;
}

/* Of one thread, by its directory in /proc. */
typedef u64 (*count_fn)(const char *task);

static u64 cpu_of_task(const char *task)
{
	unsigned long long ns = 0;
	char path[400];
	FILE *f;

	snprintf(path, sizeof(path), "%s/schedstat", task);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%llu", &ns) != 1)
		ns = 0;
	fclose(f);
	return ns;
}

static u64 switches_of_task(const char *task)
{
	char path[400], line[256], *at;
	u64 sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/status", task);
	f = fopen(path, "r");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		at = strstr(line, "ctxt_switches:");
		if (at)
			sum += strtoull(strchr(at, ':') + 1, NULL, 10);
	}
	fclose(f);
	return sum;
}

static u64 sum_of_pid(int pid, count_fn count)
{
	u64 sum = 0;
	struct dirent *e;
	char path[320];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir)
		return 0;
	while ((e = readdir(dir))) {
		if (!isdigit(e->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s", pid, e->d_name);
		sum += count(path);
	}
	closedir(dir);
	return sum;
}

static bool named_like(const char *pid, const char *part)
{
	char path[320], comm[128] = "";
	bool yes;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	yes = fgets(comm, sizeof(comm), f) && strstr(comm, part);
	fclose(f);
	return yes;
}

static u64 sum_of_name(const char *part, count_fn count)
{
	u64 sum = 0;
	struct dirent *e;
	DIR *dir = opendir("/proc");

	if (!dir)
		return 0;
	while ((e = readdir(dir))) {
		if (isdigit(e->d_name[0]) && named_like(e->d_name, part))
			sum += sum_of_pid(atoi(e->d_name), count);
	}
	closedir(dir);
	return sum;
}

u64 cpu_of_pid(int pid)
{
	return sum_of_pid(pid, cpu_of_task);
}

u64 cpu_of_name(const char *part)
{
	return sum_of_name(part, cpu_of_task);
}

u64 switches_of_pid(int pid)
{
	return sum_of_pid(pid, switches_of_task);
}

u64 switches_of_name(const char *part)
{
	return sum_of_name(part, switches_of_task);
}
