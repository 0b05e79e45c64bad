// SPDX-License-Identifier: GPL-2.0
/* The tests of ops_test.c on a file system with a journal and a disk. */
#define FS_KIND	"ext4"
#include "ops_test.c"
