/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A trace of events while a test runs, in a tracing instance of its own.
 * One poller writes into the buffer of one CPU, so its lines are in order.
 */
#ifndef VHOST_BLK_TRACE_H
#define VHOST_BLK_TRACE_H

/* @event as in "vhost_blk/vhost_blk_arrive"; skips the test without tracefs. */
void trace_begin(const char *event);
/* One more event. */
void trace_add(const char *event);
/* Only those of this event for which the condition holds, as the kernel's tracing has it. */
void trace_filter(const char *event, const char *filter);
/* Ends the trace, and reads it back line by line.  Lost events fail the test. */
void trace_end(void (*see)(const char *line, void *arg), void *arg);
/*
 * The same: @dev gets the device's number of each event; returns how many.  More than @max of
 * them fail the test.
 */
unsigned int trace_end_devs(int *dev, unsigned int max);
/* Takes the instance away, if there is one. */
void trace_cleanup(void);

#endif /* VHOST_BLK_TRACE_H */
