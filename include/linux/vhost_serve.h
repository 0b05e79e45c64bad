/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface of vhost_serve for devices whose rings it serves.
 *
 * vhost_serve reads chains, keeps requests in slots, writes used rings, interrupts
 * guests, and has the life of vrings and of the character device.  A device
 * (vhost_blk, vhost_fs) says by struct vserve_ops what a request means.  It embeds
 * struct vserve_dev, vserve_vring and vserve_req as the first member, base, of its
 * own structures, whose sizes are in the operations.
 *
 * This header needs the private vhost.h: see VHOST_PRIVATE in a device's Kbuild.
 *
 * The way of a request
 *
 *   ring -> take() -> submit() -> [backend, or work() in a worker] ->
 *   vserve_req_end() -> release() -> finish() -> used ring
 *
 * - take() parses one chain into its slot.  The poller calls it first.  If it fails
 *   there, the poller puts the chain back, and the vring's worker calls take() again
 *   with may_sleep.  take() may finish the request at once by vserve_req_finish().
 *   vhost_serve then calls neither submit() nor release() for it, but does call
 *   finish().
 * - submit() runs in the poller.  It does one of these:
 *
 *   - give the request to a backend (vserve_req_start(), later vserve_req_end());
 *   - have a worker carry it out (vserve_req_punt());
 *   - have the poller's thread carry it out after the round (vserve_req_hot());
 *   - set it aside, because the backend is full (vserve_req_aside());
 *   - finish it (vserve_req_finish());
 *   - keep it until flush(), to submit it together with its neighbours.
 *
 *   Once submit() has returned, the request may be over.
 * - flush() ends a batch: it gives away the requests that submit() has kept.
 * - If a request was set aside, the poller submits it again in later rounds, and
 *   leaves it to a worker if that does not help.
 * - work() runs in a worker, and ends with vserve_req_end(), at once or later.  For a
 *   request that mostly does not sleep (vserve_req_hot()) it runs in the poller's
 *   thread, and req->hot is set.  If it sleeps there after all, or takes long, another
 *   thread goes on with the rings (drivers/vhost/poll/crew.c).  It can still call
 *   vserve_req_again() to have a worker do the request from the start.
 * - release() lets go of the guest's memory that the request holds.  If it would sleep
 *   or take long, it returns false, and a worker calls it with may_sleep.  That worker may
 *   hold no lock, so release() must not touch counters.
 * - finish() writes the part of the answer that is not data: the status, for a disk.
 *   For a file there is none, because vhost_fs has copied the reply before.  finish() also
 *   counts the request, lets go of all the rest, and returns the used length.
 *
 * Locking
 *
 * - vhost_dev.mutex serialises ioctls.  It protects what is served, the vrings' pollers,
 *   start and stop.
 * - vhost_virtqueue.mutex protects all of a running vring except its list of
 *   completions: the ring's indices, requests and their states, lists, counters
 *   (which any task may read), and the device's own fields of the vring.  The poller
 *   never waits for it, but only tries it.  While a worker or an ioctl holds it, the
 *   poller serves other vrings.
 * - vring->done is lock-free: vserve_req_end() pushes to it, and the holder of the
 *   vring's mutex takes from it.  A request that was pushed belongs to the taker.
 * - vring->reaped is such a list for completions within the poller's own round.  Only
 *   the poller uses it, so it needs no atomics.
 * - vring->hot belongs to the thread that polls the vring, in a round (with the mutex)
 *   and after it (without).  Once no thread polls the vring any more, it belongs to the
 *   drain.
 * - work() owns its request, and runs without the mutex.  release() with may_sleep owns
 *   it, too, and may run without the mutex.
 *
 * Sleeping
 *
 * The poller must not sleep in a round, because it serves other rings, too.  It runs the
 * round with page faults disabled, and takes no lock that sleeps.  take(), submit(),
 * flush(), reap() and finish() run like that unless may_sleep is set, and always with the
 * vring's mutex held and the owner's mm in use.  copy_from_user() and copy_to_user() work
 * there if the page is in memory.
 *
 * If that is not enough, a worker of the vring repeats the round with page faults allowed
 * (may_sleep), and the poller leaves the vring alone meanwhile.  This worker may sleep for
 * page faults and for memory, but not for a backend, because it holds the vring's mutex.
 * work() may sleep for anything.  With VSERVE_WORK_MM it has the owner's mm in use.
 *
 * Lifetime
 *
 * A started vring holds its owner's mm (mm_users), so that vhost_serve can give requests
 * back even if the owner is killed.  release() of the device's file drains the vrings, and
 * then drops the mm.  If a backend does not answer and the owner is gone, a work of
 * vhost_serve waits for the backend in the place of release(), and holds the device's
 * module.
 *
 * Requests are slots of an array, indexed by head.  The start of a vring allocates them,
 * zeroed, and they are freed after stop().  Between two requests a slot keeps the values
 * that the device left in it.
 *
 * vserve_req_end() may be about to wake the poller while the slot of its request already
 * has the next one.  So it wakes the poller under rcu_read_lock(), and vhost_serve calls
 * synchronize_rcu() before it frees the device.
 *
 * The iovecs of a chain are valid within take(), and in the poller's round also within the
 * submit() that follows at once.  The next chain uses the same ones.
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

/* How many descriptors a chain may have, with its table, as in QEMU (VIRTQUEUE_MAX_SIZE). */
#define VSERVE_MAX_CHAIN	1024
/* A vring's weight by default.  The bytes and descriptors of a round go by weight, too. */
#define VSERVE_WEIGHT		100
/* The poller_cpu of a vring without a poller. */
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
 * @last: the last address of the region
 * @room: how many addresses of the region come before @last
 * @shift: added to an address of the guest, it makes the address in the owner's memory
 */
struct vserve_region {
	u64 last;
	u64 room;
	u64 shift;
};

/*
 * struct vserve_chain - a chain that was read
 * @iov: @out buffers that the device reads, then @in buffers that it writes, in the
 *	owner's address space.  Either number may be 0.  A buffer that lies in several
 *	regions of memory has several elements here, and an empty one has none
 * @out_len: @in_len: the bytes of these buffers
 */
struct vserve_chain {
	const struct iovec *iov;
	unsigned int out;
	unsigned int in;
	size_t out_len;
	size_t in_len;
};

/* Where a request is. */
enum vserve_state {
	VSERVE_FREE,		/* in the ring, or not offered: the slot has no request */
	VSERVE_TAKEN,		/* on its way to a backend, in this round */
	VSERVE_PENDING,		/* on vring->pending */
	VSERVE_INFLIGHT,	/* a backend, a worker or the poller's thread has it */
	VSERVE_FINISHED,	/* on vring->finished */
};

/* A round writes at most this many answers to the used ring at once. */
#define VSERVE_USED_BATCH	64U

/* Errors of a guest, for the tracepoint. */
enum vserve_malformed {
	VSERVE_BAD_CHAIN,	/* the chain cannot be read */
	VSERVE_NO_STATUS,	/* the chain has no place for an answer */
	VSERVE_HEAD_TWICE,	/* the head was offered again while it is in flight */
	VSERVE_NO_USED_RING,	/* the used ring cannot be written */
};

/* vserve_ops.flags: work() has the owner's mm in use. */
#define VSERVE_WORK_MM		BIT(0)
/* Another owner can go on with the device, because the device uses nothing of its owner's. */
#define VSERVE_KEEPS		BIT(1)
/* submit() gives I/O to block devices, so each round that takes requests has a plug around it. */
#define VSERVE_PLUG		BIT(2)

/**
 * struct vserve_ops - the operations of a device
 * @owner: the device's module
 * @name: the name of the device and of its workqueues
 * @dev_size: the size of the device's own structure, which begins with struct vserve_dev
 * @vring_size: likewise for struct vserve_vring
 * @req_size: likewise for struct vserve_req
 * @max_workers: how many threads one device has, and how many of its requests workers carry out at
 *	a time.  New threads do not wait for this limit, so while the device gets its threads,
 *	up to 2 * @max_workers - 1 requests are in work() for a while
 * @flags: VSERVE_WORK_MM, VSERVE_KEEPS, VSERVE_PLUG
 * @tolerated: features that the owner may set even if the device does not offer them
 *
 * Operations of the device.  They run with its mutex (vdev.mutex) held, except for
 * @ioctl_unlocked, or while no other task has the device:
 * @open: optional: set up a device that was opened; all but @base is zero
 * @free: optional: undo @open; all else is gone, and a grace period has passed
 * @features: return the features that can be negotiated, without those of the ring itself
 * @ioctl: carry out an ioctl of the device's own range; @cmd comes without its size
 *	(IOCSIZE_MASK).  It checks the owner itself (vhost_dev_check_owner()), and returns
 *	-ENOTTY for an unknown number
 * @ioctl_unlocked: optional: carry out an ioctl of that range that takes no mutex; it returns
 *	-ENOIOCTLCMD for all others
 * @set_table: optional: carry out VHOST_SET_MEM_TABLE, and call vserve_set_table() for it;
 *	vrings may run
 * @forget: optional: drop all that belongs to the owner, which goes; all vrings are stopped
 *	and have no poller
 *
 * Operations of a vring, with the device's mutex held, and the vring's not:
 * @init_vring: optional: set up a new vring, which is zero, and stays until the file is closed
 * @check_target: optional: return 0 if this poller may serve the vring with this target.
 *	Without this operation, only VHOST_SERVE_TARGET_AUTO is allowed
 * @start: optional: prepare the start of the vring, which holds its owner's mm
 * @quiesce: optional: the vring stops (vring->stopping is set): end requests that wait for
 *	something that may never come
 * @stop: optional: undo @start; nothing is in flight any more.  If the vring had slots, they
 *	are still there (vring->reqs)
 *
 * Operations of requests, see the head of this file; with the vring's mutex held unless it
 * says otherwise:
 * @take: set up the slot, and req->bytes, which counts for the limits of the round.  If take()
 *	fails, it undoes all that it did.  After an error without @may_sleep the poller puts the
 *	chain back, and a worker takes it again.  After an error with @may_sleep the guest gets
 *	the chain back with length 0, and it counts as malformed.  If take() returns -EBUSY, it
 *	has set vring->full, and the chain waits in the ring until that is false
 * @submit: see above.  A request from vring->pending has the state VSERVE_PENDING: the size of
 *	the backend may have changed since take()
 * @flush: optional: end a batch, see above
 * @reap: optional: ask a backend for completions of requests that are polled
 * @punt: optional: prepare a request for work(), in which it goes alone; @again: the device has
 *	called vserve_req_again().  Not called after vserve_req_resume()
 * @work: carry out a request, in a worker, or in the poller's thread after its round
 *	(req->hot); the mutex is not held
 * @release: optional: see above; @status of the request is set.  With @may_sleep the mutex may
 *	not be held
 * @finish: see above.  If it fails without @may_sleep, the worker calls it again.  If it fails
 *	with @may_sleep, there is no place for an answer: the request is over, and the ring is
 *	broken.  In that case it lets go of everything, too.  Not called again once it has
 *	succeeded
 * @bad_chain: in the vring's worker: the chain of @head cannot be read.  If bad_chain() returns
 *	0, it has told the guest of that, or need not, and the guest gets the head back with
 *	length 0.  If it returns an error, the ring is broken
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
 * vserve_req_end() writes only to the first cache line.  So a completion on another
 * CPU takes only that line of the structure from the poller.
 *
 * The device may set @next, @timed and @hold from take() on, @status likewise (as
 * vserve_req_end() does), and @bytes in take().  It only reads the other fields.
 *
 * @done: on vring->done, reaped or finished
 * @next: for the device: links requests that share a command
 * @node: on vring->pending, inflight or polled
 * @state: enum vserve_state
 * @status: how the device ended the request; only the device knows the meaning
 * @polled: the backend does not tell when the request is done, so reap() asks
 * @timed: the time of the request is used to predict the next ones
 * @hot: the poller's thread carries the request out; set by vserve_req_hot()
 * @hold: for the device: how the request holds the guest's memory
 * @len: the used length, after finish()
 * @bytes: how many bytes the request moves
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
 * @window_ns: when the window began, in which an interrupt is held back; 0: no window
 * @event_ns: when a request last came in or was answered in the window
 * @took_ns: how long the guest takes for an interrupt; 0: not known
 * @asked_ns: when the interrupt that is being measured was sent; 0: none is measured
 * @asked_idx: the used index at @asked_ns
 * @skip: how many of the next interrupts are not held back
 * @sent: counts interrupts, except while one is being measured; one in 16 is measured
 * @misses: how many windows in a row saw no event
 * @paid: a request came in, or was answered, in this window
 * @due: the guest has not been told of some answers
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
 * Fields with the same writer share cache lines.  So a completion on another CPU takes one line
 * from the poller, and a kick takes a line that the poller does not need.
 *
 * Ioctls write these fields, and all tasks read them:
 * @poller: set by VHOST_SERVE_SET_VRING, under the device's mutex
 * @poller_cpu: the poller's CPU, for tasks that read counters, because they do not take that mutex
 * @target: set by VHOST_SERVE_SET_VRING
 * @mm: the owner's mm; held while the vring runs
 *
 * The holder of the vring's mutex writes these fields.  That is the poller nearly always:
 * @running: the poller and the worker may take requests
 * @broken: the ring makes no sense, and vhost_serve takes nothing from it until it is restarted
 * @with_worker: the worker serves this vring now
 * @full: set by the device, so that vhost_serve takes nothing.  Either a request is in flight
 *	whose finish() clears it, or the device clears it with the mutex held, and wakes the
 *	poller afterwards
 * @reqs: the slots, @nr_reqs of them; see vserve_slot()
 * @nr_inflight: requests with the state VSERVE_INFLIGHT
 * @nr_in_workers: of @nr_inflight, those that workers or the poller's thread have
 * @nr_polled: of @nr_inflight, those that reap() asks for; they are on @polled, and not
 *	on @inflight
 * @round_descs: descriptors read in this round
 * @regions: two regions of the table of memory @regions_of, the one that was looked up last first,
 *	or the same one twice.  The poller uses them only while vq.umem is @regions_of.  A later
 *	table may lie where the old one was, so vserve_set_table() clears @regions_of before it
 *	sets another one, and so does the start of a vring
 * @to_come: requests that this round may still take
 * @now: when this round began, ktime_get_ns()
 * @heads: answers on their way to the used ring.  They are not on the stack, because the compiler
 *	would zero all of them each time there (CONFIG_INIT_STACK_ALL_ZERO)
 * @reaped: requests that were completed within the poller's rounds
 * @finished: @finished_last: requests that are ready for the used ring, linked by req->done
 * @backlog: requests that were taken from @reaped or @done, and wait for later rounds, because
 *	each round has a budget
 * @calls: when to interrupt the guest
 * @hot: @hot_last: requests for the poller's thread to carry out, linked by req->next
 * @hot_punted: how many of these went to workers after all; has the same writer as @hot
 * @reaper: the task that is in a round now.  It looks at @done without being woken, and puts its
 *	own completions on @reaped
 *
 * vserve_req_end() looks at these fields:
 * @done: any context pushes requests to it, and the holder of the mutex takes them
 * @stopping: a stop is under way, and the drain waits for @done.  Set from the begin of the stop
 *	to its end, which may be in a later ioctl
 * @drained: nothing is in flight any more
 * @overdue: a stop has reached its limit already; under the device's mutex
 * @goes_on: the drain is to end, because VHOST_SERVE_GO_ON takes the stop back
 *
 * Kicks write the fields after these.
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
 * @vdev: its nvqs is the number of @vrings, which only grows until the file is closed
 * @features: the features that were negotiated; new vrings get them
 * @copies: the poller's CPU moves the data, and not a disk; set by ops->start()
 * @nr_running: vrings that are running or stopping; under the device's mutex
 * @round_bytes: how many bytes a vring of weight VSERVE_WEIGHT may move in a round
 * @css: @memcg: the owner's cgroups, to which the kernel charges block I/O and the memory of
 *	requests
 * @in_cgroup: @css is not that of the root cgroup, which has no limits
 * @workers: threads in the owner's cgroups that carry out requests; NULL without an owner
 * @wq: carries out the requests that @workers leave to it, see drivers/vhost/serve/workers.c
 * @end_wq: carries out requests after vserve_req_resume().  The threads of @workers may all wait
 *	for a lock or a count that such a request gives back, so it must not wait for one of
 *	them
 * @ring_wq: the workers of vrings.  They wait for page faults, which the owner may have to serve.
 *	So each device has its own, and no device waits for the owner of another one
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

/* Returns the slot of @head, which is less than vring->nr_reqs. */
static inline struct vserve_req *vserve_slot(const struct vserve_vring *vring,
					     unsigned int head)
{
	return vring->reqs + head * vring->ops->req_size;
}

/*
 * From here to vserve_charge_end() the kernel charges the block I/O and the accounted memory of
 * this kthread to the owner.
 */
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
 * vserve_alloc_quick - allocate memory for a request in a round of the poller
 * @dev: the device, whose owner's cgroup is charged
 * @size: in bytes
 *
 * Return: the memory, or NULL if the allocation would sleep or exceed the limit of the owner's
 * cgroup.  The caller then has a worker try again.
 */
static inline void *vserve_alloc_quick(struct vserve_dev *dev, size_t size)
{
	struct mem_cgroup *before = set_active_memcg(dev->memcg);
	void *memory = kmalloc(size, GFP_NOWAIT | __GFP_ACCOUNT | __GFP_NOWARN);

	set_active_memcg(before);
	return memory;
}

/**
 * vserve_req_start - note that a request goes to a backend
 * @req: the request, on no list; the vring's mutex is held
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
 * vserve_req_unstart - undo vserve_req_start(), because the backend did not take the request
 * @req: the request; the vring's mutex has been held since vserve_req_start()
 */
static inline void vserve_req_unstart(struct vserve_req *req)
{
	list_del(&req->node);
	req->vring->nr_inflight--;
	req->state = VSERVE_TAKEN;
}

/**
 * vserve_req_polled - have reap() ask the backend whether a request is done
 * @req: the request, after vserve_req_start(), and before the backend can end it
 */
static inline void vserve_req_polled(struct vserve_req *req)
{
	req->polled = true;
	req->vring->nr_polled++;
	list_move_tail(&req->node, &req->vring->polled);
}

/**
 * vserve_req_unpolled - undo vserve_req_polled()
 * @req: the request, which may not be polled; the vring's mutex is held
 */
static inline void vserve_req_unpolled(struct vserve_req *req)
{
	if (!req->polled)
		return;
	req->polled = false;
	req->vring->nr_polled--;
}

/**
 * vserve_req_aside - have the poller submit a request again later, because the backend is full
 * @req: the request, on no list; the vring's mutex is held
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

/* complete.c: errors of a guest */
void vserve_malformed(struct vserve_vring *vring, enum vserve_malformed why);
void vserve_break(struct vserve_vring *vring);

/* chain.c */
void __user *vserve_last_byte(struct vserve_vring *vring, unsigned int head);

/* dev.c: operations of the device's file, and helpers for its ioctls */
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
