/* SPDX-License-Identifier: GPL-2.0 */
/* The parts of fsload share the load, its operations and its options. */
#ifndef VHOST_FS_FSLOAD_H
#define VHOST_FS_FSLOAD_H

#include "fsrig.h"

#define LOAD_QUEUE	1
#define LOAD_BLOCK	4096

struct load_op;

struct load_opts {
	const struct load_op *op;
	const char *where;	/* a kind of file system, or a directory that is there */
	const char *socket;
	double secs;
	unsigned int depth;
	unsigned long times;
	bool host;
	bool burst;
};

/* The file that the turn of a slot makes, and how many of the turn's requests were answered. */
struct load_made {
	unsigned int answered;
	char name[8];
	u64 node;
};

struct load {
	struct load_opts o;
	struct fs f;
	int server;		/* the process at the other end of the socket */
	u64 node;
	u64 fh;
	u64 dir_node;
	u64 dir_fh;
	int root;
	int fd;
	int dir;
	unsigned int idle[FS_MAX_SLOTS];
	unsigned int nidle;
	struct load_made made[FS_MAX_SLOTS];
	bool added;		/* requests on the ring that are not published */
	u64 begun;		/* turns */
	u64 turns;		/* that have ended */
};

/*
 * @send puts a request on the ring and does not publish it.  If a turn has several requests, @next
 * gets the reply to one in the same slot and adds the next one, or returns false after the last.
 */
struct load_op {
	const char *name;
	/* requests of a turn */
	unsigned int requests;
	/* so many requests at once do not wait for each other in the server */
	bool deep;
	void (*send)(struct load *l, unsigned int slot);
	bool (*next)(struct load *l, unsigned int slot);
	/* the system calls that do the same, for --depth turns */
	void (*host)(struct load *l);
	/* bytes that a reply has at least */
	u32 reply;
};

const struct load_op *load_find_op(const char *name);
/* The names, as a line of text. */
const char *load_op_names(void);
/* Makes the files; opens them on the host, or through the ring. */
void load_make_files(struct load *l);
void load_open_host(struct load *l);
void load_open_ring(struct load *l);

#endif /* VHOST_FS_FSLOAD_H */
