/* SPDX-License-Identifier: GPL-2.0 */
/*
 * In-kernel side of vhost_serve: what a device needs to have its rings served.
 *
 * vhost_serve reads chains, keeps requests in slots, writes used rings, signals
 * guests, and runs the life of a vring and of the character device.  A device
 * (vhost_blk, vhost_fs) says what a request means, by struct vserve_ops.  It
 * embeds struct vserve_dev, vserve_vring and vserve_req as the first member,
 * base, of its own structures, whose sizes are in the operations.
 *
 * The header needs the private vhost.h: see VHOST_PRIVATE in a device's Kbuild.
 *
 * The way of a request
 *
 *   ring -> take() -> submit() -> [backend, or work() in a worker] ->
 *   vserve_req_end() -> release() -> finish() -> used ring
 *
 * - take() parses one chain into its slot.  It runs in the poller first; if it
 *   fails there, the chain is put back and the vring's worker calls it again with
 *   may_sleep.  take() may finish the request at once by vserve_req_finish();
 *   then submit() and release() are not called for it, and finish() is.
 * - submit() runs in the poller.  It gives the request to a backend
 *   (vserve_req_start(), later vserve_req_end()), has a worker do it
 *   (vserve_req_punt()), or the poller's thread once the round is over
 *   (vserve_req_hot()), sets it aside because the backend is full
 *   (vserve_req_aside()), finishes it (vserve_req_finish()), or keeps it until
 *   flush() to submit it with its neighbours.  After submit() returned, the
 *   request may be over.
 * - flush() ends a batch: what submit() kept is given away there.
 * - A request that was set aside is submitted again in later rounds, and goes to
 *   a worker if that does not help.
 * - work() runs in a worker and ends with vserve_req_end(), at once or later.  For a
 *   request that mostly does not sleep (vserve_req_hot()) it runs in the poller's
 *   thread.  Should it sleep there, or take long, another thread goes on with the rings
 *   (drivers/vhost/poll/crew.c).  req->hot says that it runs there; it can still call
 *   vserve_req_again() then to have a worker do it from the start.
 * - release() lets go of what the request holds of the guest's memory.  It returns
 *   false where it would sleep or take long; then a worker calls it with may_sleep.
 *   It may be called without any lock there, so it must not touch counters.
 * - finish() writes what the guest looks at beside its data (the status of a
 *   disk's request; nothing for a file's, whose reply was copied before), counts,
 *   lets go of all the rest, and returns the used length.
 *
 * Locking
 *
 * - vhost_dev.mutex: ioctls, one at a time: what is served, pollers, start, stop.
 * - vhost_virtqueue.mutex: everything of a running vring but its list of
 *   completions: the ring's indices, requests and their states, lists, counters
 *   (read by all), and the device's own fields of the vring.  The poller only ever
 *   tries it.  While a worker or an ioctl holds it, the poller looks elsewhere.
 * - vring->done is lock-free: vserve_req_end() pushes, the holder of the vring's
 *   mutex takes.  A request that was pushed belongs to the taker.
 * - vring->reaped is that list for completions within the poller's own round,
 *   which needs no atomics for it.
 * - vring->hot: the thread that polls the vring, in a round (with the mutex) or after it
 *   (without).  Where nothing polls the vring any more it is the drain's.
 * - work() and the may_sleep release() have the request alone, without a mutex.
 *
 * Sleeping
 *
 * The poller must not.  A round in it runs with page faults disabled and takes no
 * lock that sleeps.  take() without may_sleep, submit(), flush(), reap() and
 * finish() without may_sleep are called so, under the vring's mutex and with the
 * owner's mm in use: copy_from_user() and copy_to_user() work where the page is
 * there.  A worker of the vring repeats the round with page faults allowed
 * (may_sleep) while the poller leaves the vring alone.  It sleeps for page faults
 * and for memory, and not for a backend, because it holds the vring's mutex.
 * work() may sleep for anything; with VSERVE_WORK_MM it has the owner's mm in use.
 *
 * Lifetime
 *
 * A started vring holds its owner's mm (mm_users), so that requests are given back
 * even if the owner is killed: release() of the file drains, then lets the mm go.  If a
 * backend does not answer and the owner is gone, a work of vhost_serve waits for it in the
 * place of release(), and holds the device's module.
 * Requests are slots of an array indexed by head, allocated (zeroed) at start,
 * freed after stop().  Between two requests a slot keeps what the device left in
 * it.  vserve_req_end() may still be about to wake the poller when its request is
 * already reused; rcu_read_lock() around that, and synchronize_rcu() before the
 * device goes, close the gap.  iovecs of a chain are valid within take(), and in the poller's
 * round within the submit() that follows it at once: the next chain has the same ones.
 */
#ifndef _LINUX_VHOST_SERVE_H
#define _LINUX_VHOST_SERVE_H

#include <linux/blk-cgroup.h>
#include <linux/kthread.h>
#include <linux/llist.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/vhost_poll.h>
#include <linux/workqueue.h>
#include <uapi/linux/vhost_serve.h>

#include "vhost.h"

/* As in QEMU (VIRTQUEUE_MAX_SIZE): descriptors of a chain, tables included. */
#define VSERVE_MAX_CHAIN	1024
/* Of a vring by default; bytes and descriptors of a round go by it, too. */
#define VSERVE_WEIGHT		100
/* poller_cpu, while there is no poller. */
#define VSERVE_NO_CPU		(~0U)

/* Features of the ring itself. */
#define VSERVE_FEATURES	(BIT_ULL(VIRTIO_RING_F_INDIRECT_DESC) |	\
			 BIT_ULL(VIRTIO_RING_F_EVENT_IDX) |	\
			 BIT_ULL(VIRTIO_F_ANY_LAYOUT) |		\
			 BIT_ULL(VIRTIO_F_VERSION_1))

struct file;
struct inode;
struct super_block;
struct vserve_dev;
struct vserve_vring;
struct vserve_req;
struct vserve_workers;

/*
 * struct vserve_region - a region of the guest's memory that may be read and written
 * @last: its last address
 * @room: how many of its addresses come before @last
 * @shift: the number that turns an address of the guest into one in the owner's memory
 */
struct vserve_region {
	u64 last;
	u64 room;
	u64 shift;
};

/*
 * struct vserve_chain - a chain that was read
 * @iov: @out buffers that the guest gives, then @in buffers that it takes, in the
 *	owner's address space.  There may be none of either.  Buffers that lie in
 *	several regions of memory are several here, and empty ones are left out
 * @out_len: @in_len: their bytes
 */
struct vserve_chain {
	const struct iovec *iov;
	unsigned int out;
	unsigned int in;
	size_t out_len;
	size_t in_len;
};

/* A request is in the ring, taken, or finished. */
enum vserve_state {
	VSERVE_FREE,
	VSERVE_TAKEN,		/* on its way to a backend, in this round */
	VSERVE_PENDING,		/* on vring->pending */
	VSERVE_INFLIGHT,	/* a backend or a worker has it */
	VSERVE_FINISHED,	/* on vring->finished */
};

/* A round writes at most this many answers to the used ring at once. */
#define VSERVE_USED_BATCH	64U

/* Errors of a guest, for the tracepoint. */
enum vserve_malformed {
	VSERVE_BAD_CHAIN,	/* it cannot be read */
	VSERVE_NO_STATUS,	/* there is nowhere to put one */
	VSERVE_HEAD_TWICE,	/* offered again while it is in flight */
	VSERVE_NO_USED_RING,	/* it cannot be written */
};

/* vserve_ops.flags: work() has the owner's mm in use */
#define VSERVE_WORK_MM		BIT(0)
/* Another owner can go on with the device, because it serves nothing of its owner's. */
#define VSERVE_KEEPS		BIT(1)
/* submit() gives I/O to block devices, so the round has a plug around it. */
#define VSERVE_PLUG		BIT(2)

/**
 * struct vserve_ops - what a device makes of a ring
 * @owner: the device's module
 * @name: of the device; workqueues are called so
 * @dev_size: of the device's own structure, that begins with struct vserve_dev
 * @vring_size: likewise with struct vserve_vring
 * @req_size: likewise with struct vserve_req
 * @max_workers: threads of one device, and requests of it that workers carry out at a time.  New
 *	threads do not wait for this limit, so while the device gets its threads, up to
 *	2 * @max_workers - 1 requests are in work() for a while
 * @flags: VSERVE_WORK_MM, VSERVE_KEEPS, VSERVE_PLUG
 * @tolerated: features that are accepted even where they are not offered
 *
 * Of the device.  All but @ioctl_unlocked run under its mutex (vdev.mutex), or
 * when no other task can have it:
 * @open: optional: the device was opened; the rest of it is zero
 * @free: optional: the opposite; all else is gone, and a grace period went by
 * @features: what can be negotiated, without the features of the ring itself
 * @ioctl: the device's own numbers, @cmd without its size (IOCSIZE_MASK).  It
 *	checks the owner itself (vhost_dev_check_owner()); -ENOTTY: no such number
 * @ioctl_unlocked: optional: those that take no mutex; -ENOIOCTLCMD: not this one
 * @set_table: optional: instead of VHOST_SET_MEM_TABLE itself, that it calls by
 *	vserve_set_table(); vrings may run
 * @forget: optional: the owner goes; all vrings are stopped and have no poller
 *
 * Of a vring, under the device's mutex, the vring's not held:
 * @init_vring: optional: a new one, zeroed; it is there until the file is closed
 * @check_target: optional: may the vring be served by this poller, with this
 *	target?  Without it, only VHOST_SERVE_TARGET_AUTO can
 * @start: optional: the vring is about to start; it holds its owner's mm
 * @quiesce: optional: the vring stops (vring->stopping is set): requests that
 *	wait for something that may never come are to be ended
 * @stop: optional: nothing is in flight any more; undoes @start.  Slots are still
 *	there if they ever were (vring->reqs)
 *
 * Of requests, see the head of this file; under the vring's mutex unless it says
 * otherwise:
 * @take: sets what it needs of the slot; sets req->bytes, for the weight of the
 *	round.  An error without @may_sleep: the chain is put back, a worker takes
 *	it again; with @may_sleep: the chain is given back to the guest with length
 *	0, as malformed.  But -EBUSY: the chain is put back until @full is false; take()
 *	has set it.  It undoes what it did before it fails
 * @submit: see above.  A request that comes from vring->pending has the state
 *	VSERVE_PENDING: the size of the backend may have changed since it was taken
 * @flush: optional
 * @reap: optional: ask a backend for completions of requests that are polled
 * @punt: optional: work() is about to carry out the request, alone; @again: after
 *	vserve_req_again().  Not called after vserve_req_resume()
 * @work: in a worker, or in the poller's thread after its round (req->hot), without the mutex
 * @release: optional; without the mutex if @may_sleep.  @status of the request is
 *	set
 * @finish: called again in the worker if it returned -EFAULT without @may_sleep,
 *	and not any more after it succeeded.  If it returns -EFAULT with @may_sleep,
 *	there is nowhere to write an answer: the request is over, and the ring is
 *	broken.  It lets go of everything in that case, too
 * @bad_chain: in the worker: the chain of @head cannot be read.  0: the guest can
 *	tell from what it wrote, the head is given back with length 0; an error:
 *	the ring is broken
 */
struct vserve_ops {
	struct module *owner;
	const char *name;
	size_t dev_size;
	size_t vring_size;
	size_t req_size;
	unsigned int max_workers;
	unsigned int flags;
	u64 tolerated;

	int (*open)(struct vserve_dev *dev);
	void (*free)(struct vserve_dev *dev);
	u64 (*features)(struct vserve_dev *dev);
	long (*ioctl)(struct vserve_dev *dev, unsigned int cmd,
		      unsigned long arg);
	long (*ioctl_unlocked)(struct vserve_dev *dev, unsigned int cmd,
			       unsigned long arg);
	long (*set_table)(struct vserve_dev *dev, void __user *argp);
	void (*forget)(struct vserve_dev *dev);

	void (*init_vring)(struct vserve_vring *vring);
	int (*check_target)(struct vserve_vring *vring,
			    const struct vhost_poller *poller, u32 target);
	int (*start)(struct vserve_vring *vring);
	void (*quiesce)(struct vserve_vring *vring);
	void (*stop)(struct vserve_vring *vring);

	int (*take)(struct vserve_req *req, const struct vserve_chain *chain,
		    bool may_sleep);
	void (*submit)(struct vserve_req *req);
	void (*flush)(struct vserve_vring *vring);
	void (*reap)(struct vserve_vring *vring);
	void (*punt)(struct vserve_req *req, bool again);
	void (*work)(struct vserve_req *req);
	bool (*release)(struct vserve_req *req, bool may_sleep);
	int (*finish)(struct vserve_req *req, bool may_sleep);
	int (*bad_chain)(struct vserve_vring *vring, unsigned int head);
};

/*
 * struct vserve_req - one request, the slot of its head
 *
 * vserve_req_end() writes to the first line only.  So a completion on another CPU
 * takes that line from the poller and no other of this structure.
 *
 * Fields that the device may set: @next, @status (by vserve_req_end() too),
 * @timed and @hold from take() on, @bytes in take().  The rest is read only to it.
 *
 * @done: on vring->done, reaped or finished
 * @next: for the device: requests that go along with each other
 * @node: on vring->pending, inflight or polled
 * @state: enum vserve_state
 * @status: as the device ended it; the meaning is the device's
 * @polled: the backend does not say when it is done, so reap() asks
 * @timed: how long it took says how long the next one takes
 * @hot: the poller's thread carries it out; set by vserve_req_hot()
 * @hold: for the device: how it holds the guest's memory
 * @len: the used length, once finish() said so
 * @bytes: that it moves
 */
struct vserve_req {
	struct llist_node done;
	struct vserve_vring *vring;
	struct vserve_req *next;
	u64 done_ns;
	u64 submit_ns;
	struct list_head node;
	u8 state;
	u8 status;
	u8 hold;
	bool polled;
	bool timed;
	/* private: */
	u8 again;
	bool released;
	bool in_worker;

	/* public: */
	u64 taken_ns;
	u64 aside_ns;
	u32 bytes;
	u32 len;
	u16 head;
	bool hot;
	/* private: */
	bool resumed;
	bool answered;
	struct work_struct work;
	struct list_head job;
};

#ifdef CONFIG_SMP
static_assert(offsetof(struct vserve_req, done) == 0);
static_assert(offsetofend(struct vserve_req, in_worker) <= SMP_CACHE_BYTES);
#endif

struct vserve_counters {
	u64 requests;
	u64 malformed;
	u64 punted;
	u64 hot;
	u64 calls;
	u64 latency[VHOST_SERVE_HIST_BUCKETS];
};

/*
 * struct vserve_calls - when to interrupt the guest, see drivers/vhost/serve/calls.c
 *
 * @window_ns: since when an interrupt is held back; 0: none is
 * @event_ns: when a request came in or was answered last, since then
 * @took_ns: how long the guest takes for an interrupt; 0: not known
 * @asked_ns: when the interrupt that is measured was sent; 0: none is
 * @asked_idx: the used index then
 * @skip: interrupts that are still to be sent at once
 * @sent: interrupts that were sent while none was measured; one in 16 is
 * @misses: windows in a row that saw nothing
 * @paid: a request came in, or was answered, in this window
 * @due: there are answers that the guest has not been told of
 */
struct vserve_calls {
	u64 window_ns;
	u64 event_ns;
	u64 took_ns;
	u64 asked_ns;
	u16 asked_idx;
	u16 skip;
	u8 sent;
	u8 misses;
	bool paid;
	bool due;
};

/*
 * struct vserve_vring - a virtqueue and its requests
 *
 * Fields with the same writer share cache lines, so a completion on another CPU takes one line
 * from the poller, and a kick another one that the poller does not need.
 *
 * Written by ioctls, read by all:
 * @poller: set by VHOST_SERVE_SET_VRING, under the device's mutex
 * @poller_cpu: its CPU, for readers of counters, which do not take that mutex
 * @target: as set by VHOST_SERVE_SET_VRING
 * @mm: of the owner; held while the vring runs
 *
 * Written by the holder of the mutex, which is the poller nearly always:
 * @running: requests may be taken
 * @broken: the ring makes no sense; nothing is taken until it is restarted
 * @with_worker: the worker serves this vring now
 * @full: set by the device: nothing is taken while it is.  Something has to be in
 *	flight then whose finish() clears it, or the device clears it, with the mutex held,
 *	and wakes the poller afterwards
 * @reqs: the slots, @nr_reqs of them; see vserve_slot()
 * @nr_in_workers: of @nr_inflight, those that workers have
 * @nr_polled: of @nr_inflight, those that reap() asks for; they are on @polled, and not
 *	on @inflight
 * @round_descs: descriptors read in this round
 * @regions: two regions of the table of memory @regions_of, the one that was looked up last first,
 *	or the same one twice.  The poller uses them only while vq.umem is @regions_of.  A later
 *	table may lie where the old one was, so vserve_set_table() clears @regions_of before
 *	another one can come, and so does the start of a vring
 * @to_come: requests that this round may still take
 * @now: when this round began, ktime_get_ns()
 * @heads: answers on their way to the used ring.  Not on the stack, where the compiler would
 *	have to zero all of them each time (CONFIG_INIT_STACK_ALL_ZERO)
 * @reaped: completed by rounds themselves
 * @finished: @finished_last: requests that are ready for the used ring, by req->done
 * @backlog: taken from @reaped or @done, for rounds to come: each has a budget
 * @calls: when to interrupt the guest
 * @hot: @hot_last: requests for the poller's thread to carry out, by req->next
 * @hot_punted: those of them that workers got after all; written as @hot is
 * @reaper: the task that is in a round now: takes @done without being woken, and
 *	its own completions by @reaped
 *
 * Where vserve_req_end() looks:
 * @done: pushed from any context, taken by the holder of the mutex
 * @stopping: @drain waits for @done; from the begin of a stop to its end, which may be
 *	another ioctl's
 * @drained: nothing is in flight any more
 * @overdue: a stop has reached its limit already; under the device's mutex
 * @goes_on: the drain is to end, because the stop is taken back
 *
 * Written by kicks: what comes after.
 */
struct vserve_vring {
	struct vhost_virtqueue vq;
	struct vserve_dev *dev;
	const struct vserve_ops *ops;
	unsigned int index;
	u32 poller_cpu;
	u32 target;
	struct vhost_poller *poller;
	struct mm_struct *mm;
	struct vhost_poll_source src;

	bool running ____cacheline_aligned_in_smp;
	bool broken;
	bool with_worker;
	bool full;
	unsigned int nr_reqs;
	void *reqs;
	unsigned int nr_inflight;
	unsigned int nr_in_workers;
	unsigned int nr_polled;
	unsigned int round_descs;
	const struct vhost_iotlb *regions_of;
	struct vserve_region regions[2];
	unsigned int to_come;
	struct list_head pending;
	struct list_head inflight;
	struct list_head polled;
	struct llist_node *finished;
	struct llist_node **finished_last;
	u64 now;
	struct vserve_req *hot;
	struct vserve_req **hot_last;
	u64 hot_punted;
	struct task_struct *reaper;
	struct llist_head reaped;
	struct llist_node *backlog;
	struct vserve_calls calls;
	struct vserve_counters stats;
	struct vring_used_elem heads[VSERVE_USED_BATCH];

	struct llist_head done ____cacheline_aligned_in_smp;
	bool stopping;
	bool drained;
	bool overdue;
	bool goes_on;

	atomic64_t kicks ____cacheline_aligned_in_smp;
	wait_queue_head_t drain;
	struct work_struct work;
	struct work_struct stop_work;
};

/*
 * struct vserve_dev - an open device
 * @vdev: its nvqs is how many of @vrings there are; it and they only grow, until
 *	the file is closed
 * @features: negotiated; for vrings to come
 * @copies: the poller's CPU moves the data, not a disk; set by ops->start()
 * @nr_running: vrings that are running or stopping; under the device's mutex
 * @round_bytes: how many bytes a vring of weight VSERVE_WEIGHT may move in a round
 * @css: @memcg: the owner's, which block I/O and the memory of requests are charged to
 * @in_cgroup: @css is not that of the root, which has no limits
 * @workers: threads in the owner's cgroups that do requests; while there is an owner
 * @wq: does the requests that @workers leave to it, see drivers/vhost/serve/workers.c
 * @end_wq: workers of requests after vserve_req_resume().  Those of @workers may all wait for a
 *	lock or a count that such a request gives back, so it must not wait for one of them
 * @ring_wq: workers of vrings.  They wait for page faults, which may be for the
 *	owner to serve, so no other device shares them
 */
struct vserve_dev {
	struct vhost_dev vdev;
	const struct vserve_ops *ops;
	struct vhost_virtqueue *vqs[VHOST_SERVE_MAX_VRINGS];
	struct vserve_vring *vrings[VHOST_SERVE_MAX_VRINGS];
	u64 features;
	bool copies;
	unsigned int nr_running;
	unsigned int round_bytes;
	struct vserve_workers *workers;
	struct workqueue_struct *wq;
	struct workqueue_struct *end_wq;
	struct workqueue_struct *ring_wq;
	struct cgroup_subsys_state *css;
	struct mem_cgroup *memcg;
	bool in_cgroup;
	int id;
	/* private: */
	bool opened;
	struct work_struct late_work;
};

/* The slot of a head, which is less than vring->nr_reqs. */
static inline struct vserve_req *vserve_slot(const struct vserve_vring *vring,
					     unsigned int head)
{
	return vring->reqs + head * vring->ops->req_size;
}

/* Between the two, block I/O and accounted memory of a kthread are the owner's. */
static inline struct mem_cgroup *vserve_charge_owner(struct vserve_dev *dev)
{
	kthread_associate_blkcg(dev->css);
	return set_active_memcg(dev->memcg);
}

static inline void vserve_charge_end(struct mem_cgroup *before)
{
	set_active_memcg(before);
	kthread_associate_blkcg(NULL);
}

/**
 * vserve_alloc_quick - memory for a request, in a round of the poller, at the owner's cost
 * @dev: the device
 * @size: in bytes
 *
 * Return: NULL where that would sleep, or exceed the limit of the owner's cgroup: a worker is to
 * try again then.
 */
static inline void *vserve_alloc_quick(struct vserve_dev *dev, size_t size)
{
	struct mem_cgroup *before = set_active_memcg(dev->memcg);
	void *memory = kmalloc(size, GFP_NOWAIT | __GFP_ACCOUNT | __GFP_NOWARN);

	set_active_memcg(before);
	return memory;
}

/**
 * vserve_req_start - a request goes to a backend
 * @req: in no list; the vring's mutex is held
 */
static inline void vserve_req_start(struct vserve_req *req)
{
	struct vserve_vring *vring = req->vring;

	req->state = VSERVE_INFLIGHT;
	req->submit_ns = vring->now;
	list_add_tail(&req->node, &vring->inflight);
	vring->nr_inflight++;
}

/**
 * vserve_req_unstart - the backend did not take it
 * @req: after vserve_req_start(); the vring's mutex is held since
 */
static inline void vserve_req_unstart(struct vserve_req *req)
{
	list_del(&req->node);
	req->vring->nr_inflight--;
	req->state = VSERVE_TAKEN;
}

/**
 * vserve_req_polled - the backend has to be asked whether a request is done
 * @req: after vserve_req_start(), and before the backend can end it
 */
static inline void vserve_req_polled(struct vserve_req *req)
{
	req->polled = true;
	req->vring->nr_polled++;
	list_move_tail(&req->node, &req->vring->polled);
}

/**
 * vserve_req_unpolled - the backend is not asked any more
 * @req: it may not have been; the vring's mutex is held
 */
static inline void vserve_req_unpolled(struct vserve_req *req)
{
	if (!req->polled)
		return;
	req->polled = false;
	req->vring->nr_polled--;
}

/**
 * vserve_req_aside - the backend is full; the request is submitted again later
 * @req: in no list; the vring's mutex is held
 */
static inline void vserve_req_aside(struct vserve_req *req)
{
	req->state = VSERVE_PENDING;
	req->aside_ns = req->aside_ns ?: req->vring->now;
	list_add_tail(&req->node, &req->vring->pending);
}

/* complete.c: the life of a request */
void vserve_req_punt(struct vserve_req *req);
void vserve_req_end(struct vserve_req *req, u8 status);
void vserve_req_again(struct vserve_req *req);
void vserve_req_finish(struct vserve_req *req, u8 status);

/* hot.c: requests for the poller's thread that may sleep */
void vserve_req_hot(struct vserve_req *req);
void vserve_req_resume(struct vserve_req *req);
bool vserve_fs_allows_hot(struct super_block *sb, bool changes);
bool vserve_read_is_watched(const struct file *file);
bool vserve_fs_queues_direct(const struct super_block *sb);

/* complete.c: what a guest did wrong */
void vserve_malformed(struct vserve_vring *vring, enum vserve_malformed why);
void vserve_break(struct vserve_vring *vring);

/* chain.c */
void __user *vserve_last_byte(struct vserve_vring *vring, unsigned int head);

/* dev.c: operations of the device's file, and what its ioctls need */
int vserve_open(struct file *file, const struct vserve_ops *ops);
int vserve_release(struct inode *inode, struct file *file);
long vserve_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
long vserve_set_table(struct vserve_dev *dev, void __user *argp);
bool vserve_any_running(struct vserve_dev *dev);
void vserve_flush_requests(struct vserve_dev *dev);

/* stats.c */
struct vserve_vring *vserve_vring_of(struct vserve_dev *dev, u32 index);
void vserve_read_stats(struct vserve_vring *vring,
		       struct vhost_serve_stats *out);

#endif /* _LINUX_VHOST_SERVE_H */
