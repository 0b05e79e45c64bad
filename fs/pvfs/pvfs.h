/* SPDX-License-Identifier: GPL-2.0 */
/*
 * pvfs: virtio-fs on the kernel's FUSE core, with callers that poll.
 *
 * Each queue serves some of the CPUs.  It has a virtqueue (the ring), slots, and a struct
 * virtio_poll_queue, by which virtio_poll polls the ring.  A slot holds the headers and the
 * arguments of one request, but not its pages.  Probe allocates the slots.  So to send a request
 * that a caller waits for allocates nothing, unless its arguments are larger than PVFS_BUF_SIZE
 * (extended attributes, ACLs).
 *
 * Locking
 * -------
 * q->poll.lock protects a request queue: its ring, its slots, @live, and its lists.  Tasks take it
 *   with bottom halves off, because two timers, which are softirqs, try it: virtio_poll's, and the
 *   lease's (iopoll.c).  Two queues share no lock.
 * hp->lock protects the hiprio queue: its ring, its messages, and the FORGETs that wait.
 * fiq->lock, a lock of the core, protects dev->parked, and fiq->pending: the requests that found a
 *   ring full.
 * dev->close_lock protects dev->closes.  Tasks never hold it together with another of these locks.
 * Order: hp->lock, q->poll.lock, fiq->lock.  The core's bg_lock comes before all of them, because
 *   the core holds it when it sends a background request.  The end of a background request takes
 *   bg_lock, so the sender leaves that end to a work.
 * Only tasks take the locks above.  virtio_poll's timer and its preempt notifier, and the lease's
 *   timer, try q->poll.lock.
 * dev->lock protects dev->fc, and the start and stop of the queues.  Its holder waits for ever if
 *   the device does not finish its reset.  A mount writes dev->cache and dev->timeout under it, and
 *   nothing changes them while the device is mounted.  Only probe, restore and mount allocate
 *   memory under it.  At these times the file system has no dirty pages.  So reclaim for such an
 *   allocation waits for no request of this device, and therefore for no reset.
 * pvfs_devs_mutex protects the list of devices.  Tasks never hold it together with dev->lock.
 *
 * A task that sees q->live true under q->poll.lock may use the virtqueue until it turns preemption
 * on again, because pvfs_stop() clears @live and waits for an RCU grace period before the reset.
 * virtio_poll does not check @live.  It may turn callbacks on until virtio_poll_release() returns.
 */
#ifndef _PVFS_H
#define _PVFS_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_fs.h>
#include <linux/virtio_poll.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "fuse_i.h"

/* How long a task that exits waits for a close, and how long umount waits for late closes. */
#define PVFS_EXIT_SECONDS	10

#define PVFS_HIPRIO		0	/* index of its virtqueue; the request queues follow */
#define PVFS_VQ_NAME_LEN	16
#define PVFS_TAG_LEN		sizeof_field(struct virtio_fs_config, tag)
#define PVFS_POLL_MAX_US	100000U
#define PVFS_TIMEOUT_MAX	86400U	/* seconds */

#define PVFS_SLOT_SIZE		1024
#define PVFS_SLOTS_MAX		256
/* Descriptors besides those of pages: one that the device reads, and one that it writes. */
#define PVFS_SG_HEADERS		2
#define PVFS_RING_MIN		8

/* How many FORGETs fit into one message, and how many messages may be in flight. */
#define PVFS_FORGETS		120
#define PVFS_HISLOTS		16

/* Requests of one class take similar time, so each queue has a polling policy for each class. */
enum pvfs_class {
	PVFS_META,	/* names, attributes, opening and closing */
	PVFS_SMALL,	/* data, up to PVFS_SMALL_MAX */
	PVFS_LARGE,	/* data beyond that */
	PVFS_SYNC,	/* may wait for the host's disk: fsync, fallocate, copies */
	PVFS_CLASSES,
	PVFS_NEVER = PVFS_CLASSES,	/* no caller polls: background, locks, no reply */
};

#define PVFS_SMALL_MAX		32768U

enum pvfs_cache {
	PVFS_CACHE_NONE,	/* the core keeps no file data */
	PVFS_CACHE_AUTO,	/* the server says with each open what the core keeps */
	PVFS_CACHE_ALWAYS,	/* the core keeps all, because only this guest uses the directory */
};

struct pvfs_abandoned;
struct pvfs_dev;

/* How the driver sent a request for a lock, see locks.c. */
enum pvfs_lock {
	PVFS_LOCK_NONE,		/* not FUSE_SETLKW */
	PVFS_LOCK_WAITS,	/* the server answers once the lock is free */
	PVFS_LOCK_ASKS,		/* the server answers at once */
};

/* A close that no task waits for, on dev->closes. */
struct pvfs_close {
	struct list_head node;
	u64 seq;			/* ascends along the list */
	bool background;		/* the driver sent it, and umount waits for it */
};

/* The state of a caller that polls, on the caller's stack.  Other tasks use @done only. */
struct pvfs_wait {
	u64 start;			/* local_clock() when the budget began */
	u64 budget;			/* for how long the caller polls, in nanoseconds */
	bool done;			/* written under q->poll.lock */
};

/* How much buffer the headers and arguments of a request take.  Pages are not counted. */
struct pvfs_need {
	unsigned int in_size;		/* bytes that the device reads */
	unsigned int out_size;		/* bytes that the device writes */
	void *big;			/* a buffer, if that of a slot is too small; or NULL */
};

/* q->poll.lock protects a slot until q->work takes it off q->late.  Then only that work uses it. */
struct pvfs_slot {
	struct list_head node;		/* on q->free, q->busy or q->late */
	struct fuse_req *req;		/* NULL if the request was abandoned */
	struct pvfs_abandoned *abandoned;
	struct pvfs_wait *wait;		/* of the caller, while it polls */
	void *big;			/* instead of @buf, for large arguments */
	u64 unique;
	u64 start;			/* local_clock() when the request was sent */
	unsigned int in_size;		/* bytes in the buffer that the device reads */
	unsigned int out_size;		/* bytes in the buffer that the device writes */
	unsigned int out_pages;		/* bytes in pages that the device writes */
	u8 class;
	u8 lock;			/* enum pvfs_lock */
	bool interrupt;			/* hiprio.work has to send INTERRUPT for the request */
	bool patient;			/* the request may take long, see timeout.c */
	bool iopoll;			/* a task polls for it, see iopoll.c */
	unsigned int written;		/* if @abandoned: bytes that the device wrote */
	u8 buf[] __aligned(8);
};

#define PVFS_BUF_SIZE	(PVFS_SLOT_SIZE - offsetof(struct pvfs_slot, buf))

/* Tasks write all of these under q->poll.lock. */
struct pvfs_stats {
	u64 requests;
	u64 polled;		/* callers that polled until their reply came */
	u64 slept;		/* callers that stopped polling before their reply came */
	u64 unpolled;		/* callers that did not poll */
	u64 iopolled;		/* requests that a task ended by ->iopoll */
	u64 kicks;
	u64 kicks_saved;	/* kicks that the device had said it does not need */
	u64 queued;		/* requests that went to fiq->pending first */
	u64 bad_replies;	/* malformed replies, which the driver turned into -EIO */
	u64 abandoned;		/* requests whose tasks were killed, see abandon.c */
};

/* A task that polls by ->iopoll, on its stack. */
struct pvfs_iopoller {
	struct file *file;
	struct list_head may_block;	/* reads of @file for the task to end, which may sleep */
};

/*
 * See iopoll.c.  @polls is written without a lock, the rest under q->poll.lock.  While @lease is
 * true, @timed or @over is.
 */
struct pvfs_iopoll {
	unsigned int inflight;		/* polled requests in the ring; read without a lock */
	unsigned int polls;		/* how often tasks have polled */
	unsigned int seen;		/* @polls when the timer looked last */
	bool lease;			/* the pollers own the queue */
	bool over;			/* no task has polled for too long; read without a lock */
	bool timed;			/* @timer is pending, or its callback is about to run */
	struct pvfs_iopoller *poller;	/* the lock's holder, if it polls by ->iopoll */
	struct timer_list timer;
};

/* @poll.lock protects all that changes after the probe. */
struct pvfs_queue {
	struct virtio_poll_queue poll;
	struct pvfs_dev *dev;
	unsigned int index;
	bool live;			/* see Locking: tasks may use the ring */
	unsigned int lock_waits;	/* slots with PVFS_LOCK_WAITS */
	unsigned int max_lock_waits;
	unsigned int unmeasured;	/* in flight, of PVFS_NEVER; the policies ignore them */
	u64 seq;

	struct list_head free;
	struct list_head busy;
	struct list_head ended;		/* requests for @work to end */
	struct list_head late;		/* slots of abandoned requests, for @work to free */
	struct list_head blocking;	/* requests for @block_work to end */
	struct work_struct work;
	struct work_struct block_work;

	struct scatterlist *sg;
	unsigned int nr_sg;
	struct virtio_poll_policy policy[PVFS_CLASSES];
	struct pvfs_iopoll iopoll;
	struct pvfs_stats stats;
	char name[PVFS_VQ_NAME_LEN];
} ____cacheline_aligned_in_smp;

/* A message on the hiprio queue. */
struct pvfs_hislot {
	struct fuse_in_header in;
	union {
		struct fuse_forget_in forget;
		struct fuse_interrupt_in interrupt;
		struct {
			struct fuse_batch_forget_in head;
			struct fuse_forget_one one[PVFS_FORGETS];
		} batch;
	};
	struct fuse_out_header out;	/* the answer to INTERRUPT */
	bool busy;
	bool is_interrupt;
	unsigned int queue;		/* index of the interrupted request's queue */
};

struct pvfs_hiprio {
	spinlock_t lock;		/* see the top of this file */
	struct virtqueue *vq;
	bool live;
	bool can_batch;			/* the server knows BATCH_FORGET */
	bool want_interrupt;		/* some slot's @interrupt may be set; read without a lock */
	unsigned int inflight;
	unsigned int interrupts;	/* ... of which INTERRUPT */
	u64 seq;
	struct fuse_forget_link *first;
	struct fuse_forget_link **last;
	unsigned int waiting;		/* FORGETs on the list that begins at @first */
	struct delayed_work work;
	struct pvfs_hislot *slots;
	u64 taken;			/* messages that the server has given back */
	u64 forgets;
	u64 forget_messages;
	u64 interrupts_sent;
	u64 kicks;
};

struct pvfs_dev {
	struct kref ref;
	struct list_head node;		/* on the list of devices */
	struct mutex lock;		/* see the top of this file */
	struct virtio_device *vdev;	/* NULL once removed */
	struct fuse_conn *fc;		/* while mounted */
	struct super_block *sb;		/* the main superblock, until it has gone */
	enum pvfs_cache cache;		/* of the mount */
	bool writeback;			/* the server has agreed that the core writes back later */
	unsigned int timeout;		/* of the mount, in seconds; 0: none */
	struct delayed_work timeout_work;
	u64 replies;			/* that timeout_work counted when it ran last */
	bool waited;			/* timeout_work found a request waiting then */
	unsigned int silent;		/* for how many seconds the server has been silent */
	bool up;			/* it has virtqueues */
	bool given_up;			/* the driver gave it up; the next mount restarts it */
	u64 exit_replies;		/* replies + 1 when a wait at exit ran out; 0: none did */
	u64 exit_task;			/* start_boottime of the task whose wait ran out last */
	struct list_head parked;	/* requests for locks that are not free; see locks.c */
	struct delayed_work park_work;
	spinlock_t close_lock;		/* protects the next two */
	struct list_head closes;	/* late closes, see close.c */
	u64 close_seq;			/* @seq of the close that went to the list last */
	wait_queue_head_t close_waitq;	/* tasks that wait for late closes */
	struct work_struct fail_work;
	const struct super_operations *core_ops;
	struct super_operations super_ops;	/* @core_ops with some replaced, see mount.c */
	unsigned int *map;		/* CPU to index in @queues */
	unsigned int ring_size;		/* entries of the smallest request ring */
	unsigned int nr_queues;
	struct pvfs_queue *queues;
	struct pvfs_hiprio hiprio;
	char tag[PVFS_TAG_LEN + 1];
};

/* main.c */
extern struct workqueue_struct *pvfs_wq;
extern struct workqueue_struct *pvfs_block_wq;
extern struct workqueue_struct *pvfs_fail_wq;

/* mount.c */
extern struct file_system_type pvfs_type;

/* device.c */
extern struct virtio_driver pvfs_driver;
struct pvfs_dev *pvfs_dev_find(const char *tag);
void pvfs_dev_put(struct pvfs_dev *dev);
int pvfs_dev_revive(struct pvfs_dev *dev);

/* queue.c: into the ring and out of it */
struct fuse_iqueue *pvfs_fiq(struct pvfs_queue *q);
void pvfs_queue_init(struct pvfs_queue *q);
int pvfs_queue_alloc(struct pvfs_queue *q);
void pvfs_queue_free(struct pvfs_queue *q);
void pvfs_queue_start(struct pvfs_queue *q);
void pvfs_queue_stop(struct pvfs_queue *q);
void pvfs_queue_empty(struct pvfs_queue *q);
void pvfs_queue_drop_pending(struct pvfs_queue *q, struct fuse_iqueue *fiq);
void pvfs_queue_callback(struct virtqueue *vq);
void pvfs_send_req(struct fuse_iqueue *fiq, struct fuse_req *req);
unsigned int pvfs_collect(struct pvfs_queue *q, struct list_head *done, bool polled);
void pvfs_dispatch_all(struct pvfs_dev *dev);
bool pvfs_queue_waits(struct pvfs_queue *q, u64 *replies);
u64 pvfs_replies(struct pvfs_dev *dev);
void pvfs_end_list(struct list_head *done);

/* request.c: between a request and a slot */
bool pvfs_is_patient(const struct fuse_req *req);
int pvfs_request_measure(struct fuse_req *req, struct pvfs_need *need, gfp_t gfp);
void pvfs_request_fill(struct pvfs_queue *q, struct pvfs_slot *slot, struct fuse_req *req,
		       const struct pvfs_need *need);
unsigned int pvfs_request_map(struct pvfs_queue *q, struct pvfs_slot *slot,
			      struct scatterlist *sgs[2], unsigned int *lists);
void pvfs_request_reply(struct pvfs_queue *q, struct pvfs_slot *slot, unsigned int written);
void pvfs_request_end(struct fuse_req *req);
int pvfs_late_reply(struct pvfs_slot *slot, void *to, unsigned int size);
void pvfs_sync_failed(struct fuse_mount *fm, int err);
struct page *pvfs_page(struct fuse_args_pages *ap, unsigned int i, unsigned int *offset,
		       unsigned int *length);
unsigned int pvfs_page_count(const struct fuse_args_pages *ap);

/* wait.c: callers that poll */
extern struct virtio_poll_settings pvfs_poll_settings;
extern const struct virtio_poll_ops pvfs_poll_ops;
bool pvfs_wait_begin(struct pvfs_queue *q, struct pvfs_slot *slot, struct pvfs_wait *wait);
bool pvfs_wait_poll(struct pvfs_queue *q, struct pvfs_slot *slot, struct pvfs_wait *wait);
void pvfs_wait_over(struct pvfs_queue *q, struct pvfs_slot *slot, u64 now);
void pvfs_watch(struct pvfs_queue *q);

/* iopoll.c: tasks that poll for asynchronous I/O, if the core has ->iopoll (Kbuild looks) */
#ifdef PVFS_IOPOLL
void pvfs_lease_update(struct pvfs_queue *q);
void pvfs_lease_expire(struct pvfs_queue *q);
void pvfs_iopoll_sent(struct pvfs_queue *q, struct pvfs_slot *slot);
void pvfs_iopoll_answered(struct pvfs_queue *q);
bool pvfs_iopoll_takes(struct pvfs_queue *q, struct fuse_req *req, struct list_head *done);
int pvfs_iopoll(struct fuse_iqueue *fiq, struct kiocb *iocb, unsigned int flags);
void pvfs_iopoll_init(struct pvfs_queue *q);
void pvfs_iopoll_free(struct pvfs_queue *q);
#else
static inline void pvfs_lease_update(struct pvfs_queue *q) { }
static inline void pvfs_lease_expire(struct pvfs_queue *q) { }
static inline void pvfs_iopoll_sent(struct pvfs_queue *q, struct pvfs_slot *slot) { }
static inline void pvfs_iopoll_answered(struct pvfs_queue *q) { }
static inline bool pvfs_iopoll_takes(struct pvfs_queue *q, struct fuse_req *req,
				     struct list_head *done)
{
	return false;
}

static inline void pvfs_iopoll_init(struct pvfs_queue *q) { }
static inline void pvfs_iopoll_free(struct pvfs_queue *q) { }
#endif

/* hiprio.c: FORGET and INTERRUPT */
int pvfs_hiprio_init(struct pvfs_dev *dev);
void pvfs_hiprio_free(struct pvfs_dev *dev);
void pvfs_hiprio_start(struct pvfs_dev *dev);
void pvfs_hiprio_stop(struct pvfs_dev *dev);
void pvfs_hiprio_empty(struct pvfs_dev *dev);
void pvfs_hiprio_drain(struct pvfs_dev *dev);
bool pvfs_hiprio_ask(struct pvfs_dev *dev);
u64 pvfs_hiprio_taken(struct pvfs_dev *dev);
void pvfs_hiprio_interrupt(struct pvfs_dev *dev);
void pvfs_forget(struct fuse_req *req);
void pvfs_send_forget(struct fuse_iqueue *fiq, struct fuse_forget_link *link);
void pvfs_send_interrupt(struct fuse_iqueue *fiq, struct fuse_req *req);

/* A task may wait for a lock for ever.  Servers end no other request early for an INTERRUPT. */
static inline bool pvfs_can_interrupt(const struct fuse_req *req)
{
	return req->in.h.opcode == FUSE_SETLKW;
}

/* locks.c: more waits for locks than a ring may hold */
void pvfs_locks_init(struct pvfs_dev *dev);
void pvfs_locks_free(struct pvfs_dev *dev);
enum pvfs_lock pvfs_lock_way(const struct pvfs_queue *q, const struct fuse_req *req);
bool pvfs_lock_done(struct pvfs_queue *q, struct fuse_req *req, enum pvfs_lock lock);

/* close.c: closes that no task waits for */
void pvfs_closes_init(struct pvfs_dev *dev);
void pvfs_close_enter(struct pvfs_dev *dev, struct pvfs_close *close);
void pvfs_close_leave(struct pvfs_dev *dev, struct pvfs_close *close);
void pvfs_close_later(struct fuse_mount *fm, const struct fuse_args *from, gfp_t gfp);
bool pvfs_close_of_thread(struct pvfs_dev *dev, const struct fuse_req *req);
void pvfs_closes_finish(struct pvfs_dev *dev);
void pvfs_closes_forget(struct pvfs_dev *dev);
int pvfs_closes_await(struct pvfs_dev *dev, const struct fuse_req *req);

/* abandon.c: requests of tasks that were killed */
void pvfs_wait_killable(struct pvfs_dev *dev, struct fuse_req *req);
void pvfs_wait_at_exit(struct pvfs_dev *dev, struct fuse_req *req);
void pvfs_abandoned_await(struct pvfs_dev *dev);
void pvfs_abandoned_end(struct pvfs_dev *dev, struct pvfs_slot *slot);
void pvfs_abandoned_unmount(struct pvfs_queue *q);

/* timeout.c: requests that are not answered in time */
void pvfs_timeout_init(struct pvfs_dev *dev);
void pvfs_timeout_start(struct pvfs_dev *dev, unsigned int seconds);
void pvfs_timeout_stop(struct pvfs_dev *dev);

/* umount.c: umount -f */
void pvfs_umount_begin(struct super_block *sb);

/* cache.c: which file data the core keeps */
void pvfs_cache_ask(struct pvfs_dev *dev, struct fuse_req *req, void *args);
void pvfs_cache_told(struct pvfs_dev *dev, struct fuse_req *req);
const char *pvfs_cache_name(enum pvfs_cache cache);

/* sysfs.c */
extern const struct attribute_group *pvfs_groups[];

#endif /* _PVFS_H */
