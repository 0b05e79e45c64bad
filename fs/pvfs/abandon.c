// SPDX-License-Identifier: GPL-2.0
/*
 * A task that is killed does not wait for the server, where that is safe.
 *
 * The rule
 * --------
 * Once the device has a request, the core makes a killed task wait for the reply.  The driver
 * abandons the request instead: it ends the request with -EINTR, although the device still has it.
 * It does so only if both of these hold:
 *
 * - The request changes nothing.  When a request ends, the core drops the locks that it holds for
 *   it.  If a change was abandoned, another task could make the next change, and the server could
 *   carry out the abandoned one after that, and so undo the other task's change.
 * - No other task sees the memory that the device may still write to.  This memory is the slot,
 *   pages of the kernel that are not in a page cache, and anonymous memory of a process that dies
 *   as a whole.
 *
 * The slot stays busy until the device answers or is reset, and holds the pages until then.  If the
 * reply says that the server has opened a file or counted a lookup, q->work sends RELEASE or FORGET
 * for that, as long as the mount lasts.
 *
 * Tasks that exit
 * ---------------
 * A task that exits closes its files.  The core waits for FLUSH and RELEASE without a limit,
 * because these requests are forced, and no signal reaches the task any more.  But no caller looks
 * at the results, and the core has written the data before.  So the task waits for
 * PVFS_EXIT_SECONDS, and then leaves the request to the server.
 *
 * A task may have many files, so it waits in this way only once.  No other task waits, either,
 * if the server has not sent a reply since the last such wait ran out.
 *
 * FLUSH and RELEASE may drop locks, see close.c.
 *
 * Late RELEASEs
 * -------------
 * A late RELEASE closes no other file of its mount, because the server reuses the number of an open
 * file only after the RELEASE.  But files of the next mount may have the same numbers.  So umount
 * waits for abandoned RELEASEs, and gives the device up if the server does not answer them.
 *
 * If FLUSH or RELEASE found no room in the ring, the driver takes it back and sends a copy in the
 * background.
 *
 * A FORGET may overtake an abandoned RELEASE.  If the server refuses the RELEASE for this reason,
 * it keeps the file open until the mount ends.
 *
 * Waiting in place of the core
 * ----------------------------
 * The core calls ->send_interrupt() only once, at the first signal, and only if the device has the
 * request.  It does not take a forced request back.  So if a task's request found no room in the
 * ring, the task waits in this file, and not in the core.  Tasks that wait for locks are an
 * exception: they wait in the core, because signals that do not kill end their wait, too.
 */
#include "pvfs.h"

#include <linux/delay.h>
#include <linux/highmem.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

/* The pause before the next try, while other threads of the killed process have yet to exit. */
#define PVFS_RETRY		(HZ / 10)

/* The rest of an abandoned request.  It holds the pages @folio[0] to @folio[@nr - 1]. */
struct pvfs_abandoned {
	struct fuse_mount *fm;		/* the main mount; umount sets NULL, under q->poll.lock */
	u64 nodeid;
	u32 opcode;
	u32 open_flags;
	struct pvfs_close close;	/* if the request is FLUSH or RELEASE */
	unsigned int nr;
	struct folio *folio[] __counted_by(nr);
};

static u32 pvfs_open_flags(const struct fuse_args *args)
{
	const struct fuse_open_in *in = args->in_args[0].value;

	return args->opcode == FUSE_OPEN || args->opcode == FUSE_OPENDIR ? in->flags : 0;
}

static bool pvfs_is_release(u32 opcode)
{
	return opcode == FUSE_RELEASE || opcode == FUSE_RELEASEDIR;
}

static bool pvfs_is_close(u32 opcode)
{
	return opcode == FUSE_FLUSH || pvfs_is_release(opcode);
}

static bool pvfs_changes_nothing(const struct fuse_args *args)
{
	switch (args->opcode) {
	case FUSE_OPEN:
		return !(pvfs_open_flags(args) & O_TRUNC);
	case FUSE_ACCESS:
	case FUSE_FLUSH:
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_GETATTR:
	case FUSE_GETLK:
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_LOOKUP:
	case FUSE_LSEEK:
	case FUSE_OPENDIR:
	case FUSE_READ:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_READLINK:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_STATFS:
	case FUSE_STATX:
	case FUSE_SYNCFS:
		return true;
	default:
		return false;
	}
}

/*
 * Whether only this process, which has been killed, uses its memory.  A thread that exits leaves
 * signal->live before it leaves the memory.  So the answer may be false now and true later.
 */
static bool pvfs_memory_dies(void)
{
	return current->mm && atomic_read(&current->mm->mm_users) <=
			      atomic_read(&current->signal->live);
}

static bool pvfs_folio_is_private(struct folio *folio, bool user)
{
	if (user)
		return folio_test_anon(folio);
	return !folio->mapping && !folio_test_slab(folio) && folio_ref_count(folio);
}

static void pvfs_abandoned_free(struct pvfs_abandoned *ab)
{
	unsigned int i;

	for (i = 0; i < ab->nr; i++)
		folio_put(ab->folio[i]);
	kfree(ab);
}

static int pvfs_hold_pages(struct pvfs_abandoned *ab, struct fuse_args_pages *ap, unsigned int nr)
{
	unsigned int i, offset, length;

	/* The owner of a kernel buffer goes on using it, even if the driver holds its pages. */
	if (ap->args.user_pages && !ap->args.is_pinned)
		return -EPERM;
	if (ap->args.is_pinned && !pvfs_memory_dies())
		return -EAGAIN;
	for (i = 0; i < nr; i++) {
		struct folio *folio = page_folio(pvfs_page(ap, i, &offset, &length));

		if (!pvfs_folio_is_private(folio, ap->args.is_pinned))
			return -EPERM;
		folio_get(folio);
		ab->nr++;
		ab->folio[i] = folio;
	}
	return 0;
}

/* If the request is a close, pvfs_abandon() has put it on dev->closes. */
static void pvfs_abandoned_over(struct pvfs_dev *dev, struct pvfs_abandoned *ab)
{
	if (pvfs_is_close(ab->opcode))
		pvfs_close_leave(dev, &ab->close);
	pvfs_abandoned_free(ab);
}

static struct pvfs_abandoned *pvfs_abandoned_new(struct pvfs_dev *dev, struct fuse_req *req)
{
	struct fuse_args *args = req->args;
	struct fuse_args_pages *ap = container_of(args, typeof(*ap), args);
	unsigned int nr = args->out_pages ? pvfs_page_count(ap) : 0;
	struct pvfs_abandoned *ab;
	int err;

	if (!pvfs_changes_nothing(args))
		return ERR_PTR(-EPERM);
	ab = kzalloc(struct_size(ab, folio, nr), GFP_KERNEL);
	if (!ab)
		return ERR_PTR(-ENOMEM);
	/* Use the main mount, which outlives its submounts, because these hold it. */
	ab->fm = get_fuse_mount_super(dev->sb);
	ab->nodeid = args->nodeid;
	ab->opcode = args->opcode;
	ab->open_flags = pvfs_open_flags(args);
	err = pvfs_hold_pages(ab, ap, nr);
	if (!err)
		return ab;
	pvfs_abandoned_free(ab);
	return ERR_PTR(err);
}

/* Take a request from its slot.  Returns false if no busy slot of this queue has it. */
static bool pvfs_abandon_slot(struct pvfs_queue *q, struct fuse_req *req,
			      struct pvfs_abandoned *ab)
{
	struct pvfs_slot *slot;
	bool found = false;

	spin_lock_bh(&q->poll.lock);
	list_for_each_entry(slot, &q->busy, node) {
		found = slot->req == req;
		if (!found)
			continue;
		slot->req = NULL;
		slot->abandoned = ab;
		q->unmeasured += slot->class != PVFS_NEVER;
		slot->class = PVFS_NEVER;
		q->stats.abandoned++;
		clear_bit(FR_SENT, &req->flags);
		break;
	}
	spin_unlock_bh(&q->poll.lock);
	return found;
}

/*
 * Abandon a request.  Returns -EAGAIN if that may succeed later, -ENOENT if the device does not
 * have the request, and another error if the request cannot be abandoned.
 */
static int pvfs_abandon(struct pvfs_dev *dev, struct fuse_req *req)
{
	struct pvfs_abandoned *ab = pvfs_abandoned_new(dev, req);
	unsigned int i;

	if (IS_ERR(ab))
		return PTR_ERR(ab);
	/* Do this first, because the answer may come as soon as the slot has @ab. */
	if (pvfs_is_close(ab->opcode))
		pvfs_close_enter(dev, &ab->close);
	for (i = 0; i < dev->nr_queues; i++) {
		if (pvfs_abandon_slot(&dev->queues[i], req, ab)) {
			req->out.h.error = -EINTR;
			fuse_request_end(req);
			return 0;
		}
	}
	pvfs_abandoned_over(dev, ab);
	return -ENOENT;
}

static bool pvfs_is_finished(struct fuse_req *req)
{
	return test_bit(FR_FINISHED, &req->flags);
}

/* Take back a request that waits for room, and end it.  Returns false if it waits no more. */
static bool pvfs_withdraw(struct pvfs_dev *dev, struct fuse_req *req)
{
	struct fuse_iqueue *fiq = &req->fm->fc->iq;
	bool pending;

	spin_lock(&fiq->lock);
	pending = test_and_clear_bit(FR_PENDING, &req->flags);
	if (pending)
		list_del_init(&req->list);
	spin_unlock(&fiq->lock);
	if (!pending)
		return false;
	if (pvfs_is_close(req->args->opcode))
		pvfs_close_later(get_fuse_mount_super(dev->sb), req->args,
				 GFP_KERNEL | __GFP_NOFAIL);
	req->out.h.error = -EINTR;
	fuse_request_end(req);
	return true;
}

/*
 * Whether a wait of this task at exit has run out before, or the server has been silent since the
 * wait of another task ran out.
 */
static bool pvfs_has_waited(struct pvfs_dev *dev)
{
	u64 replies = READ_ONCE(dev->exit_replies);

	if (READ_ONCE(dev->exit_task) == current->start_boottime)
		return true;
	if (!replies)
		return false;
	if (replies == pvfs_replies(dev) + 1)
		return true;
	WRITE_ONCE(dev->exit_replies, 0);
	return false;
}

static bool pvfs_finishes_at_exit(struct pvfs_dev *dev, struct fuse_req *req)
{
	if (pvfs_has_waited(dev))
		return pvfs_is_finished(req);
	if (wait_event_timeout(req->waitq, pvfs_is_finished(req), PVFS_EXIT_SECONDS * HZ))
		return true;
	WRITE_ONCE(dev->exit_task, current->start_boottime);
	WRITE_ONCE(dev->exit_replies, pvfs_replies(dev) + 1);
	return false;
}

/**
 * pvfs_wait_at_exit - wait for a request of a task that exits, but not for ever
 * @dev: the device
 * @req: the request, of this task
 */
void pvfs_wait_at_exit(struct pvfs_dev *dev, struct fuse_req *req)
{
	if (!pvfs_is_close(req->args->opcode) || pvfs_finishes_at_exit(dev, req))
		return;
	if (!pvfs_withdraw(dev, req))
		pvfs_abandon(dev, req);
}

/*
 * Whether the driver may drop a request that was never sent.  The core drops such requests, too, if
 * it does not force them.  But DESTROY must not be dropped, because the server needs it before the
 * next INIT.
 */
static bool pvfs_may_withdraw(const struct fuse_req *req)
{
	return req->args->opcode != FUSE_DESTROY;
}

/**
 * pvfs_wait_killable - wait for a request in place of the core, until the task is killed
 * @dev: the device
 * @req: the request of this task; the device has it, or it waits for room in a ring
 */
void pvfs_wait_killable(struct pvfs_dev *dev, struct fuse_req *req)
{
	if (!wait_event_killable(req->waitq, pvfs_is_finished(req)))
		return;
	if (pvfs_may_withdraw(req) && pvfs_withdraw(dev, req))
		return;
	if (pvfs_is_release(req->args->opcode)) {
		/* Wait as at exit, because the killed task is about to exit and close its files. */
		pvfs_wait_at_exit(dev, req);
		return;
	}
	while (pvfs_abandon(dev, req) == -EAGAIN)
		if (wait_event_timeout(req->waitq, pvfs_is_finished(req), PVFS_RETRY))
			return;
}

static bool pvfs_has_late_release(struct pvfs_queue *q)
{
	struct pvfs_slot *slot;
	bool found = false;

	spin_lock_bh(&q->poll.lock);
	list_for_each_entry(slot, &q->busy, node) {
		found = slot->abandoned && pvfs_is_release(slot->abandoned->opcode);
		if (found)
			break;
	}
	spin_unlock_bh(&q->poll.lock);
	return found;
}

/**
 * pvfs_abandoned_await - wait for abandoned RELEASEs, or give the device up
 * @dev: the device; DESTROY has ended
 */
void pvfs_abandoned_await(struct pvfs_dev *dev)
{
	unsigned long end = jiffies + PVFS_EXIT_SECONDS * HZ;
	unsigned int i;

	for (i = 0; i < dev->nr_queues; i++) {
		while (pvfs_has_late_release(&dev->queues[i])) {
			if (time_after(jiffies, end)) {
				pr_err("pvfs: %s: the server did not answer RELEASE for %u seconds after umount; giving up the device, check the server on the host\n",
				       dev->tag, PVFS_EXIT_SECONDS);
				queue_work(pvfs_fail_wq, &dev->fail_work);
				return;
			}
			msleep(20);
		}
	}
}

/* Late replies: undo what the server has done, and note that a sync has failed. */

static void pvfs_undo_lookup(struct fuse_mount *fm, u64 nodeid)
{
	struct fuse_forget_link *link;

	if (!nodeid)
		return;
	link = kzalloc(sizeof(*link), GFP_KERNEL);
	if (!link)
		return;
	link->forget_one.nodeid = nodeid;
	link->forget_one.nlookup = 1;
	pvfs_send_forget(&fm->fc->iq, link);
}

static void pvfs_undo_open(struct pvfs_abandoned *ab, u64 fh)
{
	struct fuse_release_in in = { .fh = fh, .flags = ab->open_flags };
	struct fuse_args args = {
		.opcode = ab->opcode == FUSE_OPENDIR ? FUSE_RELEASEDIR : FUSE_RELEASE,
		.nodeid = ab->nodeid,
		.in_numargs = 1,
		.in_args[0] = { .size = sizeof(in), .value = &in },
	};

	pvfs_close_later(ab->fm, &args, GFP_KERNEL);
}

static bool pvfs_is_dots(const struct fuse_direntplus *entry)
{
	const char *name = entry->dirent.name;
	u32 len = READ_ONCE(entry->dirent.namelen);

	return name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'));
}

/*
 * Undo the lookups that the server counted for READDIRPLUS.  This reads the same entries as the
 * core would have read (see pvfs_always_entries()).  The core of 6.12 asks for one page.
 */
static void pvfs_undo_entries(struct pvfs_abandoned *ab, size_t left)
{
	struct fuse_direntplus *entry;
	size_t len;
	void *at;

	if (!ab->nr)
		return;
	left = min(left, PAGE_SIZE);
	at = kmap_local_folio(ab->folio[0], 0);
	entry = at;
	while (left >= FUSE_NAME_OFFSET_DIRENTPLUS + 2) {
		len = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS +
					(size_t)READ_ONCE(entry->dirent.namelen));
		if (len > left)
			break;
		if (!pvfs_is_dots(entry))
			pvfs_undo_lookup(ab->fm, READ_ONCE(entry->entry_out.nodeid));
		entry = (void *)entry + len;
		left -= len;
	}
	kunmap_local(at);
}

static void pvfs_use_late_reply(struct pvfs_slot *slot)
{
	struct pvfs_abandoned *ab = slot->abandoned;
	struct fuse_entry_out entry;
	struct fuse_open_out open;
	int len;

	switch (ab->opcode) {
	case FUSE_LOOKUP:
		if (pvfs_late_reply(slot, &entry, sizeof(entry)) == sizeof(entry))
			pvfs_undo_lookup(ab->fm, entry.nodeid);
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		if (pvfs_late_reply(slot, &open, sizeof(open)) == sizeof(open))
			pvfs_undo_open(ab, open.fh);
		break;
	case FUSE_READDIRPLUS:
		len = pvfs_late_reply(slot, NULL, 0);
		if (len > 0)
			pvfs_undo_entries(ab, len);
		break;
	case FUSE_SYNCFS:
		/* If the sync was of a submount, which may be gone, the main mount reports it. */
		len = pvfs_late_reply(slot, NULL, 0);
		if (len < 0)
			pvfs_sync_failed(ab->fm, len);
		break;
	}
}

/**
 * pvfs_abandoned_end - end an abandoned request that the device has given back
 * @dev: the device
 * @slot: the request's slot, which only the caller uses; no lock is held
 */
void pvfs_abandoned_end(struct pvfs_dev *dev, struct pvfs_slot *slot)
{
	if (slot->abandoned->fm)
		pvfs_use_late_reply(slot);
	pvfs_abandoned_over(dev, slot->abandoned);
	slot->abandoned = NULL;
}

/**
 * pvfs_abandoned_unmount - make abandoned requests forget their mount, which is about to go
 * @q: the queue; only its work still sends requests to it
 */
void pvfs_abandoned_unmount(struct pvfs_queue *q)
{
	struct pvfs_slot *slot;

	spin_lock_bh(&q->poll.lock);
	list_for_each_entry(slot, &q->busy, node)
		if (slot->abandoned)
			slot->abandoned->fm = NULL;
	list_for_each_entry(slot, &q->late, node)
		slot->abandoned->fm = NULL;
	spin_unlock_bh(&q->poll.lock);
	/* The work may have taken slots off the list before, and may still use their mount. */
	flush_work(&q->work);
}
