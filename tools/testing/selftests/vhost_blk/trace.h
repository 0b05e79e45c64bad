/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A trace of one event while a test runs, in a tracing instance of its own.
 * One poller writes into the buffer of one CPU, so the lines are in order.
 */
#ifndef VHOST_BLK_TRACE_H
#define VHOST_BLK_TRACE_H

/* @event as in "vhost_blk/vhost_blk_arrive"; skips the test without tracefs. */
void trace_begin(const char *event);
/*
 * Ends the trace, and reads it back.  @dev gets the device's number of each event;
 * returns how many.  More than @max of them, or lost ones, fail the test.
 */
unsigned int trace_end(int *dev, unsigned int max);
/* Takes the instance away, if there is one. */
void trace_cleanup(void);

#endif /* VHOST_BLK_TRACE_H */
