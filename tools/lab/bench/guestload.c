// SPDX-License-Identifier: GPL-2.0
/*
 * guestload OP DIR WARM TIMES: one operation over and over, on files of DIR, in a guest.
 *
 * After the first WARM times it begins a window of tools/lab/insns/insns.c, and ends it after
 * TIMES more.  It sleeps a while first, so that the program which has started it sleeps, too.
 */
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK		4096
#define BLOCKS		64
#define NAME		"file"
#define NEW		"new"

static char *data;
static int dir;
static int fd;

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

static const struct {
	const char *name;
	void (*turn)(unsigned long turn);
	int open_file;
} ops[] = {
	{ "read", do_read, 1 },
	{ "write", do_write, 1 },
	{ "stat", do_stat, 0 },
	{ "create", do_create, 0 },
};

static void prepare(const char *where, int open_file)
{
	unsigned long i;

	dir = open(where, O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		error(1, errno, "%s", where);
	fd = openat(dir, NAME, O_CREAT | O_RDWR | O_DIRECT, 0644);
	if (fd < 0)
		error(1, errno, "%s/" NAME, where);
	data = aligned_alloc(BLOCK, BLOCK);
	if (!data)
		error(1, errno, "aligned_alloc");
	memset(data, 'x', BLOCK);
	for (i = 0; i < BLOCKS; i++)
		do_write(i);
	if (!open_file)
		close(fd);
}

static void run(void (*turn)(unsigned long turn), unsigned long times)
{
	unsigned long i;

	for (i = 0; i < times; i++)
		turn(i);
}

int main(int argc, char **argv)
{
	unsigned long warm, times;
	unsigned int i;

	for (i = 0; argc == 5 && i < sizeof(ops) / sizeof(*ops); i++) {
		if (strcmp(argv[1], ops[i].name))
			continue;
		warm = strtoul(argv[3], NULL, 0);
		times = strtoul(argv[4], NULL, 0);
		prepare(argv[2], ops[i].open_file);
		sleep(1);
		run(ops[i].turn, warm);
		window_begin();
		run(ops[i].turn, times);
		window_end();
		return 0;
	}
	fprintf(stderr, "usage: guestload read|write|stat|create DIR WARM TIMES\n");
	return 2;
}
