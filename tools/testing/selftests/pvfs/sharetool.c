// SPDX-License-Identifier: GPL-2.0
/*
 * sharetool - what a process does to files that others use, too, and what no command does
 *
 *	sharetool lock KIND FILE [START LENGTH]	wait for a lock and keep it
 *	sharetool try KIND FILE [START LENGTH]	take a lock if it is free
 *	sharetool shared FILE ANY		lock it once a child that closes it is killed
 *	sharetool closes FILE ANY		open it, and close it at SIGUSR2
 *	sharetool aio FILE ANY			close it while it is read by asynchronous I/O
 *	sharetool syncfs FILE ANY		write the whole file system back
 *	sharetool append FILE LETTER COUNT	records, each by one write()
 *	sharetool swing DIR COUNT		rename DIR/a to DIR/b and back
 *	sharetool replace DIR LETTER COUNT	rename new files to DIR/target
 *	sharetool unnamed DIR NAME TEXT		write a file without a name, and link it there
 *	sharetool fill FILE LETTER BYTES	write a new file by a mapping, and msync() it
 *	sharetool read FILE MEMORY		read() to memory that is private, or shared
 *	sharetool map FILE PROTECTION		look at a mapping of it: its first byte
 *
 * KIND is posix or flock.  While `lock` runs, SIGUSR1 interrupts the wait and SIGUSR2
 * unlocks the file, which stays open.  It is linked statically, because guests run it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Neither a power of two nor a page, so that records lie across all boundaries. */
#define RECORD_STEP	1237
#define RECORD_MAX	9001
#define TARGET_SIZE	6000
/* Of a child. */
#define STACK		65536

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

static void wrong(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static void on_signal(int number)
{
	(void)number;
}

/* SIGUSR1 ends a system call, because it is handled without SA_RESTART.  SIGUSR2 waits. */
static void handle_signals(sigset_t *usr2)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGUSR1, &action, NULL);
	sigemptyset(usr2);
	sigaddset(usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, usr2, NULL);
}

struct lock {
	int fd;
	bool posix;
	off_t start, length;
};

static int set_lock(const struct lock *l, short type, bool wait)
{
	static const int ops[] = { [F_WRLCK] = LOCK_EX, [F_UNLCK] = LOCK_UN };
	struct flock fl = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = l->start,
		.l_len = l->length,
	};

	if (l->posix)
		return fcntl(l->fd, wait ? F_SETLKW : F_SETLK, &fl);
	return flock(l->fd, ops[type] | (wait ? 0 : LOCK_NB));
}

static struct lock open_lock(int argc, char **argv)
{
	struct lock l = {
		.posix = !strcmp(argv[2], "posix"),
		.fd = open(argv[3], O_RDWR | O_CREAT, 0644),
	};

	if (l.fd < 0)
		die(argv[3]);
	if (argc > 5) {
		l.start = atoll(argv[4]);
		l.length = atoll(argv[5]);
	}
	return l;
}

static int do_try(int argc, char **argv)
{
	struct lock l = open_lock(argc, argv);

	if (!set_lock(&l, F_WRLCK, false))
		say("free");
	else if (errno == EAGAIN || errno == EACCES)
		say("taken");
	else
		die("lock");
	return 0;
}

static int do_lock(int argc, char **argv)
{
	struct lock l = open_lock(argc, argv);
	sigset_t usr2;
	int number;

	handle_signals(&usr2);
	if (set_lock(&l, F_WRLCK, true)) {
		if (errno != EINTR)
			die("lock");
		say("interrupted");
		return 0;
	}
	say("holds");
	sigwait(&usr2, &number);
	if (set_lock(&l, F_UNLCK, false))
		die("unlock");
	say("unlocked");
	for (;;)
		pause();
}

static int close_it(void *fd)
{
	close(*(int *)fd);
	pause();
	return 0;
}

/* The child shares the table of files, so its locks are the parent's. */
static int do_shared(char **argv)
{
	struct lock l = { .posix = true, .fd = open(argv[2], O_RDWR) };
	int pid, again = open(argv[2], O_RDWR);
	char *stack = malloc(STACK);
	sigset_t usr2;

	handle_signals(&usr2);
	pid = clone(close_it, stack + STACK, CLONE_FILES | SIGCHLD, &again);
	if (l.fd < 0 || again < 0 || pid < 0)
		die("a child with the same files");
	printf("child %d\n", pid);
	fflush(stdout);
	if (waitpid(pid, NULL, 0) != pid)
		die("wait");
	say("alone");
	if (!set_lock(&l, F_WRLCK, false))
		say("holds");
	else if (errno == EINTR)
		say("interrupted");
	else
		die("lock");
	sigwait(&usr2, &pid);
	return 0;
}

static int do_closes(char **argv)
{
	int fd = open(argv[2], O_RDWR);
	sigset_t usr2;
	int number;

	if (fd < 0)
		die(argv[2]);
	handle_signals(&usr2);
	say("open");
	sigwait(&usr2, &number);
	close(fd);
	say("closed");
	return 0;
}

static int do_aio(char **argv)
{
	struct iocb cb = {
		.aio_fildes = open(argv[2], O_RDONLY | O_DIRECT),
		.aio_lio_opcode = IOCB_CMD_PREAD,
		.aio_buf = (unsigned long)aligned_alloc(4096, 4096),
		.aio_nbytes = 4096,
	}, *cbs[] = { &cb };
	aio_context_t context = 0;

	if (syscall(SYS_io_setup, 1, &context) || syscall(SYS_io_submit, context, 1, cbs) != 1)
		die("aio");
	close(cb.aio_fildes);
	say("closed");
	return pause();
}

/* busybox's sync -f does not look at the result. */
static int do_syncfs(char **argv)
{
	int fd = open(argv[2], O_RDONLY);

	if (fd < 0)
		die(argv[2]);
	if (syncfs(fd))
		die("syncfs");
	return 0;
}

static int do_append(char **argv)
{
	int fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0644);
	unsigned int i, size, count = atoi(argv[4]);
	char record[RECORD_MAX + 64];
	int head;

	if (fd < 0)
		die(argv[2]);
	for (i = 0; i < count; i++) {
		size = i * RECORD_STEP % RECORD_MAX;
		head = sprintf(record, "%c %u %u\n", *argv[3], i, size);
		memset(record + head, *argv[3], size);
		if (write(fd, record, head + size) != (ssize_t)(head + size))
			die("write");
	}
	return 0;
}

/* Others rename it, too, so that it may be the other name that is there. */
static int do_swing(char **argv)
{
	unsigned int i, moved = 0, count = atoi(argv[3]);
	static const char * const names[] = { "a", "b" };

	if (chdir(argv[2]))
		die(argv[2]);
	for (i = 0; i < count; i++) {
		if (!rename(names[i % 2], names[!(i % 2)]))
			moved++;
		else if (errno != ENOENT)
			die("rename");
	}
	printf("%u\n", moved);
	return 0;
}

/* The target is always one that a writer has finished. */
static void check_target(void)
{
	char data[TARGET_SIZE + 1];
	int fd = open("target", O_RDONLY);
	ssize_t i, n;

	if (fd < 0)
		die("open target");
	n = read(fd, data, sizeof(data));
	if (n < 0)
		die("read target");
	if (n != TARGET_SIZE)
		wrong("target has another size");
	for (i = 1; i < n; i++)
		if (data[i] != data[0])
			wrong("target is a mixture");
	close(fd);
}

static int do_replace(char **argv)
{
	char data[TARGET_SIZE], name[] = "new.?";
	unsigned int i, count = atoi(argv[4]);
	int fd;

	name[4] = *argv[3];
	memset(data, *argv[3], sizeof(data));
	if (chdir(argv[2]))
		die(argv[2]);
	for (i = 0; i < count; i++) {
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
		if (fd < 0)
			die(name);
		if (write(fd, data, sizeof(data)) != sizeof(data) || close(fd))
			die("write");
		if (rename(name, "target"))
			die("rename");
		check_target();
	}
	return 0;
}

static int do_unnamed(char **argv)
{
	int fd = open(argv[2], O_TMPFILE | O_RDWR, 0640);
	char path[32];

	if (fd < 0)
		die("open without a name");
	if (write(fd, argv[4], strlen(argv[4])) != (ssize_t)strlen(argv[4]))
		die("write");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (chdir(argv[2]))
		die(argv[2]);
	if (linkat(AT_FDCWD, path, AT_FDCWD, argv[3], AT_SYMLINK_FOLLOW))
		die("link");
	return 0;
}

static int do_fill(char **argv)
{
	int fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0644);
	size_t len = atol(argv[4]);
	void *map;

	if (fd < 0)
		die(argv[2]);
	if (ftruncate(fd, len))
		die("truncate");
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		die("map");
	memset(map, *argv[3], len);
	if (msync(map, len, MS_SYNC))
		die("msync");
	say("written");
	return 0;
}

static int open_file(const char *name, int flags)
{
	int fd = open(name, flags, 0644);

	if (fd < 0)
		die(name);
	return fd;
}

static int do_read(char **argv)
{
	int how = !strcmp(argv[3], "shared") ? MAP_SHARED : MAP_PRIVATE;
	char *to = mmap(NULL, TARGET_SIZE, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);
	ssize_t n;

	if (to == MAP_FAILED)
		die("mmap");
	n = read(open_file(argv[2], O_RDONLY), to, TARGET_SIZE);
	if (n < 0)
		die("read");
	return fwrite(to, n, 1, stdout) != 1;
}

static int do_map(char **argv)
{
	bool writes = !strcmp(argv[3], "write");
	int fd = open_file(argv[2], writes ? O_RDWR : O_RDONLY);
	char *at = mmap(NULL, 1, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		die("mmap");
	if (writes)
		*at = 'X';
	putchar(*at);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 3 ? argv[1] : "";

	if (!strcmp(what, "lock"))
		return do_lock(argc, argv);
	if (!strcmp(what, "try"))
		return do_try(argc, argv);
	if (!strcmp(what, "shared"))
		return do_shared(argv);
	if (!strcmp(what, "closes"))
		return do_closes(argv);
	if (!strcmp(what, "aio"))
		return do_aio(argv);
	if (!strcmp(what, "syncfs"))
		return do_syncfs(argv);
	if (!strcmp(what, "swing"))
		return do_swing(argv);
	if (!strcmp(what, "read"))
		return do_read(argv);
	if (!strcmp(what, "map"))
		return do_map(argv);
	if (!strcmp(what, "append") && argc > 4)
		return do_append(argv);
	if (!strcmp(what, "replace") && argc > 4)
		return do_replace(argv);
	if (!strcmp(what, "unnamed") && argc > 4)
		return do_unnamed(argv);
	if (!strcmp(what, "fill") && argc > 4)
		return do_fill(argv);
	fprintf(stderr, "usage: see the source\n");
	return 2;
}
