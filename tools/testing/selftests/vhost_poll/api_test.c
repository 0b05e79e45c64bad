// SPDX-License-Identifier: GPL-2.0
/* The ioctls of /dev/vhost-poll: what is refused, and with which error. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "poller.h"

/* A structure with room for what a later version may append. */
union create {
	struct vhost_poll_create arg;
	char room[8192];
};

union stats {
	struct vhost_poll_stats st;
	char room[8192];
};

static int create_sized(unsigned int size, int last_byte)
{
	union create u = { .arg = { .size = size } };
	int fd = open_poller(), ret;

	if (last_byte && size && size <= sizeof(u))
		u.room[size - 1] = last_byte;
	ret = ctl(fd, VHOST_POLL_CREATE, &u);
	close(fd);
	return ret;
}

static void device_is_for_root_only(void)
{
	struct stat st;

	need_poll();
	EXPECT_EQ(stat("/dev/vhost-poll", &st), 0);
	EXPECT_EQ(st.st_mode & 0777, 0600);
}

static void create_checks_its_size(void)
{
	unsigned int exact = sizeof(struct vhost_poll_create);

	EXPECT_EQ(create_sized(0, 0), -EINVAL);
	EXPECT_EQ(create_sized(4, 0), -EINVAL);
	EXPECT_EQ(create_sized(exact - 1, 0), -EINVAL);
	EXPECT_EQ(create_sized(exact, 0), 0);
	EXPECT_EQ(create_sized(exact + 8, 0), 0);
	EXPECT_EQ(create_sized(exact + 8, 1), -E2BIG);
	EXPECT_EQ(create_sized(8192, 0), -E2BIG);
	EXPECT_EQ(create_sized(0xffffffff, 0), -E2BIG);
}

static void bad_addresses_are_refused(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_EVENT, "addr");
	unsigned long bad[] = { 0, 8, ~0UL - 64, 1UL << 62 };
	unsigned int i;

	for (i = 0; i < KTAP_COUNT(bad); i++) {
		void *p = (void *)bad[i];

		EXPECT_EQ(ctl(fd, VHOST_POLL_CREATE, p), -EFAULT);
		EXPECT_EQ(ctl(fd, VHOST_POLL_SET_MODE, p), -EFAULT);
		EXPECT_EQ(ctl(fd, VHOST_POLL_GET_STATS, p), -EFAULT);
	}
}

static int create_with(struct vhost_poll_create arg)
{
	int fd = open_poller(), ret;

	arg.size = sizeof(arg);
	ret = ctl(fd, VHOST_POLL_CREATE, &arg);
	close(fd);
	return ret;
}

static void create_refuses_unknown_bits(void)
{
	unsigned int bit;

	for (bit = 0; bit < 32; bit++)
		EXPECT_EQ(create_with((struct vhost_poll_create){
				.flags = 1U << bit }), -EINVAL);
	EXPECT_EQ(create_with((struct vhost_poll_create){
			.mode = VHOST_POLL_MODE_EVENT + 1 }), -EINVAL);
	EXPECT_EQ(create_with((struct vhost_poll_create){ .mode = ~0U }),
		  -EINVAL);
}

static void create_refuses_impossible_cpus(void)
{
	EXPECT_EQ(create_with((struct vhost_poll_create){ .cpu = 1 << 20 }),
		  -EINVAL);
	EXPECT_EQ(create_with((struct vhost_poll_create){ .cpu = ~0U }),
		  -EINVAL);
}

static void create_refuses_bad_names(void)
{
	EXPECT_EQ(create_with((struct vhost_poll_create){
			.name = "0123456789abcdef" }), -EINVAL);
	EXPECT_EQ(create_with((struct vhost_poll_create){ .name = "a\nb" }),
		  -EINVAL);
	EXPECT_EQ(create_with((struct vhost_poll_create){ .name = "a b" }),
		  -EINVAL);
	EXPECT_EQ(create_with((struct vhost_poll_create){ .name = "\xff" }),
		  -EINVAL);
	EXPECT_EQ(create_with((struct vhost_poll_create){ .name = "%s%n" }), 0);
	EXPECT_EQ(create_with((struct vhost_poll_create){
			.name = "0123456789abcde" }), 0);
}

static void other_ioctls_are_unknown(void)
{
	int fd = open_poller();

	EXPECT_EQ(ctl(fd, _IO(VHOST_POLL_IOC, 0xA3), NULL), -ENOTTY);
	EXPECT_EQ(ctl(fd, _IO(VHOST_POLL_IOC, 0xA0), NULL), -ENOTTY);
	EXPECT_EQ(ctl(fd, _IO(0xAE, 0xA0), NULL), -ENOTTY);
	EXPECT_EQ(read(fd, &fd, sizeof(fd)), -1);
	EXPECT_EQ(lseek(fd, 0, SEEK_SET), -1);
}

static void before_create_there_is_nothing(void)
{
	union stats u = { .st.size = sizeof(u.st) };
	int fd = open_poller();

	EXPECT_EQ(set_mode(fd, VHOST_POLL_MODE_BUSY), -ENXIO);
	EXPECT_EQ(ctl(fd, VHOST_POLL_GET_STATS, &u), -ENXIO);
}

static void a_descriptor_is_one_poller(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_EVENT, "one");

	EXPECT_EQ(try_create(fd, 0, VHOST_POLL_MODE_BUSY, "two"), -EBUSY);
	EXPECT_EQ(poller_stats(fd).mode, VHOST_POLL_MODE_EVENT);
	EVENTUALLY(!poller_pid(0, "two"));
}

static void a_refused_create_can_be_repeated(void)
{
	int fd = open_poller();

	EXPECT_EQ(try_create(fd, 1 << 20, 0, "again"), -EINVAL);
	EXPECT_EQ(try_create(fd, 0, 0, "again"), 0);
}

static void drop_capability(unsigned int cap)
{
	struct __user_cap_header_struct hdr = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2];

	EXPECT_EQ(syscall(SYS_capget, &hdr, data), 0);
	data[CAP_TO_INDEX(cap)].effective &= ~CAP_TO_MASK(cap);
	EXPECT_EQ(syscall(SYS_capset, &hdr, data), 0);
}

static void taking_a_core_needs_a_capability(void)
{
	int owned = create_poller(0, VHOST_POLL_MODE_EVENT, "before");
	int fd = open_poller();

	drop_capability(CAP_SYS_NICE);
	EXPECT_EQ(try_create(fd, 0, VHOST_POLL_MODE_EVENT, "after"), -EPERM);
	/* The descriptor is what counts for the rest, the whole core included. */
	EXPECT_EQ(set_mode(owned, VHOST_POLL_MODE_ADAPTIVE), 0);
	EXPECT_EQ(poller_stats(owned).mode, VHOST_POLL_MODE_ADAPTIVE);
	EXPECT_EQ(set_mode(owned, VHOST_POLL_MODE_BUSY), 0);
	EXPECT_EQ(poller_stats(owned).mode, VHOST_POLL_MODE_BUSY);
}

static void modes_are_read_back(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_ADAPTIVE, "modes");
	unsigned int i;

	for (i = 0; i < 30; i++) {
		EXPECT_EQ(set_mode(fd, i % 3), 0);
		EXPECT_EQ(poller_stats(fd).mode, i % 3);
	}
}

static void set_mode_checks_its_argument(void)
{
	struct {
		struct vhost_poll_set_mode arg;
		unsigned int more[2];
	} m = { .arg.size = sizeof(m) };
	int fd = create_poller(0, VHOST_POLL_MODE_ADAPTIVE, "setmode");

	EXPECT_EQ(ctl(fd, VHOST_POLL_SET_MODE, &m), 0);
	m.more[1] = 1;
	EXPECT_EQ(ctl(fd, VHOST_POLL_SET_MODE, &m), -E2BIG);
	m.arg.size = sizeof(m.arg) - 1;
	EXPECT_EQ(ctl(fd, VHOST_POLL_SET_MODE, &m), -EINVAL);
	m.arg.size = sizeof(m.arg);
	m.arg.flags = 1;
	EXPECT_EQ(ctl(fd, VHOST_POLL_SET_MODE, &m), -EINVAL);
	m.arg.flags = 0;
	m.arg.pad = 1;
	EXPECT_EQ(ctl(fd, VHOST_POLL_SET_MODE, &m), -EINVAL);
	EXPECT_EQ(set_mode(fd, 3), -EINVAL);
	EXPECT_EQ(poller_stats(fd).mode, VHOST_POLL_MODE_ADAPTIVE);
}

static void stats_fit_the_room(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_EVENT, "stats");
	union stats u;

	memset(&u, 0xaa, sizeof(u));
	u.st.size = sizeof(u.st) + 16;
	u.st.flags = 0;
	EXPECT_EQ(ctl(fd, VHOST_POLL_GET_STATS, &u), 0);
	EXPECT_EQ(u.st.size, sizeof(u.st));
	EXPECT_EQ(u.st.flags, 0);
	EXPECT_EQ(u.st.sources, 0);
	EXPECT_EQ(u.room[sizeof(u.st)], 0);
	EXPECT_EQ(u.room[sizeof(u.st) + 15], 0);
	EXPECT_EQ((unsigned char)u.room[sizeof(u.st) + 16], 0xaa);

	/* The first version had no more. */
	memset(&u, 0xaa, sizeof(u));
	u.st.size = offsetof(struct vhost_poll_stats, hot);
	u.st.flags = 0;
	EXPECT_EQ(ctl(fd, VHOST_POLL_GET_STATS, &u), 0);
	EXPECT_EQ(u.st.size, offsetof(struct vhost_poll_stats, hot));
	EXPECT_EQ((unsigned char)u.room[u.st.size], 0xaa);

	u.st.size = offsetof(struct vhost_poll_stats, hot) - 1;
	EXPECT_EQ(ctl(fd, VHOST_POLL_GET_STATS, &u), -EINVAL);
	u.st.size = 8192;
	EXPECT_EQ(ctl(fd, VHOST_POLL_GET_STATS, &u), -E2BIG);
	u.st.size = sizeof(u.st);
	u.st.flags = 1;
	EXPECT_EQ(ctl(fd, VHOST_POLL_GET_STATS, &u), -EINVAL);
}

static const struct ktap_test tests[] = {
	{ "device_is_for_root_only", device_is_for_root_only, 0 },
	{ "create_checks_its_size", create_checks_its_size, 0 },
	{ "bad_addresses_are_refused", bad_addresses_are_refused, 0 },
	{ "create_refuses_unknown_bits", create_refuses_unknown_bits, 0 },
	{ "create_refuses_impossible_cpus", create_refuses_impossible_cpus, 0 },
	{ "create_refuses_bad_names", create_refuses_bad_names, 0 },
	{ "other_ioctls_are_unknown", other_ioctls_are_unknown, 0 },
	{ "before_create_there_is_nothing", before_create_there_is_nothing, 0 },
	{ "a_descriptor_is_one_poller", a_descriptor_is_one_poller, 0 },
	{ "a_refused_create_can_be_repeated", a_refused_create_can_be_repeated, 0 },
	{ "taking_a_core_needs_a_capability", taking_a_core_needs_a_capability, 0 },
	{ "modes_are_read_back", modes_are_read_back, 0 },
	{ "set_mode_checks_its_argument", set_mode_checks_its_argument, 0 },
	{ "stats_fit_the_room", stats_fit_the_room, 0 },
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, KTAP_COUNT(tests));
}
