/* SPDX-License-Identifier: GPL-2.0 */
/* Names of disks (vdaa), in a header of their own to be tested without a disk. */
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

	/* Bijective base 26, last letter first: there is no digit for zero. */
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
