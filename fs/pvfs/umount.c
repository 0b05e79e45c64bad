// SPDX-License-Identifier: GPL-2.0
/*
 * umount -f: it ends a mount even if the server does not answer.
 *
 * The rule
 * --------
 * Before the kernel unmounts anything, the driver sends a small request, the ping.  It takes the
 * server to be silent in two cases:
 *
 * - The server answers nothing at all for PVFS_FORCE_SECONDS.  An answer to any request counts,
 *   because the ping may have to wait behind queued writes.
 * - The server has not answered the ping after PVFS_FORCE_TIMES times PVFS_FORCE_SECONDS.
 *
 * If the server answers the ping, umount -f is a plain umount.  The kernel writes the page cache
 * back, and the umount fails with -EBUSY if files are open.  So umount -f loses no data if the
 * server works.
 *
 * If the server is silent, the driver gives the device up, as with timeout=.  Requests in flight
 * end with -EIO, and all later ones with -ENOTCONN.  Data that were not written back are lost.
 * After that, umount never waits for the server.  If files are open, it fails with -EBUSY all the
 * same.  But the calls that waited for the server have ended, so their tasks can go, and then the
 * next umount succeeds.
 *
 * If umount is killed while it waits for the answer, the driver gives the device up at once.  It
 * has to, because umount itself goes on.  It would wait for the server again when its task exits,
 * and no signal ends that wait.
 *
 * The next mount starts the device anew, see pvfs_dev_revive().  It does not check that the server
 * answers.  If the server is still silent, the first access waits, and umount -f ends that wait,
 * too.
 *
 * The core's own umount -f, fuse_abort_conn() alone, is not enough.  Requests that the device has
 * would stay in the ring, because only a reset gets their memory back.  The core would also
 * give up servers that work.
 */
#include "pvfs.h"

#include <linux/completion.h>
#include <linux/slab.h>

#define PVFS_FORCE_SECONDS	10
#define PVFS_FORCE_TIMES	30

/* The request holds a reference until its end, and umount -f holds one while it waits. */
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
 * Send the ping in the background, so that umount does not wait here for the answer to INIT, or for
 * room in the ring.  Returns NULL if the driver has given the device up already, or if there is no
 * memory.
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
 * pvfs_umount_begin - begin umount -f, by the rule at the top of this file
 * @sb: the main superblock of the device, or that of a submount
 */
void pvfs_umount_begin(struct super_block *sb)
{
	struct fuse_mount *fm = get_fuse_mount_super(sb);
	struct pvfs_dev *dev = fm->fc->iq.priv;
	struct pvfs_ping *ping = pvfs_ping_send(fm);

	if (!ping)
		return;
	if (!pvfs_ping_is_answered(dev, ping)) {
		pr_err("pvfs: %s: umount -f got no answer from the server; giving up the device, data not yet written back are lost\n",
		       dev->tag);
		queue_work(pvfs_fail_wq, &dev->fail_work);
		/*
		 * fail_work ends every request, the ping as well, unless the reset never ends.
		 * When the ping has ended, wait for the end of fail_work, because there the core
		 * ends the requests that it has not sent.
		 */
		if (!wait_for_completion_killable(&ping->answered))
			flush_work(&dev->fail_work);
	}
	kref_put(&ping->ref, pvfs_ping_free);
}
