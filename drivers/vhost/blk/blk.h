/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vhost_blk: virtio-blk served by the host kernel.  vhost_serve serves the rings, and
 * linux/vhost_serve.h has the rules for that.  This module parses a disk's requests, and passes
 * them to the disk or image file (the backend).
 *
 * The data path, in the order of the files: take.c (with parse.c and memory.c) -> merge.c ->
 * engine_*.c -> complete.c.  backend.c opens the backend, pins.c keeps guest memory pinned, and
 * main.c is the character device.
 */
#ifndef _VHOST_BLK_H
#define _VHOST_BLK_H

#include <linux/blk-mq.h>
#include <linux/bvec.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/mmu_notifier.h>
#include <linux/vhost_serve.h>
#include <uapi/linux/vhost_blk.h>

#include "parse.h"

#define VBLK_CACHE_FEATURES	(BIT_ULL(VIRTIO_BLK_F_FLUSH) |		\
				 BIT_ULL(VIRTIO_BLK_F_CONFIG_WCE))

#define VBLK_INLINE_BVECS	8
#define VBLK_MAX_SEGS		254		/* 256 with header and status */
#define VBLK_MAX_SEG_BYTES	(64 * 1024)
#define VBLK_MAX_BYTES		(VBLK_MAX_SEGS * VBLK_MAX_SEG_BYTES)
/*
 * How many bytes a request may have if its driver has not accepted SIZE_MAX and SEG_MAX: firmware
 * reads a whole initrd at once.  A request of more than VBLK_MAX_BYTES, or one that alone would
 * exceed VBLK_MAX_HELD, is large.  While it is in flight, its vring takes nothing else, and the
 * device takes no other large request: see vblk_begin_large().
 */
#define VBLK_LARGE_BYTES	(128 * 1024 * 1024)
#define VBLK_MAX_MERGE		32
/*
 * How many discards and write-zeroes of a vring may be with workers.  Each may take its time, and
 * all have to end before the vring can be stopped.  At this number the vring takes nothing more,
 * reads and writes neither.
 */
#define VBLK_MAX_RANGING	64
/*
 * How often the requests of a vring may hold pages.  The vring takes no request that would exceed
 * this number, unless it is a large one.
 *
 * A guest can offer one page again and again.  A page can have 2^31 references.  All
 * VHOST_SERVE_MAX_VRINGS vrings of a device together take no more than 64 * 16,384, and a large
 * request some 35,000 (128 MiB, and two pages more for each of 1,022 descriptors): a
 * two-thousandth.  A pin takes 1,024 references, so it counts as VBLK_PIN_HOLDS.  So a device has
 * 64 * 512 pins and those of a large request, which take a thirtieth, and it takes some thirty
 * devices of one owner to reach the end.
 */
#define VBLK_MAX_HELD		16384
#define VBLK_PIN_HOLDS		32
/*
 * How many elements of vectors (struct vblk_req.big_bvec) the slots of a vring keep from request to
 * request: 1 MiB in all, and no more than as much again.
 *
 * A slot keeps the vector of its largest request: 64 KiB after one of VBLK_MAX_BYTES, 512 KiB after
 * one of VBLK_LARGE_BYTES, and the guest chooses the slots.  Beyond the limit a request frees its
 * vector at its end if that is larger than the slot's share.  So small requests need not allocate
 * each time.
 */
#define VBLK_MAX_KEPT		65536
/* How many bytes of bounce buffers a vring may have.  With more than this it takes nothing. */
#define VBLK_BOUNCE_BYTES	(16 * 1024 * 1024)
#define VBLK_PAGE_BATCH		64
/*
 * The poller's thread submits requests up to this size even if the block layer has to split them.
 */
#define VBLK_HOT_BYTES		(1024 * 1024)
struct vblk_backend;
struct vblk_req;
struct vblk_vring;
struct vblk_dev;

/*
 * struct vblk_engine - a way to pass requests to a backend
 * @submit: passes a read or write, with all that was merged into it, to the backend without
 *	sleeping.  Returns -EAGAIN if the caller is to try again later, -EBUSY if only @submit_wait
 *	can pass it on, or another error if the request failed
 * @submit_wait: does so for a single request, and may sleep; vblk_req_end() ends the request
 * @is_hot: optional; called after @submit has returned -EBUSY.  Whether @submit_wait will mostly
 *	not sleep, so that the poller's thread may call it (req->base.hot)
 * @resume: ends a request, after the engine has set req->resumes and called vserve_req_resume();
 *	may sleep
 * @submit_flush: optional; begins a flush without sleeping.  vblk_req_end() or vserve_req_again()
 *	ends it.  Returns false if only @flush will do
 * @flush: flushes, in a worker: all that the backend has answered is then on its medium
 * @discard: discards one range, in a worker
 * @write_zeroes: writes zeroes to one range, in a worker
 */
struct vblk_engine {
	int (*submit)(struct vblk_req *req);
	void (*submit_wait)(struct vblk_req *req);
	bool (*is_hot)(const struct vblk_req *req);
	void (*resume)(struct vblk_req *req);
	bool (*submit_flush)(struct vblk_req *req);
	int (*flush)(struct vblk_backend *be);
	int (*discard)(struct vblk_req *req, const struct vblk_range *range);
	int (*write_zeroes)(struct vblk_req *req,
			    const struct vblk_range *range);
};

extern const struct vblk_engine vblk_engine_mq;
extern const struct vblk_engine vblk_engine_bio;
extern const struct vblk_engine vblk_engine_file;

/* engine_bio.c; the mq engine uses these, too */
void vblk_bio_submit_wait(struct vblk_req *req);
bool vblk_bio_is_hot(const struct vblk_req *req);
bool vblk_bio_submit_flush(struct vblk_req *req);
int vblk_bio_flush(struct vblk_backend *be);
int vblk_bio_discard(struct vblk_req *req, const struct vblk_range *range);
int vblk_bio_write_zeroes(struct vblk_req *req, const struct vblk_range *range);

/*
 * struct vblk_backend - the disk or file that a device serves
 * @owners: the owner's open file, which is kept for what belongs to it: locks, and the exclusive
 *	claim on a disk
 * @file: the open file that engines use.  The file engine's is the backend's own, so its flags do
 *	not change
 * @bdev: the disk; NULL for a regular file
 * @nowait: a thread can submit to it without sleeping
 * @polled: it has poll queues, and they are to be used
 * @read_queues: it has queues for reads alone
 * @any_sector: requests may have any sectors, because the page cache serves those that do not
 *	consist of whole blocks of @direct_block
 * @direct_block: with O_DIRECT, positions and lengths of direct I/O are multiples of this
 * @direct_mem_mask: with O_DIRECT, addresses in memory are multiples of this plus one
 */
struct vblk_backend {
	struct kref ref;
	struct file *owners;
	struct file *file;
	struct block_device *bdev;
	const struct vblk_engine *engine;
	u32 engine_id;
	u32 flags;
	bool read_only;
	bool nowait;
	bool polled;
	bool read_queues;
	bool any_sector;
	unsigned int direct_block;
	unsigned int direct_mem_mask;
	u8 serial[VHOST_BLK_SERIAL_LEN];
};

/*
 * An entry of a pin table is a page with one of these bits, or with neither.  The page of an entry
 * with neither was unmapped, and waits for the worker.  See pins.c.
 */
#define VBLK_PIN_TRUSTED	BIT(0)
#define VBLK_PIN_OLD		BIT(1)
/* The worker looks at this many entries together. */
#define VBLK_PIN_CHUNK		512

/*
 * struct vblk_pin_region - the pages of one region of the memory table
 * @start: its address in the owner's memory
 * @entries: one for each page; 0: not pinned
 * @hit: a bit for each chunk of entries: one of them has lost its trust
 * @old: a bit for each chunk: the worker waits to unpin one of them; only the worker uses these
 *	bits
 * @wanted: a bit for each chunk: a request has missed one of them
 * @followed: @notifier is registered
 */
struct vblk_pin_region {
	struct mmu_interval_notifier notifier;
	struct vblk_pins *pins;
	unsigned long start;
	unsigned long nr_pages;
	unsigned long *entries;
	unsigned long *hit;
	unsigned long *old;
	unsigned long *wanted;
	bool followed;
};

/*
 * struct vblk_pins - a pin table
 * @dev: the device whose requests use the table; it outlives the table
 * @mm: the owner's memory
 * @accounted: how many pages count as locked, whether they are pinned at the moment or not
 * @batch: pages on their way into the table or out of it
 * @cutoff: only requests that were taken up to this time may use entries with VBLK_PIN_OLD
 * @waiting: the worker waits for these requests
 * @link: on vblk_dev.replaced, if the table was replaced
 */
struct vblk_pins {
	struct vblk_dev *dev;
	struct mm_struct *mm;
	unsigned long accounted;
	struct mutex lock;	/* batch, cutoff, waiting, entries that are not trusted */
	spinlock_t seq_lock;	/* storing entries */
	struct delayed_work work;
	struct page *batch[VBLK_PIN_CHUNK];
	u64 cutoff;
	bool waiting;
	struct list_head link;
	unsigned int nr_regions;
	struct vblk_pin_region regions[];
};

/* How a request holds its pages. */
enum vblk_hold {
	VBLK_HOLD_NONE,
	VBLK_HOLD_GET,		/* references to the pages: for shared memory only */
	VBLK_HOLD_PIN,		/* FOLL_PIN */
	VBLK_HOLD_TABLE,	/* the pin table holds them */
};

/*
 * struct vblk_req - one request
 *
 * @pins: the pin table that has its pages, while base.hold says so; under the vring's mutex
 * @tail: of a leader: the last request of the command; base.next is the next one of the same
 *	command
 * @in_bytes: room for data that the device writes
 * @cmd_bytes: @cmd_segs: @cmd_reqs: of a leader: the size of the whole command
 * @hctx: of the last request of a polled command: the context that is asked for its completion
 * @ranging: it is counted in vring->nr_ranging
 * @resumes: work() is to call the engine's resume()
 * @held: how much it adds to vring->held
 * @bounced: how much it adds to vring->bounced
 * @bvec: @nr_bvec: the vector that the backend sees
 * @guest: @nr_guest: the guest's pages, if @bvec is a bounce buffer
 * @big_bvec: @max_bvec: room for vectors that do not fit into @inline_bvec; see VBLK_MAX_KEPT
 * @iocb_users: the submitter and the completion, each until it is done with @iocb
 * @iocb_res: the result, from the completion of @iocb
 */
struct vblk_req {
	struct vserve_req base;

	struct vblk_pins *pins;
	struct vblk_req *tail;
	u64 sector;
	void __user *status_addr;
	u32 type;
	u32 in_bytes;
	u32 cmd_bytes;
	u32 hctx;
	u16 cmd_segs;
	u16 cmd_reqs;
	u16 nr_segs;
	u16 nr_ranges;
	bool fua;
	bool ranging;
	bool resumes;
	u32 held;
	u32 bounced;
	u32 nr_bvec;
	u32 nr_guest;
	u32 max_bvec;
	struct bio_vec *bvec;
	struct bio_vec *guest;
	struct bio_vec *big_bvec;
	struct vblk_range *ranges;
	struct vblk_range range;
	atomic_t iocb_users;
	long iocb_res;
	union {
		struct bio bio;
		struct kiocb iocb;
	};
	struct bio_vec inline_bvec[VBLK_INLINE_BVECS];
} ____cacheline_aligned_in_smp;

struct vblk_counters {
	u64 reads;
	u64 writes;
	u64 flushes;
	u64 discards;
	u64 write_zeroes;
	u64 get_ids;
	u64 unsupp;
	u64 errors;
	u64 read_bytes;
	u64 write_bytes;
	u64 merged;
	u64 commands;
};

/*
 * struct vblk_vring - a virtqueue of a disk; the holder of the vring's mutex writes it
 *
 * @pin: requests need pins, because references do not do for all pages of this guest; see memory.c
 * @hctx_used: the context of the last request
 * @backend: the device's, or NULL; set at the start, before the first round
 * @limits: the limits of requests, set with @backend, and renewed in part for each request
 * @leader: the leader of the command that this round is putting together
 * @large: the large request that is in flight, or NULL
 * @awaits_large: the next request is large, and another vring of the device has one in flight
 * @refused: how much the next request would add to @held, if that is too much for now, or 0
 * @nr_ranging: how many discards and write-zeroes were taken
 * @held: see VBLK_MAX_HELD
 * @bounced: bytes of bounce buffers
 * @kept: see VBLK_MAX_KEPT
 * @chosen: the context for requests of a type in the round that began at @round
 */
struct vblk_vring {
	struct vserve_vring base;

	bool pin ____cacheline_aligned_in_smp;
	u32 hctx_used;
	struct vblk_backend *backend;
	struct vblk_limits limits;
	struct vblk_req *leader;
	struct vblk_req *large;
	bool awaits_large;
	unsigned int refused;
	unsigned int nr_ranging;
	unsigned int held;
	unsigned int bounced;
	unsigned int kept;
	struct {
		u64 round;
		u32 type;
		u32 hctx;
	} chosen;
	struct vblk_counters stats;
	struct page *pages[VBLK_PAGE_BATCH];
};

/*
 * struct vblk_dev - an open /dev/vhost-blk
 * @backend: NULL: there is none; it changes only while no vring runs or stops
 * @pins: the pin table for new requests, or NULL; requests read it under a vring's mutex, and
 *	vblk_set_pins() changes it
 * @replaced: pin tables that requests may still use; under @replaced_lock
 * @replaced_work: frees these tables as the requests end; runs only while there are any
 * @large: the vring that has a large request in flight, or NULL
 * @large_awaited: other vrings wait for the end of that request
 * @large_work: lets these vrings go on
 * @engine_id: the engine of @backend, for tasks that read counters without the mutex
 * @writeback: the write cache is on (VHOST_BLK_SET_CACHE)
 */
struct vblk_dev {
	struct vserve_dev base;
	struct vblk_backend *backend;
	struct vblk_pins *pins;
	struct mutex replaced_lock;	/* replaced; outside of vq.mutex */
	struct list_head replaced;
	struct delayed_work replaced_work;
	struct vblk_vring *large;
	bool large_awaited;
	struct work_struct large_work;
	u32 engine_id;
	bool writeback;
};

static inline struct vblk_dev *to_vblk_dev(struct vserve_dev *dev)
{
	return container_of(dev, struct vblk_dev, base);
}

static inline struct vblk_vring *to_vblk_vring(struct vserve_vring *vring)
{
	return container_of(vring, struct vblk_vring, base);
}

static inline struct vblk_req *to_vblk_req(struct vserve_req *req)
{
	return container_of(req, struct vblk_req, base);
}

static inline struct vblk_dev *vblk_dev_of(const struct vblk_vring *vring)
{
	return to_vblk_dev(vring->base.dev);
}

static inline struct vblk_vring *vblk_vring_of(const struct vblk_req *req)
{
	return to_vblk_vring(req->base.vring);
}

/* The vring's backend.  It changes only while no request is in flight. */
static inline struct vblk_backend *vblk_backend_of(const struct vblk_req *req)
{
	return vblk_vring_of(req)->backend;
}

/* The next request of the same command, or NULL. */
static inline struct vblk_req *vblk_next(const struct vblk_req *req)
{
	return req->base.next ? to_vblk_req(req->base.next) : NULL;
}

/*
 * Whether a policy (io.max, io.latency, io.cost) may hold back bios of this queue.
 *
 * A module cannot see which policy a queue has, and for which cgroup.  But a queue gets its
 * policies when the first cgroup sets a limit there, so most queues have none.  (With bfq all
 * queues have one: bfq counts as a policy.)
 */
static inline bool vblk_has_limits(const struct vserve_dev *dev,
				   const struct request_queue *q)
{
#ifdef CONFIG_BLK_CGROUP
	return dev->in_cgroup && !bitmap_empty(q->blkcg_pols, BLKCG_MAX_POLS);
#else
	return false;
#endif
}

/* take.c */
int vblk_take(struct vserve_req *req, const struct vserve_chain *chain,
	      bool may_sleep);
int vblk_bad_chain(struct vserve_vring *vring, unsigned int head);

/* complete.c */
void vblk_req_end(struct vblk_req *req, u8 status);
void vblk_req_fail(struct vblk_req *req, int error);
void vblk_update_full(struct vblk_vring *vring);
void vblk_work(struct vserve_req *req);
int vblk_finish(struct vserve_req *req, bool may_sleep);

static inline bool vblk_is_write(const struct vblk_req *req)
{
	return req->type == VIRTIO_BLK_T_OUT;
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
void vblk_drop_room(struct vblk_req *req);
void vblk_uncount_held(struct vblk_req *req);
void vblk_go_on_with_large(struct work_struct *work);
int vblk_map_data(struct vblk_req *req, struct vblk_span span, bool may_sleep);
bool vblk_unmap_data(struct vserve_req *req, bool may_sleep);

/* pins.c */
void vblk_pins_init(struct vblk_dev *dev);
struct vblk_pins *vblk_pin_table(struct vblk_dev *dev);
void vblk_set_pins(struct vblk_dev *dev, struct vblk_pins *pins);
void vblk_pins_settle(struct vblk_dev *dev);
void vblk_pins_want(struct vblk_pin_region *region, unsigned long at);

/* The page of an entry, or NULL if the page has to be looked up. */
static inline struct page *vblk_pin_page(const struct vblk_pin_region *region,
					 unsigned long at)
{
	unsigned long entry = READ_ONCE(region->entries[at]);

	if (!(entry & VBLK_PIN_TRUSTED))
		return NULL;
	return (struct page *)(entry - VBLK_PIN_TRUSTED);
}

/* engine_file.c */
bool vblk_file_is_direct(const struct vblk_req *req);

/* merge.c */
void vblk_submit(struct vserve_req *req);
void vblk_flush_batch(struct vserve_vring *vring);
void vblk_punt(struct vserve_req *req, bool again);
bool vblk_still_allowed(struct vblk_req *req);
void vblk_set_segs(struct vblk_req *req);
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
int vblk_mq_check_hctx(struct vserve_vring *vring,
		       const struct vhost_poller *poller, u32 hctx);
void vblk_mq_counts(struct vblk_backend *backend, u32 *hctx, u32 *poll_hctx);
void vblk_mq_reap(struct vserve_vring *vring);

/* stats.c */
void vblk_count_done(struct vblk_req *req);
long vblk_get_stats(struct vblk_dev *dev, void __user *argp);

#endif
