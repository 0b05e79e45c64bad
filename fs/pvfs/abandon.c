// SPDX-License-Identifier: GPL-2.0
/*
 * A task that is killed does not wait for the server, where that is safe.
 *
 * The rule
 * --------
 * The core lets a killed task wait for a request that the device has.  This driver takes the
 * request from the task and ends it with -EINTR, if
 *
 * - it changes nothing.  The core drops its locks at the end of the request.  So the server might
 *   carry out an abandoned change after a later one of another task, and undo that.
 * - no other task sees the memory that the device may still write to: the slot, pages of the kernel
 *   that are not in a page cache, and anonymous memory of a process that dies as a whole.
 *
 * The slot stays busy until the device answers or is reset, and holds the pages until then.  If the
 * server has opened a file or counted a lookup, q->work sends RELEASE or FORGET for it, as long as
 * the mount lasts.
 *
 * A task that exits closes its files.  FLUSH and RELEASE are forced, so the core waits for them,
 * and no signal reaches the task any more.  No caller looks at the results, and the data have been
 * written before.  So the task waits for PVFS_EXIT_SECONDS, and then leaves the request to the
 * server.  A task has many files, so it waits only once, and no task waits at a server that has not
 * sent a reply since the last wait ran out.  Either request may drop locks, see close.c.
 *
 * A late RELEASE hits no other file of its mount, because the server reuses the number of an open
 * file only after the RELEASE.  But the next mount's files may have the same numbers.  So umount
 * waits for an abandoned RELEASE, and gives the device up if there is no reply.  FLUSH and RELEASE
 * that found no room in the ring are sent in the background instead.  FORGET may overtake an
 * abandoned RELEASE.  A server that refuses the RELEASE for this keeps the file open until the
 * mount ends.
 *
 * The core calls send_interrupt() once, at the first signal and only if the device has the request,
 * and does not take a forced request back.  So a task whose request found no room in the ring waits
 * in this file, and not in the core.  Requests for locks wait in the core, because other signals
 * end them.
 */
#include "pvfs.h"

#include <linux/delay.h>
#include <linux/highmem.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

/* The pause before the next try while other threads of the process are about to exit. */
#define PVFS_RETRY		(HZ / 10)

/* The rest of a request whose task has gone.  Its pages are @folio[0] to [@nr - 1]. */
struct pvfs_abandoned {
	struct fuse_mount *fm;		/* the main one; NULL once it goes; under q->poll.lock */
	u64 nodeid;
	u32 opcode;
	u32 open_flags;
	struct pvfs_close close;	/* of FLUSH and RELEASE */
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
 * Whether only this process uses its memory.  A thread that exits leaves signal->live before it
 * leaves the memory, so a false answer may become true.
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

	/* The owner of a kernel buffer goes on using it, although the driver holds the pages. */
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

/* pvfs_abandon() has put @ab on dev->closes if it is a close. */
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
	/* The main mount, because each submount holds it, and may go earlier. */
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

/* Returns false if the device does not have the request: it waits for room, or is answered. */
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

/* Returns -EAGAIN if it may work later. */
static int pvfs_abandon(struct pvfs_dev *dev, struct fuse_req *req)
{
	struct pvfs_abandoned *ab = pvfs_abandoned_new(dev, req);
	unsigned int i;

	if (IS_ERR(ab))
		return PTR_ERR(ab);
	/* First, because the answer may come as soon as the slot has @ab. */
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

/* Take back a request that still waits for room; false: it does not. */
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

/* An earlier wait has shown the caller that the server is silent, and it still is. */
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
 * A request that was never sent may be dropped, as the core does with those that it does not force.
 * But the server has to have DESTROY before the next INIT.
 */
static bool pvfs_may_withdraw(const struct fuse_req *req)
{
	return req->args->opcode != FUSE_DESTROY;
}

/**
 * pvfs_wait_killable - wait for a request in place of the core, until the task is killed
 * @dev: the device
 * @req: the request, of this task; the device has it, or it waits for room
 */
void pvfs_wait_killable(struct pvfs_dev *dev, struct fuse_req *req)
{
	if (!wait_event_killable(req->waitq, pvfs_is_finished(req)))
		return;
	if (pvfs_may_withdraw(req) && pvfs_withdraw(dev, req))
		return;
	if (pvfs_is_release(req->args->opcode)) {
		/* The killed task is about to exit and to close its files. */
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
 * @dev: the device; DESTROY is answered
 */
void pvfs_abandoned_await(struct pvfs_dev *dev)
{
	unsigned long end = jiffies + PVFS_EXIT_SECONDS * HZ;
	unsigned int i;

	for (i = 0; i < dev->nr_queues; i++) {
		while (pvfs_has_late_release(&dev->queues[i])) {
			if (time_after(jiffies, end)) {
				pr_err("pvfs: %s does not answer RELEASE, and is given up\n",
				       dev->tag);
				queue_work(pvfs_fail_wq, &dev->fail_work);
				return;
			}
			msleep(20);
		}
	}
}

/* Late replies: undo what the server has done. */

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

/* Read what the core would have read, see pvfs_always_entries().  In 6.12 it asks for one page. */
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

static void pvfs_undo(struct pvfs_slot *slot)
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
	}
}

/**
 * pvfs_abandoned_end - the device has given an abandoned request back
 * @dev: the device
 * @slot: its slot, on no list that others use; no lock is held
 */
void pvfs_abandoned_end(struct pvfs_dev *dev, struct pvfs_slot *slot)
{
	if (slot->abandoned->fm)
		pvfs_undo(slot);
	pvfs_abandoned_over(dev, slot->abandoned);
	slot->abandoned = NULL;
}

/**
 * pvfs_abandoned_unmount - take the mount from abandoned requests
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
	/* The work may have taken slots from the list before. */
	flush_work(&q->work);
}
