/* SPDX-License-Identifier: GPL-2.0 */
/* Pollers and test sources, as the tests use them. */
#ifndef VHOST_POLL_POLLER_H
#define VHOST_POLL_POLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/vhost_poll.h>

#include "ktap.h"
#include "module.h"
#include "modules/vhost_poll_selftest.h"

/* How long something that must happen may take, on the slowest machine. */
#define PATIENCE_S	60

/* Waits until @cond holds; fails if it never does. */
#define EVENTUALLY(cond) do {						\
	struct patience patience_;					\
									\
	patience_begins(&patience_);					\
	while (!(cond))							\
		if (!patience_goes_on(&patience_))			\
			ktap_fail(__FILE__, __LINE__, "in time: " #cond); \
} while (0)

struct patience {
	uint64_t end_ns;
	unsigned int looks;
};

void patience_begins(struct patience *p);
bool patience_goes_on(struct patience *p);

/* 0 or -errno. */
int ctl(int fd, unsigned long cmd, void *arg);

/* Loads the modules, or skips the test saying what is missing. */
void need_poll(void);
void need_source(void);
/* Runs tests, and leaves no module of theirs behind. */
int run_tests(int argc, char **argv, const struct ktap_test *tests,
	      unsigned int count);
/* A CPU that can go offline; skips if there is none.  Online afterwards. */
unsigned int need_other_cpu(void);
/* 0 or -errno. */
int cpu_online(unsigned int cpu, bool online);

int open_poller(void);
int try_create(int fd, unsigned int cpu, unsigned int mode, const char *name);
int create_poller(unsigned int cpu, unsigned int mode, const char *name);
int set_mode(int fd, unsigned int mode);
struct vhost_poll_stats poller_stats(int fd);

/* The thread's pid, or 0 if there is none of that CPU and name. */
int poller_pid(unsigned int cpu, const char *name);
/* How many have names that start so. */
unsigned int poller_count(const char *prefix);
/* A line of /proc/PID/status. */
void status_line(int pid, const char *key, char *buf, size_t len);

int open_source(void);
int try_attach(int source, int poller, unsigned int weight, uint64_t *number);
int attached_source(int poller);
void add_work(int source, uint64_t n);
void set_tick(int source, uint64_t ns);
struct selftest_state source_state(int source);
/* Waits until all that was added is served, and nothing was wrong. */
void expect_served(int source);

/* Reads or writes a file of one line; 0 or -errno. */
int get_text(const char *path, char *buf, size_t len);
int put_text(const char *path, const char *text);

#endif /* VHOST_POLL_POLLER_H */
