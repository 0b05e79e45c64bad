// SPDX-License-Identifier: GPL-2.0
/*
 * umount -f: a server that does not answer does not keep the mount.
 *
 * The rule
 * --------
 * Before anything is unmounted, the driver sends a small request, the ping.  The server is silent
 * if it answers nothing at all for PVFS_FORCE_SECONDS.  Any answer counts, because the ping may
 * wait behind queued writes.  After PVFS_FORCE_TIMES as long the server has to have answered it.
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

/* The request holds a reference until its end, and umount -f one while it waits. */
struct pvfs_ping {
	struct fuse_args args;
	struct fuse_statfs_out out;
	struct completion answered;
	struct kref ref;
};

static void pvfs_ping_free(struct kref *ref)
{
	kfree(container_of(ref, struct pvfs_ping, ref));
}

static void pvfs_ping_end(struct fuse_mount *fm, struct fuse_args *args, int error)
{
	struct pvfs_ping *ping = container_of(args, struct pvfs_ping, args);

	complete(&ping->answered);
	kref_put(&ping->ref, pvfs_ping_free);
}

/*
 * Send the ping in the background, so that umount does not wait here for the answer to INIT or room
 * in the ring.  Returns NULL if the device has been given up already, or there is no memory.
 */
static struct pvfs_ping *pvfs_ping_send(struct fuse_mount *fm)
{
	struct pvfs_ping *ping = kmalloc(sizeof(*ping), GFP_KERNEL);

	if (!ping)
		return NULL;
	ping->args = (struct fuse_args){
		.opcode = FUSE_STATFS,
		.nodeid = FUSE_ROOT_ID,
		.out_numargs = 1,
		.out_args[0] = { .size = sizeof(ping->out), .value = &ping->out },
		.force = true,
		.nocreds = true,
		.end = pvfs_ping_end,
	};
	init_completion(&ping->answered);
	kref_init(&ping->ref);
	kref_get(&ping->ref);
	if (!fuse_simple_background(fm, &ping->args, GFP_KERNEL))
		return ping;
	kfree(ping);
	return NULL;
}

static bool pvfs_ping_is_answered(struct pvfs_dev *dev, struct pvfs_ping *ping)
{
	unsigned int times = PVFS_FORCE_TIMES;
	u64 before;
	long left;

	do {
		before = pvfs_replies(dev);
		left = wait_for_completion_killable_timeout(&ping->answered,
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
	struct pvfs_ping *ping = pvfs_ping_send(fm);

	if (!ping)
		return;
	if (!pvfs_ping_is_answered(dev, ping)) {
		pr_err("pvfs: %s does not answer, and is given up (umount -f)\n", dev->tag);
		queue_work(pvfs_fail_wq, &dev->fail_work);
		/*
		 * fail_work ends every request, the ping as well, unless the reset never ends.  At
		 * its end the core drops the requests that it has not sent.
		 */
		if (!wait_for_completion_killable(&ping->answered))
			flush_work(&dev->fail_work);
	}
	kref_put(&ping->ref, pvfs_ping_free);
}
