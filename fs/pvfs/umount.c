// SPDX-License-Identifier: GPL-2.0
/*
 * umount -f: a server that does not answer does not keep the mount.
 *
 * The rule
 * --------
 * Before anything is unmounted, the server is asked for something small.  It is silent if it
 * answers nothing at all for PVFS_FORCE_SECONDS: this question may have to wait behind writes
 * that are queued.  After PVFS_FORCE_TIMES as long it has to have answered this one.
 *
 * If it answers, this is a plain umount: what is in the page cache is written back, and a
 * mount whose files are open is busy.  So umount -f loses nothing at a server that works.
 *
 * If it does not, the device is given up, as by timeout=: requests in flight end with -EIO, all
 * later ones with -ENOTCONN, and what was not written back is lost.  Nothing on the way of umount
 * waits for the server after that.  If files are open, it is busy all the same, but the calls
 * that waited have ended, so their tasks can go, and the next umount finds the mount free.
 *
 * A fatal signal ends the wait for the answer: then the device is given up at once.  The umount
 * itself goes on, and would wait for the server again, at its exit, where no signal ends it.
 *
 * The next mount starts the device anew, see pvfs_dev_revive().  It does not ask whether there is
 * a server: if that is still silent, the first access waits, and umount -f ends that as well.
 *
 * The core's own way, fuse_abort_conn() alone, would not do: requests that the device has would
 * stay in the ring, because only a reset gets their memory back, and the core gives up servers
 * that work, too.
 */
#include "pvfs.h"

#include <linux/completion.h>
#include <linux/slab.h>

#define PVFS_FORCE_SECONDS	10
#define PVFS_FORCE_TIMES	30

/* The request's until its end, and of umount -f until it waits no more. */
struct pvfs_probe {
	struct fuse_args args;
	struct fuse_statfs_out out;
	struct completion answered;
	struct kref ref;
};

static void pvfs_probe_free(struct kref *ref)
{
	kfree(container_of(ref, struct pvfs_probe, ref));
}

static void pvfs_probe_end(struct fuse_mount *fm, struct fuse_args *args, int error)
{
	struct pvfs_probe *probe = container_of(args, struct pvfs_probe, args);

	complete(&probe->answered);
	kref_put(&probe->ref, pvfs_probe_free);
}

/*
 * In the background, so that it does not wait here for the answer to INIT or room in the ring.
 * Returns NULL if the device has been given up already, or there is no memory.
 */
static struct pvfs_probe *pvfs_probe_send(struct fuse_mount *fm)
{
	struct pvfs_probe *probe = kmalloc(sizeof(*probe), GFP_KERNEL);

	if (!probe)
		return NULL;
	probe->args = (struct fuse_args){
		.opcode = FUSE_STATFS,
		.nodeid = FUSE_ROOT_ID,
		.out_numargs = 1,
		.out_args[0] = { .size = sizeof(probe->out), .value = &probe->out },
		.force = true,
		.nocreds = true,
		.end = pvfs_probe_end,
	};
	init_completion(&probe->answered);
	kref_init(&probe->ref);
	kref_get(&probe->ref);
	if (!fuse_simple_background(fm, &probe->args, GFP_KERNEL))
		return probe;
	kfree(probe);
	return NULL;
}

static bool pvfs_probe_is_answered(struct pvfs_dev *dev, struct pvfs_probe *probe)
{
	unsigned int times = PVFS_FORCE_TIMES;
	u64 before;
	long left;

	do {
		before = pvfs_replies(dev);
		left = wait_for_completion_killable_timeout(&probe->answered,
							    PVFS_FORCE_SECONDS * HZ);
	} while (!left && pvfs_replies(dev) != before && --times);
	return left > 0;
}

/**
 * pvfs_umount_begin - umount -f begins, by the rule of this file
 * @sb: of a mount of the device, or of one of its submounts
 */
void pvfs_umount_begin(struct super_block *sb)
{
	struct fuse_mount *fm = get_fuse_mount_super(sb);
	struct pvfs_dev *dev = fm->fc->iq.priv;
	struct pvfs_probe *probe = pvfs_probe_send(fm);

	if (!probe)
		return;
	if (!pvfs_probe_is_answered(dev, probe)) {
		pr_err("pvfs: %s does not answer, and is given up (umount -f)\n", dev->tag);
		queue_work(pvfs_fail_wq, &dev->fail_work);
		/*
		 * That ends every request, this one as well, unless the reset never ends.  The
		 * core forgets its own requests at the end of the same work.
		 */
		if (!wait_for_completion_killable(&probe->answered))
			flush_work(&dev->fail_work);
	}
	kref_put(&probe->ref, pvfs_probe_free);
}
