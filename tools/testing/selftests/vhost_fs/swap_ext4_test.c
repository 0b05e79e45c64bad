// SPDX-License-Identifier: GPL-2.0
/* The tests of swap_test.c on a file system that uses numbers of inodes again. */
#define FS_KIND	"ext4"
#include "swap_test.c"
