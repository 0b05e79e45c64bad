// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin of QEMU's: counts the instructions that the host VM executes.
 *
 *	-plugin insns.so,dir=DIRECTORY
 *
 * QEMU calls it for each block of code (a run of instructions that is entered at
 * its first one only).  Counts are kept for each block, each CPU and each class:
 *
 *	other	 all that belongs to none of the following
 *	work	 a poller's round that found work
 *	idle	 a poller's round that found none
 *	broken	 a round that an interrupt or another task broke into
 *	guest	 a nested guest's own instructions
 *
 * Rounds.  DIRECTORY/marks says at which addresses a round begins, which one is
 * reached only if a round finds work, which ones are entered when something else
 * breaks in, and which one once for each I/O.  The class of a round is known at its
 * end only, so the blocks of the current one wait in a log of their CPU.
 *
 * Nested guests.  A CPU is in guest mode from a VMRUN until it executes the
 * instruction behind that VMRUN.  Host and guest run the same kernel at the same
 * virtual addresses; so a place in the code is told by where in the emulator's
 * memory its bytes are.
 *
 * Windows.  A window begins and ends with a no-op of eight bytes that carries a
 * magic number (pvbench/insns.py executes it).  At its end N.json is written to
 * DIRECTORY, where N counts the windows of this VM.
 *
 * An instruction that raises an exception ends its block early and is counted with
 * the rest of it.  A repeated string instruction counts once.
 *
 * Locks.  The table of blocks and the marks change under @lock.  A count is
 * written by its CPU alone.  The ends of a window read and clear counts of CPUs
 * that go on: what these execute in that moment may be missed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu-plugin.h"

#ifndef VERSION
#define VERSION		1
#endif

#define EXPORT		__attribute__((visibility("default")))
#define NO_REGS		QEMU_PLUGIN_CB_NO_REGS
#define MAX_CPUS	16
#define MAX_MARKS	256
#define MAX_VMRUNS	16
#define HASH_BITS	18
#define HASH_SIZE	0x40000	/* 2 to the power of that */
#define LOG_MAX		0x100000
#define MAX_IOS		256	/* in a round that is told apart */

enum class { OTHER, WORK, IDLE, BROKEN, GUEST, NR_CLASSES };

static const char *const class_names[] = {
	"other", "work", "idle", "broken", "guest"
};

/* The meanings of a block; the file of marks gives those in BLOCK_MARKS. */
#define BLOCK_ROUND	0x01
#define BLOCK_WORK	0x02
#define BLOCK_BREAK	0x04
#define BLOCK_IO	0x08
#define BLOCK_MARKS	0x0f
#define BLOCK_VMRUN	0x10	/* ends with it */
#define BLOCK_BACK	0x20	/* follows it */

struct block {
	struct block *next;
	uintptr_t host;		/* where its code is in the emulator's memory */
	uintptr_t last;		/* the same of its last instruction */
	unsigned long vaddr;
	unsigned int insns;
	unsigned int flags;
	bool repeats;		/* its last instruction is a repeated one */
	unsigned long count[][NR_CLASSES];
};

struct cpu {
	bool guest;
	bool round;
	unsigned int seen;	/* flags of the round's blocks */
	unsigned int ios;
	unsigned long insns;
	uintptr_t repeated;
	struct block **log;
	unsigned int used;
	unsigned long rounds[NR_CLASSES];
	unsigned long ios_of[NR_CLASSES];
	unsigned long all_ios;
	/* Rounds at work, by the number of their I/Os. */
	unsigned long by_ios[MAX_IOS + 1];
	unsigned long insns_by_ios[MAX_IOS + 1];
};

struct mark {
	unsigned long vaddr;
	unsigned int flag;
};

/* nopl MAGIC(%rax,%rax,1) */
static const uint8_t marker[] = { 0x0f, 0x1f, 0x84, 0x00, 'p', 'v', 'i' };

#define MARKER_BYTES	8
#define MARKER_BEGIN	'b'
#define MARKER_END	'e'

EXPORT int qemu_plugin_version = VERSION;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *table[HASH_SIZE];
static struct cpu cpus[MAX_CPUS];
static struct mark marks[MAX_MARKS];
static unsigned int nr_marks;
static uintptr_t behind_vmrun[MAX_VMRUNS];
static unsigned int nr_vmruns;
static unsigned int nr_cpus;
static int interface;
static bool active;
static unsigned int window;
static char dir[4096];

static size_t insn_bytes(struct qemu_plugin_insn *insn, uint8_t *bytes,
			 size_t size)
{
	size_t len = qemu_plugin_insn_size(insn);

	if (len > size)
		len = size;
	if (interface >= 3) {
		size_t (*copy)(struct qemu_plugin_insn *insn, void *to,
			       size_t size) = (void *)qemu_plugin_insn_data;

		copy(insn, bytes, len);
	} else {
		const void *(*get)(struct qemu_plugin_insn *insn) =
			(void *)qemu_plugin_insn_data;

		memcpy(bytes, get(insn), len);
	}
	return len;
}

static bool is_prefix(uint8_t byte)
{
	return (byte & 0xf0) == 0x40 || byte == 0x66 || byte == 0x67 ||
	       byte == 0x2e || byte == 0x36 || byte == 0x3e || byte == 0x26 ||
	       byte == 0x64 || byte == 0x65;
}

static bool is_repeated(const uint8_t *bytes, size_t len)
{
	bool rep = false;
	size_t i;

	for (i = 0; i < len; i++) {
		if (bytes[i] == 0xf2 || bytes[i] == 0xf3)
			rep = true;
		else if (!is_prefix(bytes[i]))
			break;
	}
	if (!rep || i == len)
		return false;
	return (bytes[i] >= 0x6c && bytes[i] <= 0x6f) ||
	       (bytes[i] >= 0xa4 && bytes[i] <= 0xa7) ||
	       (bytes[i] >= 0xaa && bytes[i] <= 0xaf);
}

static bool is_vmrun(const uint8_t *bytes, size_t len)
{
	return len == 3 && bytes[0] == 0x0f && bytes[1] == 0x01 &&
	       bytes[2] == 0xd8;
}

static unsigned int marks_at(unsigned long vaddr)
{
	unsigned int flags = 0, i;

	for (i = 0; i < nr_marks; i++)
		if (marks[i].vaddr == vaddr)
			flags |= marks[i].flag;
	return flags;
}

/* The log's blocks are of this class, as is known now. */
static void end_round(struct cpu *c, unsigned int vcpu)
{
	enum class class = c->seen & BLOCK_BREAK ? BROKEN :
			   c->seen & BLOCK_WORK ? WORK : IDLE;
	unsigned int ios = c->ios < MAX_IOS ? c->ios : MAX_IOS;
	unsigned int i;

	for (i = 0; i < c->used; i++)
		c->log[i]->count[vcpu][class]++;
	c->rounds[class]++;
	c->ios_of[class] += c->ios;
	if (class == WORK) {
		c->by_ios[ios]++;
		c->insns_by_ios[ios] += c->insns;
	}
	c->round = false;
}

static void begin_round(struct cpu *c)
{
	c->round = true;
	c->seen = 0;
	c->ios = 0;
	c->insns = 0;
	c->used = 0;
}

static void count_host(struct cpu *c, unsigned int vcpu, struct block *b)
{
	unsigned int flags = __atomic_load_n(&b->flags, __ATOMIC_RELAXED);

	if (flags & BLOCK_IO)
		c->all_ios++;
	if (flags & BLOCK_ROUND) {
		if (c->round)
			end_round(c, vcpu);
		begin_round(c);
	}
	if (!c->round) {
		b->count[vcpu][OTHER]++;
		return;
	}
	if (c->used == LOG_MAX) {
		c->seen |= BLOCK_BREAK;
		end_round(c, vcpu);
		b->count[vcpu][OTHER]++;
		return;
	}
	c->log[c->used++] = b;
	c->seen |= flags;
	c->ios += !!(flags & BLOCK_IO);
	c->insns += b->insns;
}

static void on_block(unsigned int vcpu, void *data)
{
	struct block *b = data;
	struct cpu *c = &cpus[vcpu % MAX_CPUS];
	uintptr_t repeated = c->repeated;

	if (b->flags & BLOCK_BACK)
		c->guest = false;
	c->repeated = b->repeats ? b->last : 0;
	/* The emulator comes back to a repeated instruction for each repetition. */
	if (active && !(repeated && repeated == b->host && b->insns == 1)) {
		if (c->guest)
			b->count[vcpu][GUEST]++;
		else
			count_host(c, vcpu, b);
	}
	if (b->flags & BLOCK_VMRUN)
		c->guest = true;
}

static void read_marks(void)
{
	static const char *const names[] = { "round", "work", "break", "io" };
	static const unsigned int flags[] = {
		BLOCK_ROUND, BLOCK_WORK, BLOCK_BREAK, BLOCK_IO
	};
	char path[sizeof(dir) + 32], name[16];
	unsigned long vaddr;
	unsigned int i;
	FILE *f;

	nr_marks = 0;
	snprintf(path, sizeof(path), "%s/marks", dir);
	f = fopen(path, "r");
	if (!f)
		return;
	while (nr_marks < MAX_MARKS &&
	       fscanf(f, "%15s %lx", name, &vaddr) == 2) {
		for (i = 0; i < sizeof(names) / sizeof(*names); i++)
			if (!strcmp(name, names[i]))
				marks[nr_marks++] = (struct mark){ vaddr, flags[i] };
	}
	fclose(f);
}

static void clear_block(struct block *b)
{
	memset(b->count, 0, nr_cpus * sizeof(b->count[0]));
	b->flags = (b->flags & ~BLOCK_MARKS) | marks_at(b->vaddr);
}

static void on_begin(unsigned int vcpu, void *data)
{
	struct block *b;
	unsigned int i;

	pthread_mutex_lock(&lock);
	active = false;
	read_marks();
	for (i = 0; i < HASH_SIZE; i++)
		for (b = table[i]; b; b = b->next)
			clear_block(b);
	for (i = 0; i < nr_cpus; i++) {
		struct cpu *c = &cpus[i];

		c->round = false;
		c->all_ios = 0;
		memset(c->rounds, 0, sizeof(c->rounds));
		memset(c->ios_of, 0, sizeof(c->ios_of));
		memset(c->by_ios, 0, sizeof(c->by_ios));
		memset(c->insns_by_ios, 0, sizeof(c->insns_by_ios));
	}
	active = true;
	pthread_mutex_unlock(&lock);
}

static void write_cpu(FILE *f, const struct cpu *c)
{
	const char *sep = "";
	unsigned int i;

	fprintf(f, "{\"all_ios\": %lu", c->all_ios);
	for (i = WORK; i <= BROKEN; i++)
		fprintf(f, ", \"%s\": {\"rounds\": %lu, \"ios\": %lu}",
			class_names[i], c->rounds[i], c->ios_of[i]);
	fprintf(f, ", \"by_ios\": [");
	for (i = 0; i <= MAX_IOS; i++) {
		if (!c->by_ios[i])
			continue;
		fprintf(f, "%s[%u, %lu, %lu]", sep, i,
			c->by_ios[i], c->insns_by_ios[i]);
		sep = ", ";
	}
	fprintf(f, "]}");
}

/* vaddr, instructions, CPU, class, times executed */
static void write_block(FILE *f, const struct block *b, const char **sep)
{
	unsigned int cpu, class;

	for (cpu = 0; cpu < nr_cpus; cpu++) {
		for (class = 0; class < NR_CLASSES; class++) {
			if (!b->count[cpu][class])
				continue;
			fprintf(f, "%s\n[%lu, %u, %u, \"%s\", %lu]",
				*sep, b->vaddr, b->insns, cpu,
				class_names[class], b->count[cpu][class]);
			*sep = ",";
		}
	}
}

static void write_window(FILE *f)
{
	const char *sep = "";
	struct block *b;
	unsigned int i;

	fprintf(f, "{\"cpus\": [");
	for (i = 0; i < nr_cpus; i++) {
		fprintf(f, "%s\n", i ? "," : "");
		write_cpu(f, &cpus[i]);
	}
	fprintf(f, "],\n\"blocks\": [");
	for (i = 0; i < HASH_SIZE; i++)
		for (b = table[i]; b; b = b->next)
			write_block(f, b, &sep);
	fprintf(f, "\n]}\n");
}

/* Under another name first: a reader finds all of it, or nothing. */
static void on_end(unsigned int vcpu, void *data)
{
	char temp[sizeof(dir) + 32], path[sizeof(dir) + 32];
	FILE *f;

	pthread_mutex_lock(&lock);
	active = false;
	snprintf(temp, sizeof(temp), "%s/writing", dir);
	snprintf(path, sizeof(path), "%s/%u.json", dir, ++window);
	f = fopen(temp, "w");
	if (f) {
		write_window(f);
		if (!fclose(f))
			rename(temp, path);
	}
	pthread_mutex_unlock(&lock);
}

static unsigned int flags_of(struct qemu_plugin_tb *tb, uintptr_t host)
{
	unsigned int flags = marks_at(qemu_plugin_tb_vaddr(tb)), i;

	for (i = 0; i < nr_vmruns; i++)
		if (behind_vmrun[i] == host)
			flags |= BLOCK_BACK;
	return flags;
}

/* The code behind is translated only after the first VMRUN has ended. */
static void note_vmrun(uintptr_t behind)
{
	unsigned int i;

	for (i = 0; i < nr_vmruns; i++)
		if (behind_vmrun[i] == behind)
			return;
	if (nr_vmruns < MAX_VMRUNS)
		behind_vmrun[nr_vmruns++] = behind;
}

/* The block that starts with the instruction at @host; the lock is held. */
static struct block *find_block(struct qemu_plugin_tb *tb, uintptr_t host,
				uintptr_t last)
{
	unsigned long vaddr = qemu_plugin_tb_vaddr(tb);
	unsigned int insns = qemu_plugin_tb_n_insns(tb);
	unsigned long key = (vaddr ^ host * 31 ^ insns) * 0x9e3779b97f4a7c15ULL;
	struct block **head = &table[key >> (64 - HASH_BITS)], *b;

	for (b = *head; b; b = b->next)
		if (b->vaddr == vaddr && b->host == host && b->insns == insns)
			return b;
	b = calloc(1, sizeof(*b) + nr_cpus * sizeof(b->count[0]));
	if (!b)
		abort();
	b->host = host;
	b->last = last;
	b->vaddr = vaddr;
	b->insns = insns;
	b->next = *head;
	*head = b;
	return b;
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb), i, len = 0;
	struct qemu_plugin_insn *insn = NULL;
	qemu_plugin_exec_fn fn;
	unsigned int flags;
	uint8_t bytes[16];
	struct block *b;
	uintptr_t host, last;

	if (!n)
		return;
	for (i = 0; i < n; i++) {
		insn = qemu_plugin_tb_get_insn(tb, i);
		len = insn_bytes(insn, bytes, sizeof(bytes));
		if (len != MARKER_BYTES || memcmp(bytes, marker, sizeof(marker)))
			continue;
		fn = bytes[7] == MARKER_BEGIN ? on_begin :
		     bytes[7] == MARKER_END ? on_end : NULL;
		if (fn)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, fn, NO_REGS,
							       NULL);
	}
	host = (uintptr_t)qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0));
	last = (uintptr_t)qemu_plugin_insn_haddr(insn);

	pthread_mutex_lock(&lock);
	flags = flags_of(tb, host);
	if (is_vmrun(bytes, len)) {
		note_vmrun(last + len);
		flags |= BLOCK_VMRUN;
	}
	b = find_block(tb, host, last);
	b->flags = flags;
	b->repeats = is_repeated(bytes, len);
	pthread_mutex_unlock(&lock);
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGS, b);
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_plugin_info *info,
			       int argc, char **argv)
{
	unsigned int i;

	interface = info->version.cur;
	nr_cpus = info->cpus.max_vcpus;
	if (!info->system || nr_cpus > MAX_CPUS || argc != 1 ||
	    strncmp(argv[0], "dir=", 4) || strlen(argv[0]) >= sizeof(dir)) {
		fprintf(stderr, "insns: want dir=DIRECTORY, a whole system, at most %u CPUs\n",
			MAX_CPUS);
		return -1;
	}
	snprintf(dir, sizeof(dir), "%s", argv[0] + 4);
	for (i = 0; i < nr_cpus; i++) {
		cpus[i].log = malloc(LOG_MAX * sizeof(*cpus[i].log));
		if (!cpus[i].log)
			return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
