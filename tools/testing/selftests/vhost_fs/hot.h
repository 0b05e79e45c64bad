/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the tests of requests that the poller's thread carries out. */
#ifndef VHOST_FS_HOT_H
#define VHOST_FS_HOT_H

#include <unistd.h>
#include <linux/vhost_poll.h>
#include <linux/vhost_serve.h>

#include "fsrig.h"

/* Serve a directory on a file system of @kind, with a spare thread and no limit of time. */
void hot_begin(struct fs *f, const char *kind);
/* How long a request may take until another thread polls, in microseconds; 0: for ever. */
void hot_set_limit(unsigned int us);
#define USUAL_LIMIT	250
/* Remove the directory, and put the limit back. */
void hot_cleanup(void);
struct vhost_serve_stats ring_stats(struct fs *f, u32 index);
struct vhost_poll_stats poller_stats(struct fs *f);

#define MADE	7	/* requests of make_and_remove() */
void make_and_remove(struct fs *f, unsigned int i);
void until_there_is_a_spare(struct fs *f);

#define NAP_MS	20

static inline void nap(void)
{
	usleep(NAP_MS * 1000);
}

#define EVENTUALLY(cond)						\
	do {								\
		unsigned int naps = FS_WAIT_MS / NAP_MS;		\
									\
		while (!(cond)) {					\
			if (!naps--)					\
				ktap_fail(__FILE__, __LINE__,		\
					  "in time: " #cond);		\
			nap();						\
		}							\
	} while (0)

#endif /* VHOST_FS_HOT_H */
