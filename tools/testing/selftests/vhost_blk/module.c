// SPDX-License-Identifier: GPL-2.0
/* Modules under test; see module.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "module.h"

bool module_loaded(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/module/%s", name);
	return !access(path, F_OK);
}

/* $PVIO_MODULES, or where the build puts them beside this checkout. */
static void module_path(char *buf, size_t len, const char *name)
{
	const char *dir = getenv("PVIO_MODULES");
	char exe[1024] = "";
	struct utsname u;

	if (dir) {
		snprintf(buf, len, "%s/%s.ko", dir, name);
		return;
	}
	uname(&u);
	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0)
		*strrchr(exe, '/') = 0;
	snprintf(buf, len, "%s/../../../../out/build/%s/%s.ko", exe, u.release,
		 name);
}

int load_module(const char *name)
{
	char path[2048], command[4096];
	int fd, ret;

	module_path(path, sizeof(path), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		snprintf(command, sizeof(command), "modprobe -q %s 2>/dev/null",
			 name);
		return system(command) ? -ENOENT : 0;
	}
	ret = syscall(SYS_finit_module, fd, "", 0) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

int unload_module(const char *name)
{
	if (!syscall(SYS_delete_module, name, O_NONBLOCK) || errno == ENOENT)
		return 0;
	return -errno;
}

long module_references(const char *name)
{
	char path[128];
	long n = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/module/%s/refcnt", name);
	f = fopen(path, "r");
	if (!f)
		return -1;
	if (fscanf(f, "%ld", &n) != 1)
		n = -1;
	fclose(f);
	return n;
}
