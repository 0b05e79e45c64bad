// SPDX-License-Identifier: GPL-2.0
/*
 * The lab's agent: runs commands in the host VM and in guests.
 *
 * It is started by the host VM's set-up script, or as the init of a guest's
 * initramfs (then with --init), and serves every virtio-serial port named
 * "lab.N", each in a process of its own, one command at a time.  With
 * --port DEV it serves DEV alone, which is how its own test runs it.
 *
 * A client opens the port's socket, sends SYNC and a nonce, and reads until
 * the nonce comes back in an 'S' frame: whatever a former client left in
 * either direction is gone then, its command killed.  All else is frames:
 *
 *	le32 length, u8 type, payload
 *
 *	to us:	 'R' run, 'I' standard input, 'E' its end, 'K' u8 signal
 *	from us: 'S' nonce, 'O' output, 'e' error output, 'X' le32 status,
 *		 'B' still there
 *
 * 'R' is strings, each ended by NUL: flags ("p": on a pseudo terminal, "b": say
 * 'B' when there is nothing else to say for a while), working directory,
 * VAR=value..., an empty one, the arguments.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define SYNC_LEN	16
#define NONCE_LEN	16
#define HDR_LEN		5
#define MAX_FRAME	65536
#define MAX_STRINGS	1024
#define BEAT_MS		5000

/* kept inverted, so that a copy of this program is not taken for a SYNC */
static const unsigned char sync_inv[SYNC_LEN] = {
	0xff, 0x8f, 0x89, 0x93, 0x9e, 0x9d, 0xd2, 0x8c,
	0x86, 0x91, 0x9c, 0xf2, 0xf5, 0x01, 0xfe, 0xff,
};

struct server {
	int port;
	int sigfd;
	pid_t child;		/* 0: no command runs */
	int in, out, err;	/* our ends of its pipes, -1: closed */
	int in_eof;		/* close @in when @pend is written */
	int beat;		/* the client wants to hear that we are there */
	size_t pend_len;
	size_t rx_len;
	unsigned char pend[MAX_FRAME];
	unsigned char rx[2 * MAX_FRAME];
};

static unsigned char sync_magic[SYNC_LEN];

/*
 * That a port is ready is a hint.  A suspend closes it, and throws away what was to be read;
 * the system that goes on opens it again, and tasks may run before.  So the port is never
 * waited for in read() or write(), where the end of the command would not be seen, and a
 * client is gone only if the port is closed for a second.
 */
#define CLOSED_LOOKS	10
#define CLOSED_PAUSE_US	(100 * 1000)

static int port_events(int port, short events, int timeout_ms)
{
	struct pollfd p = { .fd = port, .events = events };

	return poll(&p, 1, timeout_ms) > 0 ? p.revents : 0;
}

static int is_closed_for_good(int port)
{
	for (int i = 0; i < CLOSED_LOOKS; i++) {
		if (!(port_events(port, 0, 0) & POLLHUP))
			return 0;
		usleep(CLOSED_PAUSE_US);
	}
	return 1;
}

/* Waits until the port takes more; false: the client is gone. */
static int wait_writable(int port)
{
	if (port_events(port, POLLOUT, -1) & POLLHUP)
		return !is_closed_for_good(port);
	return 1;
}

static int write_all(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && wait_writable(fd))
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= n;
	}
	return 0;
}

static void put_le32(unsigned char *p, uint32_t v)
{
	p[0] = v;
	p[1] = v >> 8;
	p[2] = v >> 16;
	p[3] = v >> 24;
}

static uint32_t get_le32(const unsigned char *p)
{
	return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

static void send_frame(struct server *s, char type, const void *buf, size_t len)
{
	static unsigned char frame[HDR_LEN + MAX_FRAME];

	put_le32(frame, len);
	frame[4] = type;
	memcpy(frame + HDR_LEN, buf, len);
	write_all(s->port, frame, HDR_LEN + len);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* One read of the command's output; false at its end. */
static int forward(struct server *s, int *fd, char type)
{
	unsigned char buf[32768];
	ssize_t n = read(*fd, buf, sizeof(buf));

	if (n > 0) {
		send_frame(s, type, buf, n);
		return 1;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (s->in == *fd)
		s->in = -1;
	close_fd(fd);
	return 0;
}

static void end_command(struct server *s)
{
	if (s->in != s->out)
		close_fd(&s->in);
	s->in = -1;
	close_fd(&s->out);
	close_fd(&s->err);
	s->child = 0;
	s->pend_len = 0;
	s->in_eof = 0;
}

static void reap(struct server *s)
{
	struct signalfd_siginfo si;
	unsigned char st[4];
	int status;
	pid_t pid;

	while (read(s->sigfd, &si, sizeof(si)) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != s->child)
			continue;
		/* what it wrote before it ended; others may hold the pipes open */
		while (s->out >= 0 && forward(s, &s->out, 'O'))
			;
		while (s->err >= 0 && forward(s, &s->err, 'e'))
			;
		put_le32(st, WIFEXITED(status) ? WEXITSTATUS(status) :
						 128 + WTERMSIG(status));
		send_frame(s, 'X', st, sizeof(st));
		end_command(s);
	}
}

static void kill_command(struct server *s)
{
	int status;

	if (!s->child)
		return;
	kill(-s->child, SIGTERM);
	for (int i = 0; i < 20; i++) {
		if (waitpid(s->child, &status, WNOHANG) == s->child) {
			end_command(s);
			return;
		}
		usleep(100 * 1000);
	}
	kill(-s->child, SIGKILL);
	waitpid(s->child, &status, 0);
	end_command(s);
}

static void exec_command(char **strings, int count)
{
	sigset_t none;
	int i;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (i = 2; i < count && *strings[i]; i++)
		putenv(strings[i]);
	if (*strings[1] && chdir(strings[1]))
		fprintf(stderr, "agent: %s: %s\n", strings[1], strerror(errno));
	else if (i + 1 < count)
		execvp(strings[i + 1], &strings[i + 1]);
	fprintf(stderr, "agent: %s: %s\n", i + 1 < count ? strings[i + 1] : "?",
		strerror(errno));
	_exit(127);
}

static pid_t spawn_on_pty(struct server *s, char **strings, int count)
{
	int fd = -1;
	pid_t pid = forkpty(&fd, NULL, NULL, NULL);

	if (pid == 0)
		exec_command(strings, count);
	s->in = fd;
	s->out = fd;
	s->err = -1;
	return pid;
}

static pid_t spawn_on_pipes(struct server *s, char **strings, int count)
{
	int in[2], out[2], err[2];
	pid_t pid;

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		return -1;
	pid = fork();
	if (pid == 0) {
		setsid();
		dup2(in[0], 0);
		dup2(out[1], 1);
		dup2(err[1], 2);
		exec_command(strings, count);
	}
	close(in[0]);
	close(out[1]);
	close(err[1]);
	s->in = in[1];
	s->out = out[0];
	s->err = err[0];
	return pid;
}

static void nonblock(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void run_command(struct server *s, char *buf, size_t len)
{
	static char *strings[MAX_STRINGS + 1];
	unsigned char st[4];
	int count = 0;

	if (s->child || !len || buf[len - 1])
		return;
	for (char *p = buf; p < buf + len && count < MAX_STRINGS; p += strlen(p) + 1)
		strings[count++] = p;
	strings[count] = NULL;
	s->beat = !!strchr(strings[0], 'b');
	if (count >= 4)
		s->child = strchr(strings[0], 'p') ? spawn_on_pty(s, strings, count) :
						     spawn_on_pipes(s, strings, count);
	if (s->child <= 0) {
		put_le32(st, 126);
		send_frame(s, 'X', st, sizeof(st));
		end_command(s);
		return;
	}
	nonblock(s->in);
	nonblock(s->out);
	nonblock(s->err);
}

static void flush_input(struct server *s)
{
	ssize_t n;

	if (s->in < 0) {
		s->pend_len = 0;
		return;
	}
	if (s->pend_len) {
		n = write(s->in, s->pend, s->pend_len);
		if (n < 0 && errno != EAGAIN) {
			s->pend_len = 0;
			s->in_eof = 1;
		} else if (n > 0) {
			s->pend_len -= n;
			memmove(s->pend, s->pend + n, s->pend_len);
		}
	}
	if (!s->pend_len && s->in_eof) {
		if (s->in != s->out)
			close_fd(&s->in);
		s->in = -1;
	}
}

static void handle_frame(struct server *s, char type, unsigned char *buf, size_t len)
{
	switch (type) {
	case 'R':
		run_command(s, (char *)buf, len);
		break;
	case 'I':
		if (s->in < 0)
			break;
		memcpy(s->pend, buf, len);
		s->pend_len = len;
		flush_input(s);
		break;
	case 'E':
		/*
		 * Without an open input this ends the input of a command that is over.
		 * Kept, it would end the next command's.
		 */
		if (s->in < 0)
			break;
		s->in_eof = 1;
		flush_input(s);
		break;
	case 'K':
		if (s->child && len)
			kill(-s->child, buf[0]);
		break;
	}
}

/* A new client: forget everything up to and with its SYNC. */
static void find_sync(struct server *s)
{
	unsigned char *p = memmem(s->rx, s->rx_len, sync_magic, SYNC_LEN);
	size_t skip;

	if (!p || p + SYNC_LEN + NONCE_LEN > s->rx + s->rx_len)
		return;
	kill_command(s);
	send_frame(s, 'S', p + SYNC_LEN, NONCE_LEN);
	skip = p + SYNC_LEN + NONCE_LEN - s->rx;
	s->rx_len -= skip;
	memmove(s->rx, s->rx + skip, s->rx_len);
}

static void parse(struct server *s)
{
	size_t pos = 0, len;

	find_sync(s);
	/* input that the command has not taken yet holds back all that follows */
	while (s->rx_len - pos >= HDR_LEN && !s->pend_len) {
		len = get_le32(s->rx + pos);
		if (len > MAX_FRAME) {	/* garbage: only a SYNC helps now */
			pos = s->rx_len;
			break;
		}
		if (s->rx_len - pos < HDR_LEN + len)
			break;
		handle_frame(s, s->rx[pos + 4], s->rx + pos + HDR_LEN, len);
		pos += HDR_LEN + len;
	}
	s->rx_len -= pos;
	memmove(s->rx, s->rx + pos, s->rx_len);
}

/* The client is gone: sleep until SIGIO says that the port was opened. */
static void wait_for_client(struct server *s)
{
	struct timespec second = { .tv_sec = 1 };
	struct pollfd sig = { .fd = s->sigfd, .events = POLLIN };

	if (s->child && !is_closed_for_good(s->port))
		return;
	kill_command(s);
	s->rx_len = 0;
	if (ppoll(&sig, 1, &second, NULL) > 0)
		reap(s);
}

static void serve_once(struct server *s)
{
	struct pollfd p[5] = {
		{ .fd = s->port, .events = s->rx_len < MAX_FRAME ? POLLIN : 0 },
		{ .fd = s->sigfd, .events = POLLIN },
		{ .fd = s->out, .events = POLLIN },
		{ .fd = s->err, .events = POLLIN },
		{ .fd = s->pend_len ? s->in : -1, .events = POLLOUT },
	};
	ssize_t n = 0;
	int ready;

	ready = poll(p, 5, s->child && s->beat ? BEAT_MS : -1);
	if (!ready)
		send_frame(s, 'B', "", 0);
	if (ready <= 0)
		return;
	if (p[2].revents)
		forward(s, &s->out, 'O');
	if (p[3].revents)
		forward(s, &s->err, 'e');
	if (p[4].revents) {
		flush_input(s);
		parse(s);
	}
	if (p[1].revents)
		reap(s);
	/* a port nobody is connected to is readable, too: it gives nothing */
	if (p[0].revents & POLLIN)
		n = read(s->port, s->rx + s->rx_len, sizeof(s->rx) - s->rx_len);
	if (n > 0) {
		s->rx_len += n;
		parse(s);
	} else if (p[0].revents & POLLHUP) {
		wait_for_client(s);
	}
}

static void serve(const char *dev)
{
	static struct server s;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGIO);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	s.in = -1;
	s.out = -1;
	s.err = -1;
	s.sigfd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	s.port = open(dev, O_RDWR | O_CLOEXEC);
	if (s.port < 0 || s.sigfd < 0) {
		perror(dev);
		_exit(1);
	}
	fcntl(s.port, F_SETOWN, getpid());
	fcntl(s.port, F_SETFL, fcntl(s.port, F_GETFL) | O_ASYNC | O_NONBLOCK);
	for (;;)
		serve_once(&s);
}

static int start_servers(void)
{
	static const char sys[] = "/sys/class/virtio-ports";
	struct dirent *d;
	char path[512], name[64];
	int started = 0;
	DIR *dir = opendir(sys);

	while (dir && (d = readdir(dir))) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s/name", sys, d->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		*name = 0;
		if (fgets(name, sizeof(name), f) && !strncmp(name, "lab.", 4)) {
			snprintf(path, sizeof(path), "/dev/%s", d->d_name);
			if (!fork())
				serve(path);
			started++;
		}
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return started;
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		perror(path);
	close(fd);
}

/* The first process of a guest. */
static void be_init(void)
{
	static const struct { const char *type, *dir; } fs[] = {
		{ "devtmpfs", "/dev" }, { "proc", "/proc" }, { "sysfs", "/sys" },
		{ "tmpfs", "/tmp" }, { "tmpfs", "/run" },
		{ "devpts", "/dev/pts" }, { "tmpfs", "/dev/shm" },
		{ "debugfs", "/sys/kernel/debug" },
		{ "tracefs", "/sys/kernel/tracing" },
		{ "cgroup2", "/sys/fs/cgroup" },
	};

	/* devtmpfs has none of these; bash's <( ) and many scripts want them */
	static const struct { const char *name, *target; } links[] = {
		{ "/dev/fd", "/proc/self/fd" },
		{ "/dev/stdin", "/proc/self/fd/0" },
		{ "/dev/stdout", "/proc/self/fd/1" },
		{ "/dev/stderr", "/proc/self/fd/2" },
	};

	for (size_t i = 0; i < sizeof(fs) / sizeof(*fs); i++) {
		mkdir(fs[i].dir, 0755);
		mount(fs[i].type, fs[i].dir, fs[i].type, 0, NULL);
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
		if (symlink(links[i].target, links[i].name) && errno != EEXIST)
			perror(links[i].name);
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("HOME", "/root", 1);
	/* booted quietly, every console byte being an exit; not any more */
	write_file("/proc/sys/kernel/printk", "8 4 1 7\n");
}

int main(int argc, char **argv)
{
	int init = argc > 1 && !strcmp(argv[1], "--init");

	for (int i = 0; i < SYNC_LEN; i++)
		sync_magic[i] = ~sync_inv[i];
	if (argc > 2 && !strcmp(argv[1], "--port"))
		serve(argv[2]);
	if (init)
		be_init();
	/* the ports appear when the host has answered the driver */
	for (int i = 0; !start_servers(); i++) {
		if (i == 300) {
			fprintf(stderr, "agent: no port to serve\n");
			break;
		}
		usleep(100 * 1000);
	}
	/* init reaps what was orphaned, and never ends */
	for (;;) {
		if (wait(NULL) < 0 && errno == ECHILD) {
			if (!init)
				return 1;
			sleep(1);
		}
	}
}
