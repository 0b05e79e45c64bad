/* SPDX-License-Identifier: GPL-2.0 */
/* Memory of this process whose pages come only when the test brings them. */
#ifndef VHOST_BLK_FAULTS_H
#define VHOST_BLK_FAULTS_H

#include <stddef.h>

/*
 * A descriptor that is readable once something waits for a page of the range, which was
 * not touched before.  Closing it lets all that wait go on.
 */
int catch_faults(void *at, size_t len);
/* Bring zeroed pages. */
void end_faults(int fd, void *at, size_t len);

#endif
