// SPDX-License-Identifier: GPL-2.0
/*
 * How swapped nodes come back, and which ones are swapped.  vhost_fs_info counts how often nodes
 * came back, and how many directories were searched for them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsrig.h"
#include "swapped.h"

/* A guest that asks again and again does not keep the workers at it. */
static void search_for_what_is_gone(void)
{
	struct fs *f = begin();
	unsigned int i, k;
	u64 one, before;

	EXPECT(!mkdir(fs_path(f, "d"), 0755));
	host_file(f, "d/one");
	EXPECT(!link(fs_path(f, "d/one"), fs_path(f, "../one")));
	one = fs_node(f, "d/one");
	for (k = 0; k < 3; k++) {
		swap_all(f);
		before = searches(f);
		EXPECT(!unlink(fs_path(f, "d/one")));
		for (i = 0; i < 5; i++) {
			host_drops();
			EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
		}
		EXPECT_EQ(searches(f), before + 1);
		/* It is served once it is there again, and from then on searched for as others. */
		EXPECT(!link(fs_path(f, "../one"), fs_path(f, "d/one")));
		EXPECT_EQ(reads(f, one, "d/one"), 0);
	}
	/* This one has no name anywhere. */
	swap_all(f);
	before = searches(f);
	EXPECT(!unlink(fs_path(f, "../one")));
	EXPECT(!unlink(fs_path(f, "d/one")));
	EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
	EXPECT_EQ(searches(f), before);
	end(f);
}

static void reach_what_is_at_its_place(void)
{
	struct fs *f = begin();
	static const char *const names[] = { "a", "b", "c" };
	u64 dir[4], one, before = searches(f);
	unsigned int i;

	EXPECT(!mkdir(fs_path(f, "a"), 0755));
	EXPECT(!mkdir(fs_path(f, "a/b"), 0755));
	EXPECT(!mkdir(fs_path(f, "a/b/c"), 0755));
	host_file(f, "a/b/c/one");
	dir[0] = ROOT;
	for (i = 0; i < 3; i++)
		dir[i + 1] = known_child(f, dir[i], names[i]);
	one = known_child(f, dir[3], "one");
	for (i = 0; i < 3; i++) {
		swap_all(f);
		host_drops();
		EXPECT_EQ(reads(f, one, "a/b/c/one"), 0);
		EXPECT_EQ(fs_getattr(f, dir[3], NULL), 0);
	}
	EXPECT_EQ(searches(f), before);
	/* The way up is not known any more. */
	swap_all(f);
	fs_forget(f, dir[1], 1);
	fs_forget(f, dir[2], 1);
	host_drops();
	EXPECT_EQ(reads(f, one, "a/b/c/one"), 0);
	EXPECT_EQ(searches(f), before + (drops_names() ? 2 : 0));
	end(f);
}

/* A directory as well as a file, and two that are exchanged. */
static void rename_what_is_swapped(void)
{
	struct fs *f = begin();
	u64 d, e, one, two, sub, in, before = searches(f);

	EXPECT(!mkdir(fs_path(f, "d"), 0755));
	EXPECT(!mkdir(fs_path(f, "e"), 0755));
	EXPECT(!mkdir(fs_path(f, "d/sub"), 0755));
	host_file(f, "d/one");
	host_file(f, "d/two");
	host_file(f, "d/sub/in");
	d = fs_node(f, "d");
	e = fs_node(f, "e");
	one = fs_node(f, "d/one");
	two = fs_node(f, "d/two");
	sub = fs_node(f, "d/sub");
	in = fs_node(f, "d/sub/in");
	swap_all(f);
	host_drops();
	EXPECT_EQ(fs_rename(f, d, "one", e, "1", 0), 0);
	EXPECT_EQ(fs_rename(f, d, "sub", e, "s", 0), 0);
	swap_all(f);
	host_drops();
	EXPECT_EQ(reads(f, one, "d/one"), 0);
	EXPECT_EQ(reads(f, in, "d/sub/in"), 0);
	EXPECT_EQ(fs_getattr(f, sub, NULL), 0);
	swap_all(f);
	host_drops();
	EXPECT_EQ(fs_rename(f, d, "two", e, "1", RENAME_EXCHANGE), 0);
	swap_all(f);
	host_drops();
	EXPECT_EQ(reads(f, one, "d/one"), 0);
	EXPECT_EQ(reads(f, two, "d/two"), 0);
	EXPECT_EQ(searches(f), before);
	end(f);
}

#define MANY	64	/* nodes that may be live, of a bigger guest */

static void know_many(struct fs *f, const char *kind, u64 *node, unsigned int nr)
{
	char name[16];
	unsigned int i;

	for (i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "%s%u", kind, i);
		fs_host_write(f, name, "", 0);
		node[i] = known_child(f, ROOT, name);
	}
}

/* Returns how many had been swapped. */
static u64 visit(struct fs *f, const u64 *node, unsigned int nr)
{
	u64 before = came_back(f);
	unsigned int i;

	for (i = 0; i < nr; i++)
		EXPECT_EQ(fs_getattr(f, node[i], NULL), 0);
	return came_back(f) - before;
}

/* If the oldest one went, each visit would find its node swapped. */
static void a_loop_over_a_little_more_than_the_cap_keeps_most(void)
{
	struct fs *f = begin_with(0, MANY);
	u64 node[MANY + MANY / 10], back = 0;
	unsigned int i, visits = 0;

	know_many(f, "a", node, KTAP_COUNT(node));
	for (i = 0; i < 13; i++) {
		u64 n = visit(f, node, KTAP_COUNT(node));

		if (i < 3)
			continue;
		back += n;
		visits += KTAP_COUNT(node);
	}
	ktap_msg("of %u visits, %llu found their node swapped", visits, (unsigned long long)back);
	EXPECT(back);
	EXPECT(back * 5 <= visits);
	end(f);
}

/* The kernel swaps nodes that the guest no longer uses, however long the guest used them. */
static void a_new_working_set_takes_the_place_of_the_old_one(void)
{
	struct fs *f = begin_with(0, MANY);
	u64 old[MANY], new[MANY / 2], back = 0;
	unsigned int i;

	know_many(f, "a", old, KTAP_COUNT(old));
	know_many(f, "b", new, KTAP_COUNT(new));
	for (i = 0; i < 10; i++)
		visit(f, old, KTAP_COUNT(old));
	for (i = 0; i < 10; i++)
		back += visit(f, new, KTAP_COUNT(new));
	ktap_msg("it took %llu to come back", (unsigned long long)back);
	EXPECT(back <= 3 * MANY);
	EXPECT_EQ(visit(f, new, KTAP_COUNT(new)), 0);
	end(f);
}

/* A guest with the default of max_dentries, which is MANY then. */
static struct fs *begin_by_default(void)
{
	const struct vhost_fs_export export = { .max_nodes = 10 * MANY };

	return begin_as(&export);
}

static void by_default_a_tenth_of_the_nodes_is_live(void)
{
	struct fs *f = begin_by_default();
	struct vhost_fs_info info;
	u64 node[3 * MANY];

	know_many(f, "a", node, KTAP_COUNT(node));
	fs_info(f, &info);
	EXPECT_EQ(info.max_dentries, MANY);
	EXPECT_EQ(info.nodes, KTAP_COUNT(node));
	EXPECT(info.dentries <= MANY + MANY / 16);
	EXPECT(visit(f, node, KTAP_COUNT(node)));
	fs_info(f, &info);
	EXPECT(info.dentries <= MANY + MANY / 16);
	EXPECT_EQ(info.refused, 0);
	end(f);
}

/* It would fail what was served before nodes were swapped. */
static void by_default_open_files_are_no_limit(void)
{
	struct fs *f = begin_by_default();
	u64 node[2 * MANY], fh[2 * MANY];
	struct vhost_fs_info info;
	struct fuse_entry_out e;
	char name[16];
	unsigned int i;

	for (i = 0; i < KTAP_COUNT(node); i++) {
		snprintf(name, sizeof(name), "a%u", i);
		EXPECT_EQ(fs_create(f, ROOT, name, O_RDWR, 0600, &e, &fh[i]), 0);
		node[i] = e.nodeid;
	}
	EXPECT_EQ(fs_mkdir(f, ROOT, "new", 0755, NULL), 0);
	known_child(f, ROOT, "filler0");
	fs_info(f, &info);
	EXPECT_EQ(info.refused, 0);
	EXPECT(info.dentries >= KTAP_COUNT(node));
	for (i = 0; i < KTAP_COUNT(node); i++)
		EXPECT_EQ(fs_release(f, node[i], fh[i]), 0);
	known_child(f, ROOT, "filler1");
	fs_info(f, &info);
	EXPECT(info.dentries <= MANY + MANY / 16);
	end(f);
}

/* tmpfs keeps the inode of a swapped node, so its guests would wait for nothing. */
static void by_default_nodes_of_tmpfs_stay_live(void)
{
	struct vhost_fs_info info;
	u64 node[3 * MANY];
	struct fs *f;

	swap_kind = "tmpfs";
	f = begin_by_default();
	know_many(f, "a", node, KTAP_COUNT(node));
	fs_info(f, &info);
	EXPECT_EQ(info.dentries, KTAP_COUNT(node));
	EXPECT_EQ(info.swapped_out, 0);
	EXPECT_EQ(info.refused, 0);
	end(f);
}

#define SEARCHED	65536	/* entries that are looked at for a request */

/* In xfs they are read in the order in which they were made, if none was removed. */
static void add_entries(struct fs *f, unsigned int nr)
{
	char from[256], name[16];
	unsigned int i;

	host_file(f, "d/e");
	snprintf(from, sizeof(from), "%s", fs_path(f, "d/e"));
	for (i = 1; i < nr; i++) {
		snprintf(name, sizeof(name), "d/e%05u", i);
		EXPECT(!link(from, fs_path(f, name)));
	}
}

static void remove_entries(struct fs *f, unsigned int nr)
{
	char name[16];
	unsigned int i;

	for (i = 1; i <= nr; i++) {
		snprintf(name, sizeof(name), "d/e%05u", i);
		EXPECT(!unlink(fs_path(f, name)));
	}
}

/* The long names fit into no gap between those before them, so they are the last. */
static void a_search_looks_at_so_many_entries_only(void)
{
	u64 one, before;
	struct fs *f;

	swap_kind = "xfs";
	f = begin();
	EXPECT(!mkdir(fs_path(f, "d"), 0755));
	add_entries(f, SEARCHED + 50);
	host_file(f, "d/a_long_name_that_fits_no_gap");
	one = fs_node(f, "d/a_long_name_that_fits_no_gap");
	swap_all(f);
	host_move(f, "d/a_long_name_that_fits_no_gap", "d/another_name_that_fits_no_gap");
	host_drops();
	before = searches(f);
	EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
	EXPECT_EQ(searches(f), before + 1);
	/* It is found where fewer are before it. */
	EXPECT_EQ(fs_node(f, "d/another_name_that_fits_no_gap"), one);
	swap_all(f);
	remove_entries(f, 100);
	host_move(f, "d/another_name_that_fits_no_gap", "d/a_name_that_fits_no_gap");
	host_drops();
	before = searches(f);
	EXPECT_EQ(reads(f, one, "d/a_long_name_that_fits_no_gap"), 0);
	EXPECT_EQ(searches(f), before + 1);
	end(f);
}

static void on_each(void (*test)(void))
{
	static const char *const kinds[] = { "tmpfs", "ext4", "xfs" };
	unsigned int i;

	for (i = 0; i < KTAP_COUNT(kinds); i++) {
		swap_kind = kinds[i];
		ktap_msg("on %s", swap_kind);
		test();
	}
}

static void what_is_gone_is_searched_for_once(void)
{
	on_each(search_for_what_is_gone);
}

static void what_is_at_its_place_is_not_searched_for(void)
{
	on_each(reach_what_is_at_its_place);
}

static void renames_by_the_guest_need_no_search(void)
{
	on_each(rename_what_is_swapped);
}

static const struct ktap_test tests[] = {
	{ "what_is_gone_is_searched_for_once", what_is_gone_is_searched_for_once },
	{ "what_is_at_its_place_is_not_searched_for",
	  what_is_at_its_place_is_not_searched_for },
	{ "renames_by_the_guest_need_no_search", renames_by_the_guest_need_no_search },
	{ "a_loop_over_a_little_more_than_the_cap_keeps_most",
	  a_loop_over_a_little_more_than_the_cap_keeps_most },
	{ "a_new_working_set_takes_the_place_of_the_old_one",
	  a_new_working_set_takes_the_place_of_the_old_one },
	{ "by_default_a_tenth_of_the_nodes_is_live", by_default_a_tenth_of_the_nodes_is_live },
	{ "by_default_open_files_are_no_limit", by_default_open_files_are_no_limit },
	{ "by_default_nodes_of_tmpfs_stay_live", by_default_nodes_of_tmpfs_stay_live },
	{ "a_search_looks_at_so_many_entries_only", a_search_looks_at_so_many_entries_only, 400 },
};

int main(int argc, char **argv)
{
	swap_kind = "ext4";
	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), fs_cleanup);
}
