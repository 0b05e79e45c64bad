// SPDX-License-Identifier: GPL-2.0
/* A guest that means harm: its tools; see hostile.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/vhost.h>

#include "hostile.h"

#define TABLE_LEN	64
#define DATA_LEN	65536
/* of what is on the disk, and in the data, before anything is played */
#define DISK_SEED	3
#define DATA_SEED	5

u64 hostile_rnd(struct hostile *h, u64 below)
{
	h->seed ^= h->seed << 13;
	h->seed ^= h->seed >> 7;
	h->seed ^= h->seed << 17;
	return (h->seed >> 8) % below;
}

u64 hostile_gpa(struct hostile *h, unsigned int addr)
{
	struct ring_mem *mem = &h->g.mem;
	struct vring *vr = &h->g.ring[0].vr;

	switch (addr) {
	case A_HDR:
		return ring_gpa(mem, h->hdr);
	case A_DATA:
		return ring_gpa(mem, h->data);
	case A_STAT:
		return ring_gpa(mem, h->status);
	case A_TABLE:
		return ring_gpa(mem, h->table);
	case A_WILD:
		return 0xdead00000000ULL;
	case A_BELOW:
		return mem->gpa - 8;
	case A_TOP:
		return mem->gpa + mem->size - 8;
	case A_PAST:
		return mem->gpa + mem->size;
	case A_MAX:
		return ~0ULL - 7;
	case A_DESC:
		return ring_gpa(mem, vr->desc);
	case A_AVAIL:
		return ring_gpa(mem, vr->avail);
	case A_USED:
		return ring_gpa(mem, vr->used);
	default:
		return 0;
	}
}

static void watch_for_breaking(struct hostile *h)
{
	struct vhost_vring_file f = { .index = 0 };

	h->err = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	EXPECT(h->err >= 0);
	f.fd = h->err;
	EXPECT(!ioctl(h->g.dev.fd, VHOST_SET_VRING_ERR, &f));
}

void hostile_open(struct hostile *h, u32 engine, u32 flags)
{
	struct rig_opts o = {
		.mode = VHOST_POLL_MODE_BUSY, .ring_size = HOSTILE_RING,
		.engine = engine, .flags = flags,
	};

	memset(h, 0, sizeof(*h));
	h->seed = ktap_env("SEED", getpid() * 0x9e3779b97f4a7c15ULL) | 1;
	ktap_msg("SEED=%llu repeats this run", (unsigned long long)h->seed);
	backend_need_modules();
	h->disk = nullb_create(&(struct nullb){
			.name = "victim", .discard = true });
	rig_open(&h->g, h->disk, &o);
	watch_for_breaking(h);
	o.share_poller = h->g.poller[0];
	rig_open(&h->other, nullb_create(&(struct nullb){
			.name = "other" }), &o);

	h->hdr = ring_mem_alloc(&h->g.mem, 4096, 4096);
	h->status = (u8 *)h->hdr + 1024;
	h->table = ring_mem_alloc(&h->g.mem, TABLE_LEN * 16, 4096);
	h->data = ring_mem_alloc(&h->g.mem, DATA_LEN, 4096);
	EXPECT(h->hdr && h->table && h->data);
}

void hostile_close(struct hostile *h)
{
	rig_close(&h->other);
	rig_close(&h->g);
	close(h->err);
}

void hostile_fresh(struct hostile *h)
{
	struct vhost_vring_state s = { .index = 0, .num = 0 };

	ring_reset(&h->g.ring[0], 0);
	EXPECT(!ioctl(h->g.dev.fd, VHOST_SET_VRING_BASE, &s));
	EXPECT_EQ(vblk_start(h->g.dev.fd, 0), 0);
}

void hostile_stop(struct hostile *h)
{
	EXPECT_EQ(vblk_stop(h->g.dev.fd, 0), 0);
}

static u64 rounds(struct hostile *h)
{
	struct vhost_poll_stats ps;

	EXPECT_EQ(poller_stats(h->g.poller[0], &ps), 0);
	return ps.rounds;
}

void hostile_settle(struct hostile *h)
{
	struct vhost_blk_stats st;
	u64 start;
	u16 used;

	do {
		used = h->g.ring[0].vr.used->idx;
		start = rounds(h);
		while (rounds(h) < start + 4)
			;
		rig_stats(&h->g, 0, &st);
	} while (st.inflight || used != h->g.ring[0].vr.used->idx);
}

void hostile_check(struct hostile *h)
{
	hostile_fresh(h);
	rig_check_works(&h->g, 0, 512);
	hostile_stop(h);
	rig_check_works(&h->other, 0, 512);
}

static void put(struct hostile *h, struct vring_desc *d,
		const struct hostile_desc *s)
{
	d->addr = hostile_gpa(h, s->addr);
	d->len = s->len;
	d->flags = s->flags;
	d->next = s->next;
}

static void offer(struct hostile *h, const u16 *heads, unsigned int n,
		  u16 jump)
{
	struct vring *vr = &h->g.ring[0].vr;
	unsigned int i;

	for (i = 0; i < n; i++)
		vr->avail->ring[i % HOSTILE_RING] = heads[i];
	__atomic_store_n(&vr->avail->idx, (u16)(n + jump), __ATOMIC_RELEASE);
	ring_kick_always(&h->g.ring[0]);
}

static const struct outcome {
	u8 status;
	u16 used;
	u64 malformed;
	bool broken;
} outcomes[] = {
	[E_OK]		= { VIRTIO_BLK_S_OK, 1, 0, false },
	[E_IOERR]	= { VIRTIO_BLK_S_IOERR, 1, 0, false },
	[E_UNSUPP]	= { VIRTIO_BLK_S_UNSUPP, 1, 0, false },
	[E_BAD]		= { VIRTIO_BLK_S_IOERR, 1, 1, false },
	[E_DROPPED]	= { NO_STATUS, 1, 1, false },
	[E_IGNORED]	= { NO_STATUS, 0, 1, false },
	[E_BROKEN]	= { NO_STATUS, 0, 1, true },
};

static u8 *status_of(struct hostile *h, const struct hostile_case *c)
{
	if (!c->status_at)
		return h->status;
	return h->g.mem.base + hostile_gpa(h, c->status_in) - h->g.mem.gpa +
	       c->status_at;
}

static struct outcome look(struct hostile *h, const struct hostile_case *c)
{
	u64 times;

	if (read(h->err, &times, sizeof(times)) > 0)
		h->broken = true;
	return (struct outcome){
		.used = __atomic_load_n(&h->g.ring[0].vr.used->idx,
					__ATOMIC_ACQUIRE),
		.status = __atomic_load_n(status_of(h, c), __ATOMIC_ACQUIRE),
		.malformed = rig_malformed(&h->g, 0) - h->malformed,
		.broken = h->broken,
	};
}

static bool as_it_has_to_be(const struct hostile_case *c,
			    const struct outcome *o)
{
	const struct outcome *want = &outcomes[c->end];

	if (c->end == E_SERVED)
		return o->status == VIRTIO_BLK_S_OK;
	return o->status == want->status && o->used == want->used + c->used &&
	       o->malformed == want->malformed + c->malformed &&
	       o->broken == want->broken;
}

/* A worker may see to it, whom settling does not see. */
static void await_end(struct hostile *h, const struct hostile_case *c)
{
	struct outcome o;
	unsigned int ms;

	for (ms = 0; ms < RIG_TIMEOUT_MS; ms++) {
		o = look(h, c);
		if (as_it_has_to_be(c, &o))
			return;
		sleep_ms(1);
	}
}

static void judge(struct hostile *h, const struct hostile_case *c)
{
	struct outcome o = look(h, c);

	if (as_it_has_to_be(c, &o))
		return;
	ktap_msg("%s: status %u, %u used, %llu malformed%s", c->name, o.status,
		 o.used, (unsigned long long)o.malformed,
		 o.broken ? ", broken" : "");
	EXPECT(!"it ended as it has to");
}

static void fill_data_and_disk(struct hostile *h)
{
	rig_pattern(h->data, DATA_LEN, DISK_SEED);
	backend_write(h->disk, 0, h->data, DATA_LEN);
	rig_pattern(h->data, DATA_LEN, DATA_SEED);
}

static void expect_untouched(struct hostile *h, const struct hostile_case *c)
{
	static u8 seen[DATA_LEN];

	if (c->end == E_OK || c->end == E_SERVED)
		return;
	backend_read(h->disk, 0, seen, DATA_LEN);
	if (!rig_pattern_ok(h->data, DATA_LEN, DATA_SEED) ||
	    !rig_pattern_ok(seen, DATA_LEN, DISK_SEED)) {
		ktap_msg("%s: it was refused, and done", c->name);
		EXPECT(!"data and disk are untouched");
	}
}

static void lay_out(struct hostile *h, const struct hostile_case *c)
{
	struct vring *vr = &h->g.ring[0].vr;
	unsigned int i;

	memset(h->hdr, 0, 4096);
	h->hdr->type = c->type;
	h->hdr->sector = c->sector;
	*h->status = NO_STATUS;
	memset(vr->avail->ring, 0, HOSTILE_RING * sizeof(vr->avail->ring[0]));
	for (i = 0; i < HOSTILE_DESCS; i++) {
		put(h, &vr->desc[i], &c->d[i]);
		put(h, &h->table[i], &c->table[i]);
	}
}

void hostile_play(struct hostile *h, const struct hostile_case *c)
{
	static const u16 first[] = { 0 };
	u8 *status = status_of(h, c), before;

	if (ktap_env("VERBOSE", 0))
		ktap_msg("%s", c->name);
	EXPECT(c->end != E_UNSAID);
	fill_data_and_disk(h);
	h->malformed = rig_malformed(&h->g, 0);
	h->broken = false;
	hostile_fresh(h);
	lay_out(h, c);
	before = *status;
	offer(h, c->heads ? c->heads : first, c->heads ? c->nheads : 1,
	      c->jump);
	await_end(h, c);
	hostile_settle(h);
	hostile_stop(h);
	judge(h, c);
	*status = before;
	expect_untouched(h, c);
	h->layouts++;
}

/* Numbers that have broken parsers before. */
static u32 odd_len(struct hostile *h)
{
	static const u32 lens[] = {
		0, 1, 2, 8, 15, 16, 17, 20, 32, 511, 512, 513, 1024, 4096,
		65536, 65537, 1 << 20, 0x7fffffff, 0x80000000, 0xfffffe00,
		0xfffffff0, 0xffffffff
	};

	return lens[hostile_rnd(h, KTAP_COUNT(lens))];
}

static void random_desc(struct hostile *h, struct vring_desc *d,
			unsigned int count)
{
	d->addr = hostile_gpa(h, hostile_rnd(h, A_ADDRS)) +
		  (hostile_rnd(h, 4) ? 0 : hostile_rnd(h, 8192));
	d->len = odd_len(h);
	d->flags = hostile_rnd(h, 16) ? hostile_rnd(h, 8) :
		   hostile_rnd(h, 65536);
	d->next = hostile_rnd(h, 8) ? hostile_rnd(h, count) :
		  hostile_rnd(h, 65536);
}

/* One field, or all, of a descriptor that was right. */
static void spoil(struct hostile *h, struct vring_desc *d, unsigned int count)
{
	struct vring_desc r;

	random_desc(h, &r, count);
	switch (hostile_rnd(h, 5)) {
	case 0:
		d->addr = r.addr;
		break;
	case 1:
		d->len = r.len;
		break;
	case 2:
		d->flags = r.flags;
		break;
	case 3:
		d->next = r.next;
		break;
	default:
		*d = r;
	}
}

/* A right request at descriptors @at and on, as it would be found there. */
static void honest(struct hostile *h, struct vring_desc *d, unsigned int at,
		   bool in)
{
	unsigned int i, n = 1 + hostile_rnd(h, 4);

	d[at] = (struct vring_desc){ hostile_gpa(h, A_HDR) +
				     16 * hostile_rnd(h, 8), 16,
				     VRING_DESC_F_NEXT, at + 1 };
	for (i = 1; i <= n; i++)
		d[at + i] = (struct vring_desc){
			hostile_gpa(h, A_DATA) + 4096 * i,
			512 << hostile_rnd(h, 4),
			VRING_DESC_F_NEXT | (in ? VRING_DESC_F_WRITE : 0),
			at + i + 1
		};
	d[at + i] = (struct vring_desc){ hostile_gpa(h, A_STAT), 1,
					 VRING_DESC_F_WRITE, 0 };
}

static void random_headers(struct hostile *h)
{
	static const u32 types[] = { 0, 1, 0, 1, 4, 8, 11, 13, 0x7777, ~0U };
	static const u64 sectors[] = {
		0, 8, 1000, 131071, 131072, 1ULL << 55, ~0ULL, 1ULL << 63
	};
	unsigned int i;

	for (i = 0; i < 8; i++) {
		h->hdr[i].type = types[hostile_rnd(h, KTAP_COUNT(types))];
		h->hdr[i].sector = sectors[hostile_rnd(h,
						       KTAP_COUNT(sectors))];
	}
}

void hostile_random(struct hostile *h)
{
	struct vring *vr = &h->g.ring[0].vr;
	unsigned int i, n = 1 + hostile_rnd(h, 12), spoils;
	u16 heads[HOSTILE_RING];

	hostile_fresh(h);
	random_headers(h);
	for (i = 0; i < HOSTILE_RING; i++)
		random_desc(h, &vr->desc[i], HOSTILE_RING);
	for (i = 0; i < TABLE_LEN; i++)
		random_desc(h, &h->table[i], TABLE_LEN);
	honest(h, h->table, 0, hostile_rnd(h, 2));

	for (i = 0; i < n; i++) {
		heads[i] = i * 8;
		honest(h, vr->desc, heads[i], hostile_rnd(h, 2));
		if (!hostile_rnd(h, 4))
			vr->desc[heads[i]] = (struct vring_desc){
				hostile_gpa(h, A_TABLE), 16 * TABLE_LEN,
				VRING_DESC_F_INDIRECT, 0
			};
	}
	for (spoils = 1 + hostile_rnd(h, 4); spoils; spoils--) {
		i = hostile_rnd(h, n);
		if (hostile_rnd(h, 3))
			spoil(h, &vr->desc[heads[i] + hostile_rnd(h, 6)],
			      HOSTILE_RING);
		else
			spoil(h, &h->table[hostile_rnd(h, 6)], TABLE_LEN);
	}
	if (!hostile_rnd(h, 4))
		heads[hostile_rnd(h, n)] = hostile_rnd(h, 65536);
	if (!hostile_rnd(h, 4))
		heads[hostile_rnd(h, n)] = heads[hostile_rnd(h, n)];
	vr->avail->flags = hostile_rnd(h, 65536);
	offer(h, heads, n, hostile_rnd(h, 8) ? 0 : hostile_rnd(h, 65536));
	hostile_settle(h);
	hostile_stop(h);
	h->layouts++;
}
