// SPDX-License-Identifier: GPL-2.0
/* The tests of swap_test.c on a file system with numbers of 64 bits. */
#define FS_KIND	"xfs"
#include "swap_test.c"
