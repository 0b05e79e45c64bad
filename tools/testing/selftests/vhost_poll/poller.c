// SPDX-License-Identifier: GPL-2.0
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "poller.h"

#define DEVICE	"/dev/vhost-poll"
#define SOURCE	"/dev/vhost-poll-selftest"
#define CPUS	"/sys/devices/system/cpu"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

void patience_begins(struct patience *p)
{
	p->end_ns = now_ns() + PATIENCE_S * 1000000000ULL;
	p->looks = 0;
}

bool patience_goes_on(struct patience *p)
{
	/* What comes soon is not worth a sleep; what does not, is. */
	if (p->looks++ > 50)
		usleep(1000);
	return now_ns() < p->end_ns;
}

int ctl(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) < 0 ? -errno : 0;
}

int get_text(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, len - 1);
	close(fd);
	if (n < 0)
		return -errno;
	buf[n] = 0;
	buf[strcspn(buf, "\n")] = 0;
	return 0;
}

int put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	n = n < 0 ? -errno : 0;
	close(fd);
	return n;
}

static void all_cpus_online(void)
{
	long n = sysconf(_SC_NPROCESSORS_CONF);

	while (--n > 0)
		cpu_online(n, true);
}

int run_tests(int argc, char **argv, const struct ktap_test *tests,
	      unsigned int count)
{
	int ret = ktap_main(argc, argv, tests, count, all_cpus_online);

	unload_module("vhost_poll_selftest");
	return ret;
}

void need_poll(void)
{
	if (geteuid())
		ktap_skip("needs root");
	if (access(DEVICE, F_OK))
		load_module("vhost_poll");
	if (access(DEVICE, F_OK))
		ktap_skip("vhost_poll is not loaded and cannot be: build it, or set PVIO_MODULES");
}

void need_source(void)
{
	need_poll();
	if (access(SOURCE, F_OK))
		load_module("vhost_poll_selftest");
	if (access(SOURCE, F_OK))
		ktap_skip("vhost_poll_selftest is not loaded and cannot be");
}

unsigned int need_other_cpu(void)
{
	long n = sysconf(_SC_NPROCESSORS_CONF);
	char path[128];

	while (--n > 0) {
		snprintf(path, sizeof(path), CPUS "/cpu%ld/online", n);
		if (!access(path, W_OK) && !cpu_online(n, true))
			return n;
	}
	ktap_skip("no CPU can go offline here");
}

int cpu_online(unsigned int cpu, bool online)
{
	char path[128];

	snprintf(path, sizeof(path), CPUS "/cpu%u/online", cpu);
	return put_text(path, online ? "1" : "0");
}

int open_poller(void)
{
	int fd;

	need_poll();
	fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	return fd;
}

int try_create(int fd, unsigned int cpu, unsigned int mode, const char *name)
{
	struct vhost_poll_create arg = {
		.size = sizeof(arg), .cpu = cpu, .mode = mode,
	};

	snprintf(arg.name, sizeof(arg.name), "%s", name);
	return ctl(fd, VHOST_POLL_CREATE, &arg);
}

int create_poller(unsigned int cpu, unsigned int mode, const char *name)
{
	int fd = open_poller();

	EXPECT_EQ(try_create(fd, cpu, mode, name), 0);
	return fd;
}

int set_mode(int fd, unsigned int mode)
{
	struct vhost_poll_set_mode arg = { .size = sizeof(arg), .mode = mode };

	return ctl(fd, VHOST_POLL_SET_MODE, &arg);
}

struct vhost_poll_stats poller_stats(int fd)
{
	struct vhost_poll_stats st = { .size = sizeof(st) };

	EXPECT_EQ(ctl(fd, VHOST_POLL_GET_STATS, &st), 0);
	EXPECT_EQ(st.size, sizeof(st));
	return st;
}

/* Calls @seen for each poller thread until it returns true. */
static int each_thread(bool (*seen)(const char *comm, void *arg), void *arg)
{
	DIR *proc = opendir("/proc");
	struct dirent *d;
	int pid = 0;

	EXPECT(proc);
	while (!pid && (d = readdir(proc))) {
		char path[300], comm[64];

		if (!atoi(d->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", d->d_name);
		if (!get_text(path, comm, sizeof(comm)) &&
		    !strncmp(comm, "vhost-poll/", 11) && seen(comm, arg))
			pid = atoi(d->d_name);
	}
	closedir(proc);
	return pid;
}

static bool is_called(const char *comm, void *arg)
{
	return !strcmp(comm, arg);
}

struct counting {
	const char *prefix;
	unsigned int n;
};

static bool is_counted(const char *comm, void *arg)
{
	struct counting *c = arg;
	const char *name = strchr(comm, '-');

	name = name ? strchr(name + 1, '-') : NULL;
	if (name && !strncmp(name + 1, c->prefix, strlen(c->prefix)))
		c->n++;
	return false;
}

int poller_pid(unsigned int cpu, const char *name)
{
	char comm[64];

	snprintf(comm, sizeof(comm), "vhost-poll/%u-%s", cpu, name);
	return each_thread(is_called, comm);
}

unsigned int poller_count(const char *prefix)
{
	struct counting c = { .prefix = prefix };

	each_thread(is_counted, &c);
	return c.n;
}

void status_line(int pid, const char *key, char *buf, size_t len)
{
	char path[64], line[4096];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	EXPECT(f);
	*buf = 0;
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, strlen(key)) || line[strlen(key)] != ':')
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(buf, len, "%s",
			 line + strlen(key) + 1 + strspn(line + strlen(key) + 1, " \t"));
		break;
	}
	fclose(f);
}

int open_source(void)
{
	int fd;

	need_source();
	fd = open(SOURCE, O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	return fd;
}

int try_attach(int source, int poller, unsigned int weight, uint64_t *number)
{
	struct selftest_attach arg = {
		.poller_fd = poller,
		.weight = weight,
		.user = (uintptr_t)number,
		.expect = number ? *number : 0,
	};

	return ctl(source, VPS_ATTACH, &arg);
}

int attached_source(int poller)
{
	int fd = open_source();

	EXPECT_EQ(try_attach(fd, poller, 100, NULL), 0);
	return fd;
}

void add_work(int source, uint64_t n)
{
	EXPECT_EQ(ctl(source, VPS_WORK, &n), 0);
}

void set_tick(int source, uint64_t ns)
{
	EXPECT_EQ(ctl(source, VPS_TICK, &ns), 0);
}

struct selftest_state source_state(int source)
{
	struct selftest_state st;

	EXPECT_EQ(ctl(source, VPS_STATE, &st), 0);
	return st;
}

void expect_served(int source)
{
	EVENTUALLY(!source_state(source).pending);
	EVENTUALLY(source_state(source).served == source_state(source).added);
	EXPECT_EQ(source_state(source).violations, 0);
}
