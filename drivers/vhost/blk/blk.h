/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vhost_blk: virtio-blk served by the host kernel.
 *
 * The data path, in the order of the files: take.c (ring -> chain.c ->
 * parse.c -> memory.c) -> merge.c -> engine_*.c -> complete.c (-> used ring).  round.c
 * calls them, vring.c is the life cycle of a vring; backend.c chooses what is
 * served, bind.c swaps it; main.c is the character device.
 *
 * Who may touch what
 *
 * - vhost_dev.mutex: ioctls, one at a time: backends, pin tables, pollers,
 *   start and stop.
 * - vhost_virtqueue.mutex: everything of a running vring but its list of
 *   completions: the ring's indices, requests and their states, lists,
 *   counters (read by all), the current binding.  The poller only ever tries
 *   it; whoever else holds it (a worker, an ioctl) makes the poller look
 *   elsewhere.
 * - vring->done is lock-free: end_io pushes, whoever holds the vring's mutex
 *   takes.  A request that was pushed belongs to the taker: end_io must not
 *   touch it any more.
 * - vring->reaped is that list for completions within the poller's own round,
 *   which needs no atomics for it.  It is empty when the round has ended.
 *
 * Who may sleep
 *
 * The poller must not.  A round in it runs with page faults disabled and
 * takes no lock that sleeps.  What cannot be done so is handed over, either
 * the vring (vring->work repeats the round with faults allowed, the poller
 * leaves the vring alone meanwhile), or a single request (request->work calls
 * the engine's blocking side).
 *
 * Lifetime
 *
 * A started vring holds its owner's mm (mm_users), so that what was taken
 * from the ring is given back even if the owner is killed: release() of the
 * file drains, then lets the mm go.  Requests are slots of an array indexed
 * by head, allocated at start, freed when the vring is drained.  end_io may
 * still be about to wake the poller when its request is already reused;
 * rcu_read_lock() around that, and synchronize_rcu() before the device or a
 * poller goes, close the gap.
 */
#ifndef _VHOST_BLK_H
#define _VHOST_BLK_H

#include <linux/blk-cgroup.h>
#include <linux/blk-mq.h>
#include <linux/bvec.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/kthread.h>
#include <linux/llist.h>
#include <linux/sched/mm.h>
#include <linux/vhost_poll.h>
#include <linux/workqueue.h>
#include <uapi/linux/vhost_blk.h>

#include "vhost.h"
#include "parse.h"

#define VBLK_INLINE_BVECS	8
#define VBLK_MAX_SEGS		254		/* 256 with header and status */
#define VBLK_MAX_SEG_BYTES	(64 * 1024)
#define VBLK_MAX_BYTES		(VBLK_MAX_SEGS * VBLK_MAX_SEG_BYTES)
/*
 * A driver that has not accepted SIZE_MAX and SEG_MAX may send more: firmware
 * reads a whole initrd at once.  While one of these is in flight nothing else
 * is taken from its vring.
 */
#define VBLK_LARGE_BYTES	(128 * 1024 * 1024)
#define VBLK_ROUND_BYTES	(4 * 1024 * 1024)
/* As in QEMU (VIRTQUEUE_MAX_SIZE); more than any request we offer needs. */
#define VBLK_MAX_CHAIN		1024
/* Empty descriptors are no bytes, and take as long to read as others. */
#define VBLK_ROUND_DESCS	(4 * VBLK_MAX_CHAIN)
#define VBLK_WEIGHT		100		/* of a vring by default; what the above are for */
#define VBLK_MAX_MERGE		32
/*
 * Discards and write-zeroes of a vring that workers have.  Each may take its time,
 * and all have to end before the vring can be stopped.  With so many, nothing is
 * taken, reads and writes neither.
 */
#define VBLK_MAX_RANGING	64
/*
 * Pages that requests of a vring hold, as often as they hold them: with more than
 * this, nothing is taken.  So many, by VHOST_BLK_MAX_VRINGS, are a thousandth of what
 * the counter of one page can bear, if a guest offers one page again and again to one
 * device.  A pin is 1,024 references there, so it counts more, and twenty devices are
 * as many as it can bear.
 */
#define VBLK_MAX_HELD		16384
#define VBLK_PIN_HOLDS		32
/* Bounce buffers of a vring: with more than this, nothing is taken. */
#define VBLK_BOUNCE_BYTES	(16 * 1024 * 1024)
/* How long a full backend is asked again before a worker queues for it. */
#define VBLK_PENDING_IDLE_NS	(10 * NSEC_PER_MSEC)
#define VBLK_PENDING_NS		NSEC_PER_SEC
/* How often, while the poller has nothing else to do. */
#define VBLK_RETRY_NS		NSEC_PER_MSEC
#define VBLK_PAGE_BATCH		64
/* Where the poller's is, while there is none. */
#define VBLK_NO_CPU		(~0U)

struct vblk_backend;
struct vblk_req;
struct vblk_vring;
struct vblk_dev;

/*
 * struct vblk_engine - one way of giving requests to a backend
 * @submit: gives a read or write, with what was merged into it, to the
 *	backend without sleeping.  -EAGAIN: not now, ask again; -EBUSY: only
 *	@submit_wait can do it; -EIO or -ENODEV: it failed.
 * @submit_wait: the same for a single request, may sleep; the request ends
 *	by vblk_req_end()
 * @flush: from a worker: what the backend answered is on its medium after
 * @discard: from a worker, one range
 * @write_zeroes: likewise
 */
struct vblk_engine {
	int (*submit)(struct vblk_req *req);
	void (*submit_wait)(struct vblk_req *req);
	int (*flush)(struct vblk_backend *be);
	int (*discard)(struct vblk_req *req, const struct vblk_range *range);
	int (*write_zeroes)(struct vblk_req *req,
			    const struct vblk_range *range);
};

extern const struct vblk_engine vblk_engine_mq;
extern const struct vblk_engine vblk_engine_bio;
extern const struct vblk_engine vblk_engine_file;

/*
 * struct vblk_backend - what a device serves
 * @bdev: NULL for a regular file
 * @nowait: the backend can be submitted to without sleeping
 * @polled: it has poll queues and they are to be used
 * @read_queues: it has queues for reads alone
 * @used: a vring was bound to it
 * @binds: how many bindings there are, see bind.c
 * @replaced: in vblk_dev.replaced
 */
struct vblk_backend {
	struct kref ref;
	struct file *file;
	struct block_device *bdev;
	const struct vblk_engine *engine;
	u32 engine_id;
	u32 flags;
	bool read_only;
	bool nowait;
	bool polled;
	bool read_queues;
	bool used;
	atomic_t binds;
	struct list_head replaced;
	u8 serial[VHOST_BLK_SERIAL_LEN];
};

/* Pages of the whole memory table, by address in the owner. */
struct vblk_pin_region {
	unsigned long start;
	unsigned long nr_pages;
	struct page **pages;
};

struct vblk_pins {
	struct kref ref;
	struct mm_struct *mm;
	unsigned long accounted;
	unsigned int nr_regions;
	struct vblk_pin_region regions[];
};

/*
 * What the requests of one vring hold of the device: a backend, what it allows
 * and a pin table.  @users are the vring and its requests, counted without
 * atomics, as both ends of a request are under the vring's mutex.  Replaced as a
 * whole; the old one goes with its last request.
 */
struct vblk_bind {
	struct vblk_backend *backend;
	struct vblk_pins *pins;
	struct vblk_limits limits;
	unsigned int users;
	struct vblk_dev *dev;
	struct work_struct free_work;
};

/* What a guest did wrong; for the tracepoint. */
enum vblk_malformed {
	VBLK_BAD_CHAIN,		/* it cannot be read */
	VBLK_NO_STATUS,		/* there is nowhere to put one */
	VBLK_HEAD_TWICE,	/* offered again while it is in flight */
	VBLK_NO_USED_RING,	/* it cannot be written */
};

/* How the pages of a request are held. */
enum vblk_hold {
	VBLK_HOLD_NONE,
	VBLK_HOLD_GET,		/* page references: shared memory only */
	VBLK_HOLD_PIN,		/* FOLL_PIN */
	VBLK_HOLD_TABLE,	/* the pin table has them */
};

/* A request is in the ring, taken, or finished; see vblk_req_* */
enum vblk_state {
	VBLK_FREE,
	VBLK_TAKEN,		/* on its way to an engine, in this round */
	VBLK_PENDING,		/* on vring->pending */
	VBLK_INFLIGHT,		/* backend or worker has it */
	VBLK_FINISHED,		/* on vring->finished */
};

/*
 * struct vblk_req - one request, the slot of its head
 *
 * What vblk_req_end() writes is in the first line: of what is ours a completion on
 * another CPU takes that one from the poller and no other.
 *
 * @done: on vring->done or vring->reaped
 * @next: merged into the same command, the leader first
 * @node: on vring->pending, inflight or finished
 * @tail: of a leader: the last one
 * @in_bytes: room for data that the device writes
 * @held: what it adds to vring->held
 * @cmd_bytes: @cmd_segs: of a leader: the whole command
 * @bvec: @nr_bvec: what the backend sees
 * @guest: @nr_guest: the guest's pages where @bvec is a bounce buffer
 * @aside_ns: since when the backend has had no room for it
 * @hctx: of a polled leader, to ask for its completion
 * @iocb_users: who still looks at @iocb: its submitter, its completion
 * @iocb_res: what its completion said
 */
struct vblk_req {
	struct llist_node done;
	struct vblk_vring *vring;
	struct vblk_req *next;
	u64 done_ns;
	u64 submit_ns;
	struct list_head node;
	u8 state;
	u8 status;
	u8 hold;
	bool polled;
	bool fua;
	bool again;
	bool released;
	bool in_worker;

	struct vblk_bind *bind;
	struct vblk_req *tail;
	u64 sector;
	u64 taken_ns;
	u64 aside_ns;
	void __user *status_addr;
	u32 type;
	u32 bytes;
	u32 in_bytes;
	u32 cmd_bytes;
	u32 hctx;
	u16 cmd_segs;
	u16 cmd_reqs;
	u16 head;
	u16 nr_segs;
	u16 nr_ranges;
	u32 held;
	u32 nr_bvec;
	u32 nr_guest;
	u32 max_bvec;
	struct bio_vec *bvec;
	struct bio_vec *guest;
	struct bio_vec *big_bvec;
	struct vblk_range *ranges;
	struct vblk_range range;
	struct work_struct work;
	atomic_t iocb_users;
	long iocb_res;
	union {
		struct bio bio;
		struct kiocb iocb;
	};
	struct bio_vec inline_bvec[VBLK_INLINE_BVECS];
} ____cacheline_aligned_in_smp;

#ifdef CONFIG_SMP
static_assert(offsetof(struct vblk_req, done) == 0);
static_assert(offsetofend(struct vblk_req, again) <= SMP_CACHE_BYTES);
#endif

struct vblk_counters {
	u64 reads;
	u64 writes;
	u64 flushes;
	u64 discards;
	u64 write_zeroes;
	u64 get_ids;
	u64 unsupp;
	u64 errors;
	u64 malformed;
	u64 read_bytes;
	u64 write_bytes;
	u64 merged;
	u64 commands;
	u64 punted;
	u64 calls;
	u64 latency[VHOST_BLK_HIST_BUCKETS];
};

/*
 * struct vblk_vring - a virtqueue and its requests
 *
 * In lines by who writes them, so that a completion on another CPU takes one
 * line from the poller, and a kick another one that the poller does not need.
 *
 * Written by ioctls, read by all:
 * @poller: set by VHOST_BLK_SET_VRING, under the device's mutex
 * @poller_cpu: its CPU, for who reads counters without that mutex
 * @next_bind: while backend or pins are replaced, under the device's mutex
 *
 * Written by whoever holds the mutex, which is the poller nearly always:
 * @running: requests may be taken
 * @broken: the ring makes no sense; nothing is taken until it is restarted
 * @with_worker: the worker serves this vring now
 * @pin: references to pages of guest memory do not do, see memory.c
 * @leader: command being put together in this round
 * @large: the one request of more than VBLK_MAX_BYTES; @large_bvec is its vector
 * @nr_in_workers: of @nr_inflight, those that workers have
 * @nr_ranging: of those, discards and write-zeroes
 * @held: see VBLK_MAX_HELD
 * @round_descs: descriptors read in this round
 * @to_come: requests that this round may still take
 * @reaped: completed by this round itself
 * @chosen: where requests of a type go in the round that began at @round
 * @reaper: who is in a round now: takes @done without being woken, and its own
 *	completions by @reaped.  Only tasks ask, and few but the poller do.
 * @bounced: bytes of bounce buffers; workers add to it
 *
 * Where end_io looks:
 * @done: pushed by end_io, taken by whoever holds the mutex
 * @stopping: @drain waits for @done
 *
 * Written by kicks: what comes after.
 */
struct vblk_vring {
	struct vhost_virtqueue vq;
	struct vblk_dev *dev;
	unsigned int index;
	struct vhost_poller *poller;
	u32 poller_cpu;
	u32 hctx_wanted;
	struct mm_struct *mm;
	struct vblk_bind *next_bind;
	struct vhost_poll_source src;

	bool running ____cacheline_aligned_in_smp;
	bool broken;
	bool with_worker;
	bool pin;
	u32 hctx_used;
	struct vblk_bind *bind;
	struct vblk_req *reqs;
	unsigned int nr_reqs;
	unsigned int nr_inflight;
	unsigned int nr_in_workers;
	unsigned int nr_ranging;
	unsigned int nr_polled;
	unsigned int held;
	unsigned int round_descs;
	unsigned int to_come;
	struct list_head pending;
	struct list_head inflight;
	struct list_head finished;
	u64 now;
	struct task_struct *reaper;
	struct llist_head reaped;
	struct {
		u64 round;
		u32 type;
		u32 hctx;
	} chosen;
	struct vblk_req *leader;
	struct vblk_req *large;
	struct bio_vec *large_bvec;
	unsigned int max_large_bvec;
	struct vblk_counters stats;
	struct page *pages[VBLK_PAGE_BATCH];
	atomic_t bounced;

	struct llist_head done ____cacheline_aligned_in_smp;
	bool stopping;

	atomic64_t kicks ____cacheline_aligned_in_smp;
	wait_queue_head_t drain;
	struct work_struct work;
	struct work_struct stop_work;
};

#define VBLK_LINE_OF(member)						\
	(offsetof(struct vblk_vring, member) / SMP_CACHE_BYTES)
#ifdef CONFIG_SMP
static_assert(VBLK_LINE_OF(done) == VBLK_LINE_OF(stopping));
static_assert(VBLK_LINE_OF(done) > VBLK_LINE_OF(bounced));
static_assert(VBLK_LINE_OF(done) > VBLK_LINE_OF(reaper));
static_assert(VBLK_LINE_OF(kicks) > VBLK_LINE_OF(stopping));
static_assert(VBLK_LINE_OF(running) > VBLK_LINE_OF(src.node));
static_assert(VBLK_LINE_OF(src.inflight) > VBLK_LINE_OF(src.poller));
#endif

/*
 * struct vblk_dev - an open /dev/vhost-blk
 * @vdev: its nvqs is how many of @vrings there are; it and they only grow, until
 *	the file is closed
 * @features: negotiated; for vrings to come
 * @replaced: backends that were, and are not flushed; see bind.c
 * @flush_failed: one of them could not be; the guest's next flush says so
 * @flush_owed: one of the two; read without the lock
 * @engine_id: of @backend, for who reads counters without the mutex
 * @css: @memcg: the owner's, for block I/O and memory of workers
 * @in_cgroup: @css is not that of the root, which has no limits
 * @wq: workers of requests
 * @ring_wq: workers of vrings.  They wait for page faults, which may be for
 *	the owner to serve: so they are nobody else's.
 */
struct vblk_dev {
	struct vhost_dev vdev;
	struct vhost_virtqueue *vqs[VHOST_BLK_MAX_VRINGS];
	struct vblk_vring *vrings[VHOST_BLK_MAX_VRINGS];
	struct vblk_backend *backend;
	struct vblk_pins *pins;
	struct mutex flush_lock;	/* replaced, flush_*, backend */
	struct list_head replaced;
	bool flush_failed;
	bool flush_owed;
	struct workqueue_struct *wq;
	struct workqueue_struct *ring_wq;
	u64 features;
	u32 engine_id;
	bool writeback;
	struct cgroup_subsys_state *css;
	struct mem_cgroup *memcg;
	bool in_cgroup;
	int id;
};

/*
 * Does a policy (io.max, io.latency, io.cost) look at bios of this queue?  Which
 * one, and what it wants from which cgroup, modules cannot see; but the policies
 * come to a queue when the first cgroup gets a limit there, so most have none.
 * (With bfq all have: it counts as one.)
 */
static inline bool vblk_has_limits(const struct vblk_dev *dev,
				   const struct request_queue *q)
{
#ifdef CONFIG_BLK_CGROUP
	return dev->in_cgroup && !bitmap_empty(q->blkcg_pols, BLKCG_MAX_POLS);
#else
	return false;
#endif
}

/* Between the two, block I/O and accounted memory of a kthread are the owner's. */
static inline struct mem_cgroup *vblk_charge_owner(struct vblk_dev *dev)
{
	kthread_associate_blkcg(dev->css);
	return set_active_memcg(dev->memcg);
}

static inline void vblk_charge_end(struct mem_cgroup *before)
{
	set_active_memcg(before);
	kthread_associate_blkcg(NULL);
}

/* round.c */
extern const struct vhost_poll_ops vblk_round_ops;
void vblk_handle_kick(struct vhost_work *work);
void vblk_publish(struct vblk_vring *vring);
void vblk_worker(struct work_struct *work);
void vblk_drain(struct work_struct *work);

/* vring.c */
void vblk_vring_init(struct vblk_vring *vring, struct vblk_dev *dev,
		     unsigned int index);
int vblk_vring_set(struct vblk_vring *vring, int poller_fd, u32 hctx,
		   u32 weight);
int vblk_vring_start(struct vblk_vring *vring);
void vblk_vring_stop(struct vblk_vring *vring);
void vblk_vring_drop_poller(struct vblk_vring *vring);

/* bind.c */
struct vblk_bind *vblk_bind_alloc(struct vblk_dev *dev);
void vblk_bind_use(struct vblk_vring *vring, struct vblk_bind *bind);
void vblk_bind_put(struct vblk_bind *bind);
int vblk_rebind_begin(struct vblk_dev *dev);
void vblk_rebind_end(struct vblk_dev *dev);
void vblk_rebind_cancel(struct vblk_dev *dev);
void vblk_replace_backend(struct vblk_dev *dev, struct vblk_backend *be);
void vblk_forget_replaced(struct vblk_dev *dev);
int vblk_flush(struct vblk_req *req);

/* chain.c */
int vblk_get_chain(struct vblk_vring *vring, unsigned int *out,
		   unsigned int *in);
void __user *vblk_find_status(struct vblk_vring *vring, unsigned int head);

/* take.c */
struct vblk_req *vblk_take(struct vblk_vring *vring, bool may_sleep, int *err);

/* complete.c */
void vblk_malformed(struct vblk_vring *vring, enum vblk_malformed why);
void vblk_break(struct vblk_vring *vring);
void vblk_req_start(struct vblk_req *req);
void vblk_req_end(struct vblk_req *req, u8 status);
void vblk_req_again(struct vblk_req *req);
void vblk_req_finish(struct vblk_req *req, u8 status);
void vblk_req_punt(struct vblk_req *req);
int vblk_complete(struct vblk_vring *vring, bool may_sleep);
int vblk_put_used(struct vblk_vring *vring, struct vring_used_elem *heads,
		  unsigned int count);

static inline bool vblk_is_write(const struct vblk_req *req)
{
	return req->type == VIRTIO_BLK_T_OUT;
}

/* Its tags, or its room, come back with what the engine has in flight. */
static inline bool vblk_engine_busy(const struct vblk_vring *vring)
{
	return vring->nr_inflight > vring->nr_in_workers;
}

/* What is in flight comes back first, and wakes the poller when it does. */
static inline bool vblk_full(const struct vblk_vring *vring)
{
	return vring->large || vring->held >= VBLK_MAX_HELD ||
	       vring->nr_ranging >= VBLK_MAX_RANGING ||
	       atomic_read(&vring->bounced) > VBLK_BOUNCE_BYTES;
}

static inline bool vblk_is_ranges(const struct vblk_req *req)
{
	return req->type == VIRTIO_BLK_T_DISCARD ||
	       req->type == VIRTIO_BLK_T_WRITE_ZEROES;
}

static inline bool vblk_is_rw(const struct vblk_req *req)
{
	return req->type == VIRTIO_BLK_T_OUT || req->type == VIRTIO_BLK_T_IN;
}

/* memory.c */
int vblk_map_data(struct vblk_req *req, struct vblk_span span, bool may_sleep);
bool vblk_unmap_data(struct vblk_req *req, bool may_sleep);

/* pins.c */
struct vblk_pins *vblk_pin_table(struct vhost_dev *vdev);
void vblk_pins_put(struct vblk_pins *pins);

/* merge.c */
void vblk_batch_add(struct vblk_vring *vring, struct vblk_req *req);
void vblk_batch_flush(struct vblk_vring *vring);
unsigned int vblk_count_segs(const struct queue_limits *lim,
			     const struct bio_vec *bvec, unsigned int nr);
bool vblk_fits(const struct vblk_req *req);
bool vblk_aligned(const struct vblk_req *req);

/* backend.c */
struct vblk_backend *vblk_backend_open(struct vblk_dev *dev,
				       const struct vhost_blk_backend *arg);
void vblk_backend_put(struct vblk_backend *backend);
void vblk_backend_info(struct vblk_backend *backend,
		       struct vhost_blk_info *info);
void vblk_backend_limits(struct vblk_backend *backend, u64 features,
			 struct vblk_limits *lim);
void vblk_backend_now(struct vblk_backend *backend, struct vblk_limits *lim);

/* engine_mq.c */
void vblk_mq_load(void);
void vblk_mq_unload(void);
bool vblk_mq_free_choice(void);
bool vblk_mq_blocks(struct block_device *bdev);
void vblk_mq_init(struct vblk_backend *backend);
int vblk_mq_check_hctx(struct vblk_vring *vring,
		       const struct vhost_poller *poller, u32 hctx);
void vblk_mq_counts(struct vblk_backend *backend, u32 *hctx, u32 *poll_hctx);
void vblk_mq_reap(struct vblk_vring *vring);

/* stats.c */
void vblk_count_done(struct vblk_req *req);
long vblk_get_stats(struct vblk_dev *dev, void __user *argp);

#endif
