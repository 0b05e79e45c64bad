/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vhost_serve: it serves the rings of vhost_blk and vhost_fs.  linux/vhost_serve.h has the rules,
 * and the interface to these devices.
 *
 * The data path, in the order of the files: round.c -> take.c -> chain.c -> the device ->
 * complete.c -> used.c.  calls.c decides when to interrupt the guest.  vring.c has the life of a
 * vring, dev.c the character device, and workers.c the threads that do requests which may sleep.
 */
#ifndef _VHOST_SERVE_H
#define _VHOST_SERVE_H

#include <linux/sizes.h>
#include <linux/vhost_serve.h>

/* Works of a device that share the queue with those of its vrings, as vhost_blk's for pins do. */
#define VSERVE_RING_WORKS	4
#define VSERVE_ROUND_BYTES	((unsigned int)SZ_4M)
/*
 * How many bytes the poller may copy in a round for all rings of a device, because other guests
 * wait meanwhile.
 */
#define VSERVE_COPY_BYTES	((unsigned int)SZ_1M)
/* Each ring of the device may copy this much, even if the sum is more than VSERVE_COPY_BYTES. */
#define VSERVE_COPY_MIN		((unsigned int)SZ_128K)
/*
 * How many descriptors a round may read.  Empty ones have no bytes, and take as long to read as
 * others.
 */
#define VSERVE_ROUND_DESCS	(4 * VSERVE_MAX_CHAIN)
/* How long the poller asks a full backend again before it leaves the request to a worker. */
#define VSERVE_PENDING_IDLE_NS	(10 * NSEC_PER_MSEC)
#define VSERVE_PENDING_NS	NSEC_PER_SEC
/* How often the poller asks while it has nothing else to do. */
#define VSERVE_RETRY_NS		NSEC_PER_MSEC

/*
 * A vring's share of the bytes or descriptors of a round.  They go by weight, as requests do, or
 * they would make vrings of different weight equal.
 */
static inline unsigned long vserve_share_of(const struct vserve_vring *vring,
					    unsigned long whole)
{
	unsigned int weight = vring->src.weight;

	return weight == VSERVE_WEIGHT ? whole : max(whole * weight / VSERVE_WEIGHT, 1UL);
}

/* The values of vserve_req.again: which thread is to call work() once more. */
enum vserve_again {
	VSERVE_AGAIN_NOT,
	VSERVE_AGAIN_WORKER,
	VSERVE_AGAIN_HOT,
};

/*
 * Whether the backend has requests of this vring in flight.  The backend's tags, or its room, come
 * back with these.
 */
static inline bool vserve_backend_busy(const struct vserve_vring *vring)
{
	return vring->nr_inflight > vring->nr_in_workers;
}

/* round.c */
extern const struct vhost_poll_ops vserve_round_ops;
void vserve_handle_kick(struct vhost_work *work);
void vserve_publish(struct vserve_vring *vring);
void vserve_worker(struct work_struct *work);
void vserve_drain(struct work_struct *work);

/* vring.c */
void vserve_vring_init(struct vserve_vring *vring, struct vserve_dev *dev,
		       unsigned int index);
int vserve_vring_set(struct vserve_vring *vring, int poller_fd, u32 target,
		     u32 weight);
int vserve_vring_start(struct vserve_vring *vring);
void vserve_vring_begin_stop(struct vserve_vring *vring);
int vserve_vring_stop(struct vserve_vring *vring);
int vserve_vring_go_on(struct vserve_vring *vring);
bool vserve_vring_await(struct vserve_vring *vring);
void vserve_vring_finish_stop(struct vserve_vring *vring);
void vserve_vring_drop_poller(struct vserve_vring *vring);

/*
 * Whether no task has the owner's memory any more.  Requests may still write to that memory, but no
 * task can map something else in its place.
 */
static inline bool vserve_owner_is_gone(const struct mm_struct *mm)
{
#ifdef CONFIG_MEMCG
	return !rcu_access_pointer(mm->owner);
#else
	return false;
#endif
}

/*
 * Forget the regions that were looked up last.  The next table of memory may lie where the one of
 * vring->regions did.
 */
static inline void vserve_vring_forget_regions(struct vserve_vring *vring)
{
	mutex_lock(&vring->vq.mutex);
	vring->regions_of = NULL;
	mutex_unlock(&vring->vq.mutex);
}

/* chain.c */
int vserve_get_chain(struct vserve_vring *vring, struct vserve_chain *chain);

/* take.c */
struct vserve_req *vserve_take(struct vserve_vring *vring, bool may_sleep,
			       int *err);

/* workers.c */
void vserve_workers_queue(struct vserve_workers *w, struct vserve_req *req);
void vserve_workers_wq_done(struct vserve_workers *w);
struct vserve_workers *vserve_workers_begin(struct vserve_dev *dev);
void vserve_workers_flush(struct vserve_workers *w);
void vserve_workers_give_back(struct vserve_workers *w);
void vserve_workers_end(struct vserve_workers *w);
int vserve_workers_init(void);
void vserve_workers_exit(void);

static inline void vserve_queue_work(struct vserve_req *req)
{
	struct vserve_dev *dev = req->vring->dev;

	if (req->resumed)
		queue_work(dev->end_wq, &req->work);
	else
		vserve_workers_queue(dev->workers, req);
}

/* complete.c */
void vserve_req_do(struct vserve_req *req);
void vserve_req_work(struct work_struct *work);
int vserve_complete(struct vserve_vring *vring, unsigned int budget,
		    bool may_sleep);

/* Whether there is anything for vserve_complete() to do. */
static inline bool vserve_has_done(const struct vserve_vring *vring)
{
	return vring->backlog || !llist_empty(&vring->reaped) ||
	       !llist_empty(&vring->done) || vring->finished;
}

/* hot.c */
void vserve_to_poller(struct vserve_req *req);
struct vserve_req *vserve_pop_hot(struct vserve_vring *vring);
void vserve_punt_hot(void *request);
void vserve_run_hot(void *request);

/* used.c */
int vserve_put_used(struct vserve_vring *vring, struct vring_used_elem *heads,
		    unsigned int count);
int vserve_put_finished(struct vserve_vring *vring, unsigned int budget,
			bool may_sleep);
void vserve_signal(struct vserve_vring *vring);
void vserve_signal_soon(struct vserve_vring *vring);
void vserve_measure_guest(struct vserve_vring *vring);

/* calls.c */
void vserve_calls_event(struct vserve_calls *c, u64 now);
bool vserve_calls_hold(struct vserve_calls *c, u64 now);
void vserve_calls_end(struct vserve_calls *c);
bool vserve_calls_count(struct vserve_calls *c);
void vserve_calls_learn(struct vserve_calls *c, u64 now, bool seen);

/* stats.c */
long vserve_get_stats(struct vserve_dev *dev, void __user *argp);

#endif
