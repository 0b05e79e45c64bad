// SPDX-License-Identifier: GPL-2.0
/*
 * ringtool - direct I/O by io_uring, in a ring that is polled (IORING_SETUP_IOPOLL)
 *
 *	ringtool poll FILE DEPTH ROUNDS		read DEPTH times at once, and poll; ROUNDS times
 *	ringtool write FILE DEPTH ROUNDS	the same with writes
 *	ringtool leave FILE DEPTH		send DEPTH reads, and poll for them after SIGUSR2
 *	ringtool ready FILE			ask by poll(2) whether it is ready
 *
 * All reads are of the file's first 4,096 bytes, and compared with pread().  All writes are of
 * what pread() has read, to the same place, so they do not extend the file.  If the kernel
 * refuses to poll the file, the tool says so and ends with status 3.  It makes the system calls
 * itself, and is linked statically, because guests run it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE	4096
#define REFUSED	3

struct ring {
	int fd;
	unsigned int *tail, mask, *cq_head, *cq_tail, cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	unsigned int *array;
};

static char *want;
static ssize_t want_size;
static bool writes;

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void *map(int fd, size_t size, off_t what)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);

	if (at == MAP_FAILED)
		die("mmap");
	return at;
}

static void ring_open(struct ring *r, unsigned int depth)
{
	struct io_uring_params p = { .flags = IORING_SETUP_IOPOLL };
	char *sq, *cq;

	r->fd = syscall(SYS_io_uring_setup, depth, &p);
	if (r->fd < 0)
		die("io_uring_setup");
	sq = map(r->fd, p.sq_off.array + p.sq_entries * sizeof(*r->array), IORING_OFF_SQ_RING);
	cq = map(r->fd, p.cq_off.cqes + p.cq_entries * sizeof(*r->cqes), IORING_OFF_CQ_RING);
	r->sqes = map(r->fd, p.sq_entries * sizeof(*r->sqes), IORING_OFF_SQES);
	r->tail = (void *)(sq + p.sq_off.tail);
	r->mask = *(unsigned int *)(sq + p.sq_off.ring_mask);
	r->array = (void *)(sq + p.sq_off.array);
	r->cq_head = (void *)(cq + p.cq_off.head);
	r->cq_tail = (void *)(cq + p.cq_off.tail);
	r->cq_mask = *(unsigned int *)(cq + p.cq_off.ring_mask);
	r->cqes = (void *)(cq + p.cq_off.cqes);
}

static void ring_send(struct ring *r, int fd, char *buffers, unsigned int depth)
{
	unsigned int i, tail = *r->tail;
	int sent;

	for (i = 0; i < depth; i++, tail++) {
		r->sqes[tail & r->mask] = (struct io_uring_sqe) {
			.opcode = writes ? IORING_OP_WRITE : IORING_OP_READ,
			.fd = fd,
			.addr = (unsigned long)(writes ? want : buffers + i * SIZE),
			.len = writes ? want_size : SIZE,
			.user_data = i,
		};
		r->array[tail & r->mask] = tail & r->mask;
	}
	__atomic_store_n(r->tail, tail, __ATOMIC_RELEASE);
	sent = syscall(SYS_io_uring_enter, r->fd, depth, 0, 0, NULL, 0);
	if (sent != (int)depth)
		die("send");
}

static void check(const struct io_uring_cqe *cqe, const char *buffers)
{
	if (cqe->res == -EOPNOTSUPP) {
		say("refused");
		exit(REFUSED);
	}
	if (cqe->res < 0) {
		errno = -cqe->res;
		die(writes ? "write" : "read");
	}
	if (cqe->res == want_size &&
	    (writes || !memcmp(buffers + cqe->user_data * SIZE, want, want_size)))
		return;
	fprintf(stderr, "%s %llu: wrong data, %d bytes\n", writes ? "write" : "read",
		(unsigned long long)cqe->user_data, cqe->res);
	exit(1);
}

static void ring_poll(struct ring *r, const char *buffers, unsigned int depth)
{
	unsigned int head = *r->cq_head, found = 0;

	while (found < depth) {
		if (syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0 &&
		    errno != EINTR)
			die("poll");
		while (head != __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) {
			check(&r->cqes[head & r->cq_mask], buffers);
			head++;
			found++;
		}
		__atomic_store_n(r->cq_head, head, __ATOMIC_RELEASE);
	}
}

static void ready(const char *name)
{
	struct pollfd at = { .fd = open(name, O_RDONLY), .events = POLLIN | POLLOUT };

	if (at.fd < 0 || poll(&at, 1, 0) < 0)
		die(name);
	say(at.revents == at.events ? "ready" : "not ready");
}

int main(int argc, char **argv)
{
	bool leave = argc == 4 && !strcmp(argv[1], "leave");
	unsigned int i, depth, rounds = 1;
	struct ring ring;
	char *buffers;
	sigset_t usr2;
	int fd, number;

	if (argc == 3 && !strcmp(argv[1], "ready")) {
		ready(argv[2]);
		return 0;
	}
	writes = argc == 5 && !strcmp(argv[1], "write");
	if (!leave && !writes && (argc != 5 || strcmp(argv[1], "poll"))) {
		fprintf(stderr, "usage: see the top of ringtool.c\n");
		return 2;
	}
	depth = atoi(argv[3]);
	if (!leave)
		rounds = atoi(argv[4]);
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	fd = open(argv[2], (writes ? O_RDWR : O_RDONLY) | O_DIRECT);
	want = aligned_alloc(SIZE, SIZE);
	buffers = aligned_alloc(SIZE, (size_t)SIZE * depth);
	if (fd < 0 || !want || !buffers)
		die(argv[2]);
	want_size = pread(fd, want, SIZE, 0);
	if (want_size <= 0)
		die("pread");
	ring_open(&ring, depth);
	for (i = 0; i < rounds; i++) {
		memset(buffers, 0, (size_t)SIZE * depth);
		ring_send(&ring, fd, buffers, depth);
		if (leave) {
			say("sent");
			sigwait(&usr2, &number);
		}
		ring_poll(&ring, buffers, depth);
	}
	say("all read");
	return 0;
}
