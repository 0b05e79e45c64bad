// SPDX-License-Identifier: GPL-2.0
/*
 * The hiprio queue: FORGET and INTERRUPT.
 *
 * No task waits for a FORGET, so this queue has no interrupts.  The driver takes used messages from
 * the ring before it adds new ones.  It gathers FORGETs for a tick, or until they fill a message,
 * so each message costs one kick at most.  The core allocates the description of a FORGET together
 * with the inode, so the driver allocates nothing to send it.  If all messages are in flight, the
 * work tries again a tick later.
 *
 * The core calls ->send_interrupt() if a signal comes while a task waits for a reply.  The driver
 * interrupts only requests for locks.  On the host's file systems no other request ends early, and
 * some servers cannot cope with INTERRUPT.  The driver marks the slot of the request, and the work
 * sends the message.  If the server has not seen the request yet, it answers the message with
 * -EAGAIN, and the work sends the message again.
 *
 * timeout.c uses this queue to find out whether the server takes messages at all.
 */
#include "pvfs.h"

#include <linux/delay.h>
#include <linux/slab.h>

static struct pvfs_dev *pvfs_hiprio_dev(struct pvfs_hiprio *hp)
{
	return container_of(hp, struct pvfs_dev, hiprio);
}

/* An even number that no request queue uses, see pvfs_request_fill(). */
static u64 pvfs_hiprio_unique(struct pvfs_hiprio *hp)
{
	return ++hp->seq * (pvfs_hiprio_dev(hp)->nr_queues + 1) * 2;
}

static struct pvfs_hislot *pvfs_hislot_get(struct pvfs_hiprio *hp)
{
	unsigned int i;

	for (i = 0; i < PVFS_HISLOTS; i++)
		if (!hp->slots[i].busy)
			return &hp->slots[i];
	return NULL;
}

static int pvfs_hislot_send(struct pvfs_hiprio *hp, struct pvfs_hislot *s)
{
	struct scatterlist out, in, *sgs[] = { &out, &in };
	int err;

	/* Check this first, because virtqueue_add_sgs() kicks a device whose ring is full. */
	if (hp->vq->num_free < 2)
		return -ENOSPC;
	sg_init_one(&out, &s->in, s->in.len);
	if (s->is_interrupt) {
		memset(&s->out, 0, sizeof(s->out));
		sg_init_one(&in, &s->out, sizeof(s->out));
	}
	err = virtqueue_add_sgs(hp->vq, sgs, 1, s->is_interrupt, s, GFP_ATOMIC);
	if (err)
		return err;
	s->busy = true;
	hp->inflight++;
	hp->interrupts += s->is_interrupt;
	return 0;
}

/*
 * Put the next FORGETs into a message.  Returns how many they are.  The caller must not use the
 * count in the message instead, because the device may change that one.
 */
static unsigned int pvfs_fill_forgets(struct pvfs_hiprio *hp, struct pvfs_hislot *s)
{
	unsigned int n = min(hp->waiting, hp->can_batch ? PVFS_FORGETS : 1);
	struct fuse_forget_link *link = hp->first;
	unsigned int i;

	s->is_interrupt = false;
	s->in = (struct fuse_in_header){ .unique = pvfs_hiprio_unique(hp) };
	if (n == 1) {
		s->in.opcode = FUSE_FORGET;
		s->in.nodeid = link->forget_one.nodeid;
		s->in.len = sizeof(s->in) + sizeof(s->forget);
		s->forget.nlookup = link->forget_one.nlookup;
		return 1;
	}
	s->in.opcode = FUSE_BATCH_FORGET;
	s->in.len = sizeof(s->in) + sizeof(s->batch.head) + n * sizeof(s->batch.one[0]);
	s->batch.head = (struct fuse_batch_forget_in){ .count = n };
	for (i = 0; i < n; i++, link = link->next)
		s->batch.one[i] = link->forget_one;
	return n;
}

static void pvfs_drop_forgets(struct pvfs_hiprio *hp, unsigned int n)
{
	hp->waiting -= n;
	while (n--) {
		struct fuse_forget_link *link = hp->first;

		hp->first = link->next;
		kfree(link);
	}
	if (!hp->first)
		hp->last = &hp->first;
}

static void pvfs_send_forgets(struct pvfs_hiprio *hp)
{
	struct pvfs_hislot *s;
	unsigned int n;

	while (hp->first && (s = pvfs_hislot_get(hp))) {
		n = pvfs_fill_forgets(hp, s);
		if (pvfs_hislot_send(hp, s))
			return;
		hp->forgets += n;
		hp->forget_messages++;
		pvfs_drop_forgets(hp, n);
	}
}

/* The slot of the request with this number, or NULL if that is not in flight any more. */
static struct pvfs_slot *pvfs_find_unique(struct pvfs_queue *q, u64 unique)
{
	struct pvfs_slot *slot;

	list_for_each_entry(slot, &q->busy, node)
		if (slot->unique == unique)
			return slot;
	return NULL;
}

static void pvfs_interrupt_answered(struct pvfs_hiprio *hp, struct pvfs_hislot *s,
				    unsigned int written)
{
	struct pvfs_queue *q = &pvfs_hiprio_dev(hp)->queues[s->queue];
	int error = READ_ONCE(s->out.error);
	struct pvfs_slot *slot;

	/* Most servers answer only the interrupted request.  They return the INTERRUPT empty. */
	if (written < sizeof(s->out))
		return;
	spin_lock_bh(&q->poll.lock);
	slot = pvfs_find_unique(q, s->interrupt.unique);
	if (slot && error == -EAGAIN) {
		slot->interrupt = true;
		WRITE_ONCE(hp->want_interrupt, true);
	}
	spin_unlock_bh(&q->poll.lock);
}

static void pvfs_hiprio_reap(struct pvfs_hiprio *hp)
{
	struct pvfs_hislot *s;
	unsigned int written;

	while (hp->inflight && (s = virtqueue_get_buf(hp->vq, &written))) {
		hp->inflight--;
		hp->taken++;
		hp->interrupts -= s->is_interrupt;
		if (s->is_interrupt)
			pvfs_interrupt_answered(hp, s, written);
		s->busy = false;
	}
	if (unlikely(hp->inflight && virtqueue_is_broken(hp->vq)))
		queue_work(pvfs_fail_wq, &pvfs_hiprio_dev(hp)->fail_work);
}

/* Returns false if there is no room for the message. */
static bool pvfs_send_one_interrupt(struct pvfs_hiprio *hp, struct pvfs_queue *q,
				    struct pvfs_slot *slot)
{
	struct pvfs_hislot *s = pvfs_hislot_get(hp);

	if (!s)
		return false;
	s->is_interrupt = true;
	s->queue = q->index;
	s->in = (struct fuse_in_header){
		.len = sizeof(s->in) + sizeof(s->interrupt),
		.opcode = FUSE_INTERRUPT,
		/* This is the request's number, made odd, as the core does for user space. */
		.unique = slot->unique | 1,
	};
	s->interrupt.unique = slot->unique;
	if (pvfs_hislot_send(hp, s))
		return false;
	slot->interrupt = false;
	hp->interrupts_sent++;
	return true;
}

static void pvfs_send_interrupts_of(struct pvfs_hiprio *hp, struct pvfs_queue *q)
{
	struct pvfs_slot *slot;

	spin_lock_bh(&q->poll.lock);
	list_for_each_entry(slot, &q->busy, node) {
		if (slot->interrupt && !pvfs_send_one_interrupt(hp, q, slot)) {
			WRITE_ONCE(hp->want_interrupt, true);
			break;
		}
	}
	spin_unlock_bh(&q->poll.lock);
}

static void pvfs_send_interrupts(struct pvfs_hiprio *hp)
{
	struct pvfs_dev *dev = pvfs_hiprio_dev(hp);
	unsigned int i;

	if (!READ_ONCE(hp->want_interrupt))
		return;
	/* Clear this first.  A task that marks a slot meanwhile sets it again. */
	WRITE_ONCE(hp->want_interrupt, false);
	for (i = 0; i < dev->nr_queues; i++)
		pvfs_send_interrupts_of(hp, &dev->queues[i]);
}

/*
 * Take answers from the ring, and send the messages that fit into it.  The caller holds hp->lock.
 * Returns whether the caller is to kick the device.
 */
static bool pvfs_hiprio_run(struct pvfs_hiprio *hp)
{
	bool kick;

	pvfs_hiprio_reap(hp);
	pvfs_send_interrupts(hp);
	pvfs_send_forgets(hp);
	/*
	 * The work sends the messages that found no room.  It also looks for answers to INTERRUPT,
	 * because the queue has no interrupt.
	 */
	if (hp->first || hp->interrupts || READ_ONCE(hp->want_interrupt))
		queue_delayed_work(pvfs_wq, &hp->work, 1);
	kick = virtqueue_kick_prepare(hp->vq);
	hp->kicks += kick;
	return kick;
}

/* Preemption stays off from the check of @live to the kick, see Locking in pvfs.h. */
static void pvfs_hiprio_flush(struct pvfs_hiprio *hp)
{
	bool kick = false;

	preempt_disable();
	spin_lock(&hp->lock);
	if (hp->live)
		kick = pvfs_hiprio_run(hp);
	spin_unlock(&hp->lock);
	if (kick)
		virtqueue_notify(hp->vq);
	preempt_enable();
}

/* Send a message that does nothing: the guest forgets zero lookups of the root. */
static bool pvfs_send_nothing(struct pvfs_hiprio *hp)
{
	struct pvfs_hislot *s = pvfs_hislot_get(hp);

	if (!s)
		return false;
	s->is_interrupt = false;
	s->in = (struct fuse_in_header){
		.len = sizeof(s->in) + sizeof(s->forget),
		.opcode = FUSE_FORGET,
		.unique = pvfs_hiprio_unique(hp),
		.nodeid = FUSE_ROOT_ID,
	};
	s->forget.nlookup = 0;
	return !pvfs_hislot_send(hp, s);
}

/**
 * pvfs_hiprio_ask - make sure that the ring has a message for the server to take
 * @dev: the device
 *
 * If no message is in flight, the function sends one that does nothing.  pvfs_hiprio_taken() then
 * shows whether the server takes it.
 *
 * Return: true if a message is in flight.
 */
bool pvfs_hiprio_ask(struct pvfs_dev *dev)
{
	struct pvfs_hiprio *hp = &dev->hiprio;
	bool kick = false, waits = false;

	preempt_disable();
	spin_lock(&hp->lock);
	if (hp->live) {
		pvfs_hiprio_reap(hp);
		waits = hp->inflight || pvfs_send_nothing(hp);
		kick = virtqueue_kick_prepare(hp->vq);
		hp->kicks += kick;
	}
	spin_unlock(&hp->lock);
	if (kick)
		virtqueue_notify(hp->vq);
	preempt_enable();
	return waits;
}

/**
 * pvfs_hiprio_taken - how many messages the server has taken
 * @dev: the device
 */
u64 pvfs_hiprio_taken(struct pvfs_dev *dev)
{
	struct pvfs_hiprio *hp = &dev->hiprio;
	u64 taken;

	spin_lock(&hp->lock);
	if (hp->live)
		pvfs_hiprio_reap(hp);
	taken = hp->taken;
	spin_unlock(&hp->lock);
	return taken;
}

static void pvfs_hiprio_work(struct work_struct *work)
{
	pvfs_hiprio_flush(container_of(to_delayed_work(work), struct pvfs_hiprio, work));
}

/* The core hands LINK over to the driver, which frees it. */
void pvfs_send_forget(struct fuse_iqueue *fiq, struct fuse_forget_link *link)
{
	struct pvfs_dev *dev = fiq->priv;
	struct pvfs_hiprio *hp = &dev->hiprio;
	bool enough = false;

	link->next = NULL;
	spin_lock(&hp->lock);
	/*
	 * With DESTROY the server forgets all nodes.  The core sends more FORGETs after it, while
	 * umount drops dentries, and they would count for the next mount.
	 */
	if (!hp->live || !READ_ONCE(container_of(fiq, struct fuse_conn, iq)->connected)) {
		spin_unlock(&hp->lock);
		kfree(link);
		return;
	}
	hp->can_batch = container_of(fiq, struct fuse_conn, iq)->minor >= 16;
	*hp->last = link;
	hp->last = &link->next;
	hp->waiting++;
	enough = hp->waiting % PVFS_FORGETS == 0;
	if (!enough)
		queue_delayed_work(pvfs_wq, &hp->work, 1);
	spin_unlock(&hp->lock);
	if (enough)
		pvfs_hiprio_flush(hp);
}

/**
 * pvfs_forget - send a FORGET that the core sends as a request
 * @req: the request, which the caller ends
 *
 * The core does this for an entry of READDIRPLUS that it cannot use.  It waits for the end of the
 * request, and no signal stops that wait.  So the driver gathers the FORGET like any other, and the
 * caller ends the request at once.
 */
void pvfs_forget(struct fuse_req *req)
{
	const struct fuse_forget_in *in = req->args->in_args[0].value;
	struct fuse_forget_link *link = kzalloc(sizeof(*link), GFP_KERNEL | __GFP_NOFAIL);

	link->forget_one.nodeid = req->args->nodeid;
	link->forget_one.nlookup = in->nlookup;
	pvfs_send_forget(&req->fm->fc->iq, link);
}

/**
 * pvfs_hiprio_interrupt - have the work send INTERRUPT for a marked slot
 * @dev: the device; the lock of the slot's queue is held
 */
void pvfs_hiprio_interrupt(struct pvfs_dev *dev)
{
	WRITE_ONCE(dev->hiprio.want_interrupt, true);
	mod_delayed_work(pvfs_wq, &dev->hiprio.work, 0);
}

/* The core calls this in the task that waits for the request, so it is not freed meanwhile. */
void pvfs_send_interrupt(struct fuse_iqueue *fiq, struct fuse_req *req)
{
	struct pvfs_dev *dev = fiq->priv;
	struct pvfs_slot *slot;
	unsigned int i;

	if (!pvfs_can_interrupt(req)) {
		pvfs_wait_killable(dev, req);
		return;
	}
	for (i = 0; i < dev->nr_queues; i++) {
		struct pvfs_queue *q = &dev->queues[i];

		spin_lock_bh(&q->poll.lock);
		list_for_each_entry(slot, &q->busy, node) {
			if (slot->req != req || slot->lock != PVFS_LOCK_WAITS)
				continue;
			slot->interrupt = true;
			pvfs_hiprio_interrupt(dev);
			break;
		}
		spin_unlock_bh(&q->poll.lock);
	}
}

int pvfs_hiprio_init(struct pvfs_dev *dev)
{
	struct pvfs_hiprio *hp = &dev->hiprio;

	spin_lock_init(&hp->lock);
	INIT_DELAYED_WORK(&hp->work, pvfs_hiprio_work);
	hp->last = &hp->first;
	hp->slots = kcalloc(PVFS_HISLOTS, sizeof(*hp->slots), GFP_KERNEL);
	return hp->slots ? 0 : -ENOMEM;
}

/**
 * pvfs_hiprio_free - free what pvfs_hiprio_init() allocated
 * @dev: the device, stopped for good
 */
void pvfs_hiprio_free(struct pvfs_dev *dev)
{
	struct pvfs_hiprio *hp = &dev->hiprio;

	if (!hp->slots)
		return;
	cancel_delayed_work_sync(&hp->work);
	pvfs_drop_forgets(hp, hp->waiting);
	kfree(hp->slots);
}

void pvfs_hiprio_start(struct pvfs_dev *dev)
{
	struct pvfs_hiprio *hp = &dev->hiprio;

	spin_lock(&hp->lock);
	virtqueue_disable_cb(hp->vq);
	hp->live = true;
	spin_unlock(&hp->lock);
}

void pvfs_hiprio_stop(struct pvfs_dev *dev)
{
	struct pvfs_hiprio *hp = &dev->hiprio;

	spin_lock(&hp->lock);
	hp->live = false;
	spin_unlock(&hp->lock);
}

/**
 * pvfs_hiprio_empty - forget the messages that were in flight
 * @dev: the device, stopped and reset
 */
void pvfs_hiprio_empty(struct pvfs_dev *dev)
{
	struct pvfs_hiprio *hp = &dev->hiprio;
	struct pvfs_hislot *s;

	spin_lock(&hp->lock);
	while ((s = virtqueue_detach_unused_buf(hp->vq)))
		s->busy = false;
	hp->inflight = 0;
	hp->interrupts = 0;
	pvfs_drop_forgets(hp, hp->waiting);
	spin_unlock(&hp->lock);
}

static bool pvfs_hiprio_idle(struct pvfs_hiprio *hp)
{
	bool idle;

	spin_lock(&hp->lock);
	idle = !hp->live || (!hp->first && !hp->inflight);
	spin_unlock(&hp->lock);
	return idle;
}

/**
 * pvfs_hiprio_drain - wait until the server has taken all FORGETs, or give the device up
 * @dev: the device; until DESTROY the mount sends no more of them, because no file is open and
 *	umount holds s_umount
 *
 * Umount calls this before it sends DESTROY, because a FORGET that the server takes after that
 * would count for the next mount.
 */
void pvfs_hiprio_drain(struct pvfs_dev *dev)
{
	unsigned int ms;

	for (ms = 0; ms < PVFS_EXIT_SECONDS * MSEC_PER_SEC; ms++) {
		pvfs_hiprio_flush(&dev->hiprio);
		if (pvfs_hiprio_idle(&dev->hiprio))
			return;
		usleep_range(500, 1000);
	}
	pr_err("pvfs: %s: the server did not take FORGET for %u seconds at umount; giving up the device, check the server on the host\n",
	       dev->tag, PVFS_EXIT_SECONDS);
	queue_work(pvfs_fail_wq, &dev->fail_work);
}
