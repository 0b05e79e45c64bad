/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vhost_serve: serves the rings of vhost_blk and vhost_fs.  linux/vhost_serve.h has the rules, and
 * the interface to these devices.
 *
 * The data path, in the order of the files: round.c -> take.c -> chain.c -> the
 * device -> complete.c -> used.c.  calls.c says when to interrupt the guest, vring.c
 * is the life of a vring, dev.c the character device.
 */
#ifndef _VHOST_SERVE_H
#define _VHOST_SERVE_H

#include <linux/sizes.h>
#include <linux/vhost_serve.h>

#define VSERVE_ROUND_BYTES	((unsigned int)SZ_4M)
/* The poller's limit for all rings of a device that copies, because other guests wait meanwhile. */
#define VSERVE_COPY_BYTES	((unsigned int)SZ_1M)
/* But each ring of it may copy as much as this. */
#define VSERVE_COPY_MIN		((unsigned int)SZ_128K)
/* Empty descriptors are no bytes, and take as long to read as others. */
#define VSERVE_ROUND_DESCS	(4 * VSERVE_MAX_CHAIN)
/* How long a full backend is asked again before a worker queues for it. */
#define VSERVE_PENDING_IDLE_NS	(10 * NSEC_PER_MSEC)
#define VSERVE_PENDING_NS	NSEC_PER_SEC
/* How often, while the poller has nothing else to do. */
#define VSERVE_RETRY_NS		NSEC_PER_MSEC

/* Bytes and descriptors go by weight as requests do, or they would level it. */
static inline unsigned long vserve_share_of(const struct vserve_vring *vring,
					    unsigned long whole)
{
	unsigned int weight = vring->src.weight;

	return weight == VSERVE_WEIGHT ? whole : max(whole * weight / VSERVE_WEIGHT, 1UL);
}

/* struct vserve_req: @again, which thread is to call work() once more. */
enum vserve_again {
	VSERVE_AGAIN_NOT,
	VSERVE_AGAIN_WORKER,
	VSERVE_AGAIN_HOT,
};

/* The backend's tags, or its room, come back with what it has in flight. */
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

/* The next table of memory may lie where that of vring->map did. */
static inline void vserve_vring_forget_map(struct vserve_vring *vring)
{
	mutex_lock(&vring->vq.mutex);
	vring->map = NULL;
	mutex_unlock(&vring->vq.mutex);
}

/* chain.c */
int vserve_get_chain(struct vserve_vring *vring, struct vserve_chain *chain);

/* take.c */
struct vserve_req *vserve_take(struct vserve_vring *vring, bool may_sleep,
			       int *err);

static inline void vserve_queue_work(struct vserve_req *req)
{
	struct vserve_dev *dev = req->vring->dev;

	queue_work(req->resumed ? dev->end_wq : dev->wq, &req->work);
}

/* complete.c */
void vserve_req_work(struct work_struct *work);
int vserve_complete(struct vserve_vring *vring, unsigned int budget,
		    bool may_sleep);

/* Is there anything for vserve_complete()? */
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
