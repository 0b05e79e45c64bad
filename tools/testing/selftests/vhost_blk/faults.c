// SPDX-License-Identifier: GPL-2.0
/* See faults.h. */
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "faults.h"
#include "ktap.h"

int catch_faults(void *at, size_t len)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { (uintptr_t)at, len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		ktap_skip("no userfaultfd here");
	EXPECT(!ioctl(fd, UFFDIO_REGISTER, &reg));
	return fd;
}

void end_faults(int fd, void *at, size_t len)
{
	struct uffdio_zeropage zero = { .range = { (uintptr_t)at, len } };

	EXPECT(!ioctl(fd, UFFDIO_ZEROPAGE, &zero));
}
