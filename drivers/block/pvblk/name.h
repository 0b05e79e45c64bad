/* SPDX-License-Identifier: GPL-2.0 */
/* Names of disks (vdaa).  They have a header of their own, so that KUnit tests need no disk. */
#ifndef _PVBLK_NAME_H
#define _PVBLK_NAME_H

#include <linux/errno.h>
#include <linux/types.h>

/**
 * pvblk_disk_name - the name of the disk with a given index
 * @index: 0 is vda, 25 is vdz, 26 is vdaa
 * @buf: where to write it
 * @size: room in @buf
 *
 * Return: 0, or -EINVAL if it does not fit.
 */
static inline int pvblk_disk_name(unsigned int index, char *buf, size_t size)
{
	char tail[8];
	int n = 0, len = 0;

	/*
	 * The name is a number in bijective base 26, which has no digit for zero.  The loop finds
	 * its last letter first.
	 */
	for (index++; index; index = (index - 1) / 26)
		tail[n++] = 'a' + (index - 1) % 26;

	if (size < n + 3)
		return -EINVAL;
	buf[len++] = 'v';
	buf[len++] = 'd';
	while (n)
		buf[len++] = tail[--n];
	buf[len] = '\0';
	return 0;
}

#endif /* _PVBLK_NAME_H */
