// SPDX-License-Identifier: GPL-2.0
/*
 * guestload [-u DEPTH] [-p] OP WHERE WARM TIMES: one operation over and over, in a guest.
 *
 * WHERE is a directory, on whose files the program works, or a disk.  A disk has no other
 * operations than read and write.  With -u the program sends DEPTH of them at once by io_uring, and
 * the next ones when all of them are done, so that the number of requests that the driver finds
 * does not depend on the clock.  With -p the ring is one of IOPOLL.
 *
 * After the first WARM times it begins a window of tools/lab/insns/insns.c, and ends it after
 * TIMES more.  It sleeps a while first, so that the program which has started it sleeps, too.
 */
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK		4096
#define BLOCKS		64
#define DISK_BLOCKS	65536UL	/* of every second block of a disk, so that no two requests merge */
#define STRIDE		7919UL	/* a prime, so that all of them have their turn */
#define MAX_DEPTH	128U
#define NAME		"file"
#define NEW		"new"

static char *data;
static int dir;
static int fd;
static int is_disk;

/* The rings of io_uring. */
static struct {
	unsigned int depth;
	int fd;
	struct io_uring_sqe *sqes;
	unsigned int *sq_tail;
	unsigned int *cq_head;
	unsigned int *cq_tail;
	unsigned int cq_mask;
	struct io_uring_cqe *cqes;
} uring;

static void window_begin(void)
{
	asm volatile(".byte 0x0f, 0x1f, 0x84, 0, 'p', 'v', 'i', 'b'" ::: "memory");
}

static void window_end(void)
{
	asm volatile(".byte 0x0f, 0x1f, 0x84, 0, 'p', 'v', 'i', 'e'" ::: "memory");
}

static void check(long got, long wanted, const char *call)
{
	if (got != wanted)
		error(1, errno, "%s returned %ld", call, got);
}

static off_t place(unsigned long turn)
{
	if (is_disk)
		return turn * STRIDE % DISK_BLOCKS * 2 * BLOCK;
	return turn % BLOCKS * BLOCK;
}

static void do_read(unsigned long turn)
{
	check(pread(fd, data, BLOCK, place(turn)), BLOCK, "pread");
}

static void do_write(unsigned long turn)
{
	check(pwrite(fd, data, BLOCK, place(turn)), BLOCK, "pwrite");
}

static void do_stat(unsigned long turn)
{
	struct stat st;

	(void)turn;
	check(syscall(SYS_newfstatat, dir, NAME, &st, 0), 0, "newfstatat");
}

/* The window's end of a turn is the last call of it, see pvbench/guestinsns.py. */
static void do_create(unsigned long turn)
{
	int new;

	(void)turn;
	new = syscall(SYS_openat, dir, NEW, O_CREAT | O_RDWR, 0644);
	if (new < 0)
		error(1, errno, "openat");
	check(close(new), 0, "close");
	check(syscall(SYS_unlinkat, dir, NEW, 0), 0, "unlinkat");
}

static char *map(size_t size, off_t offset)
{
	char *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			    uring.fd, offset);

	if (mapped == MAP_FAILED)
		error(1, errno, "mmap");
	return mapped;
}

/* The task that waits also runs the work of its completions, as with fio. */
static void uring_init(unsigned int flags)
{
	struct io_uring_params p = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | flags,
	};
	unsigned int i, *array;
	char *sq, *cq;

	uring.fd = syscall(SYS_io_uring_setup, uring.depth, &p);
	if (uring.fd < 0)
		error(1, errno, "io_uring_setup");
	sq = map(p.sq_off.array + p.sq_entries * sizeof(*array), IORING_OFF_SQ_RING);
	cq = map(p.cq_off.cqes + p.cq_entries * sizeof(*uring.cqes), IORING_OFF_CQ_RING);
	uring.sqes = (void *)map(p.sq_entries * sizeof(*uring.sqes), IORING_OFF_SQES);
	uring.sq_tail = (void *)(sq + p.sq_off.tail);
	uring.cq_head = (void *)(cq + p.cq_off.head);
	uring.cq_tail = (void *)(cq + p.cq_off.tail);
	uring.cq_mask = p.cq_entries - 1;
	uring.cqes = (void *)(cq + p.cq_off.cqes);
	array = (void *)(sq + p.sq_off.array);
	for (i = 0; i < p.sq_entries; i++)
		array[i] = i;
	/* A ring has a power of two of entries, and the program uses them from the first one on. */
	if (p.sq_entries != uring.depth)
		error(1, 0, "DEPTH is not a power of two");
}

/* Take what has completed out of the ring; returns how many requests that were. */
static unsigned int reap(void)
{
	unsigned int head = *uring.cq_head, tail = __atomic_load_n(uring.cq_tail, __ATOMIC_ACQUIRE);
	unsigned int i;

	for (i = head; i != tail; i++)
		check(uring.cqes[i & uring.cq_mask].res, BLOCK, "io_uring");
	__atomic_store_n(uring.cq_head, tail, __ATOMIC_RELEASE);
	return tail - head;
}

/*
 * All requests of a burst use the same memory, because no test looks at the data.  A call that
 * polls for IOPOLL returns early if another task wants the CPU, and polls no more before the
 * program has taken what has completed.
 */
static void do_burst(unsigned char opcode, unsigned long turn)
{
	unsigned int i, submit = uring.depth, left = uring.depth;

	for (i = 0; i < uring.depth; i++)
		uring.sqes[i] = (struct io_uring_sqe) {
			.opcode = opcode,
			.fd = fd,
			.addr = (unsigned long)data,
			.len = BLOCK,
			.off = place(turn * uring.depth + i),
		};
	__atomic_store_n(uring.sq_tail, *uring.sq_tail + uring.depth, __ATOMIC_RELEASE);
	while (left) {
		check(syscall(SYS_io_uring_enter, uring.fd, submit, left, IORING_ENTER_GETEVENTS,
			      NULL, 0), submit, "io_uring_enter");
		submit = 0;
		left -= reap();
	}
}

static void do_uring_read(unsigned long turn)
{
	do_burst(IORING_OP_READ, turn);
}

static void do_uring_write(unsigned long turn)
{
	do_burst(IORING_OP_WRITE, turn);
}

static const struct {
	const char *name;
	void (*turn)(unsigned long turn);
	void (*burst)(unsigned long turn);
	int open_file;
} ops[] = {
	{ "read", do_read, do_uring_read, 1 },
	{ "write", do_write, do_uring_write, 1 },
	{ "stat", do_stat, NULL, 0 },
	{ "create", do_create, NULL, 0 },
};

static void prepare_disk(const char *where)
{
	fd = open(where, O_RDWR | O_DIRECT);
	if (fd < 0)
		error(1, errno, "%s", where);
}

static void prepare_files(const char *where, int open_file)
{
	unsigned long i;

	dir = open(where, O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		error(1, errno, "%s", where);
	fd = openat(dir, NAME, O_CREAT | O_RDWR | O_DIRECT, 0644);
	if (fd < 0)
		error(1, errno, "%s/" NAME, where);
	for (i = 0; i < BLOCKS; i++)
		do_write(i);
	if (!open_file)
		close(fd);
}

static void prepare(const char *where, int open_file)
{
	struct stat st;

	data = aligned_alloc(BLOCK, BLOCK);
	if (!data)
		error(1, errno, "aligned_alloc");
	memset(data, 'x', BLOCK);
	is_disk = !stat(where, &st) && S_ISBLK(st.st_mode);
	if (is_disk)
		prepare_disk(where);
	else
		prepare_files(where, open_file);
}

static void run(void (*turn)(unsigned long turn), unsigned long from, unsigned long times)
{
	unsigned long i;

	for (i = from; i < from + times; i++)
		turn(i);
}

static void count(void (*turn)(unsigned long turn), unsigned long warm, unsigned long times)
{
	sleep(1);
	run(turn, 0, warm);
	window_begin();
	run(turn, warm, times);
	window_end();
}

static int bad_usage(void)
{
	fputs("usage: guestload [-u DEPTH] [-p] read|write|stat|create WHERE WARM TIMES\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	unsigned int i, flags = 0;
	int option;

	while ((option = getopt(argc, argv, "u:p")) != -1) {
		if (option == 'u')
			uring.depth = strtoul(optarg, NULL, 0);
		else if (option == 'p')
			flags = IORING_SETUP_IOPOLL;
		else
			return bad_usage();
	}
	argv += optind;
	if (argc - optind != 4 || uring.depth > MAX_DEPTH || (flags && !uring.depth))
		return bad_usage();
	for (i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		if (strcmp(argv[0], ops[i].name) || (uring.depth && !ops[i].burst))
			continue;
		prepare(argv[1], ops[i].open_file);
		if (uring.depth)
			uring_init(flags);
		count(uring.depth ? ops[i].burst : ops[i].turn, strtoul(argv[2], NULL, 0),
		      strtoul(argv[3], NULL, 0));
		return 0;
	}
	return bad_usage();
}
