// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin of QEMU's: counts the instructions that the host VM executes.
 *
 *	-plugin insns.so,dir=DIRECTORY
 *
 * QEMU calls it for each block of code (a run of instructions that is entered at
 * its first one only).  Counts are kept for each block, each CPU and each class:
 *
 *	other	   all that belongs to none of the following
 *	work	   whole samples of rounds that found work
 *	idle	   a poller's round that found none; a guest's spinning
 *	broken	   rounds at work that are in no sample: another task broke in, or the
 *		   sample was not whole when the window began or ended; and what another
 *		   task did that broke into a round without work
 *	interrupt  from the entry of an interrupt's handler to its IRET
 *	guest	   a nested guest's own instructions
 *	rest	   the idle loop of a guest, or of a CPU whose server sleeps
 *
 * Rounds.  DIRECTORY/marks says at which addresses a round begins, which one is
 * reached only if a round finds work, and which one once for each I/O.  The class of
 * a round is known at its end only, so its blocks wait in a log of their CPU.  The
 * instructions of user space, below the address "user" of the marks, are no part of a
 * round.
 *
 * Samples.  A request may be taken in one round and answered in the next one, so
 * rounds at work are counted in samples: from the end of one idle round to the
 * beginning of another, and at least so many I/Os ("sample N" among the marks).  With
 * "any 1" each end of a round will do; that is for system calls, which have no idle
 * rounds.  A sample is counted whole, or not at all.  Behind "skip N" samples of a CPU
 * "want N" are, then the plugin makes the file DIRECTORY/enough.
 *
 * Interrupts.  The instructions of a handler, and of the softirqs at its end, belong to
 * the machine and to no round.  A CPU keeps a stack of the interrupts and exceptions
 * that it is in, because both end with an IRET; exceptions count for what caused
 * them.  Where the scheduler is entered ("break" among the marks), the stack is
 * forgotten, because another task goes on.
 *
 * Guests.  Where the VM is a guest that is not nested, the marks tell waiting from work.
 * From "rest" on, where the idle task goes on, to "go" all instructions outside of
 * interrupts and exceptions are of the class rest.  Those from one "spin" to the next are
 * idle, if there was no "found" between the two.  "switch" forgets the stack of interrupts as
 * "break" does, but the round stays whole: to sleep and to be woken is part of its cost.
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
 * Outside of windows no code calls the plugin but the magic no-op, so that the VM is as
 * fast as any other.  At both ends of a window the emulator drops all translated code.
 *
 * An instruction that raises an exception ends its block early and is counted with
 * the rest of it.  A repeated string instruction counts once.
 *
 * Locks.  The table of blocks and the marks change under @lock.  A count is
 * written by its CPU alone, and each CPU clears its own state when it sees that
 * another window has begun.  The ends of a window read and clear counts of CPUs that
 * go on: what these execute in that moment may be missed.
 */
#include <pthread.h>
#include <stddef.h>
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
#define MAX_SAMPLES	4096
#define MAX_FRAMES	16	/* interrupts and exceptions in each other */

enum class { OTHER, WORK, IDLE, BROKEN, INTERRUPT, GUEST, REST, NR_CLASSES };

static const char *const class_names[] = {
	"other", "work", "idle", "broken", "interrupt", "guest", "rest"
};

/* The meanings of a block; the file of marks gives those in BLOCK_MARKS. */
#define BLOCK_ROUND	0x01
#define BLOCK_WORK	0x02
#define BLOCK_BREAK	0x04
#define BLOCK_IO	0x08
#define BLOCK_IRQ	0x10
#define BLOCK_EXC	0x20
#define BLOCK_USER	0x40
#define BLOCK_SPIN	0x80
#define BLOCK_FOUND	0x100
#define BLOCK_REST	0x200
#define BLOCK_GO	0x400
#define BLOCK_SWITCH	0x800
#define BLOCK_MARKS	0xfff
#define BLOCK_VMRUN	0x1000	/* ends with it */
#define BLOCK_BACK	0x2000	/* follows it */
#define BLOCK_IRET	0x4000	/* ends with it */

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

/* Rounds at work. */
struct sample {
	unsigned int ios;
	unsigned int rounds;
	unsigned long insns;
};

struct cpu {
	bool guest;
	uintptr_t repeated;

	/* Of the window @window, like all that follows. */
	unsigned int window;
	bool is_irq[MAX_FRAMES];
	unsigned int frames;
	unsigned int irqs;	/* of these frames */

	bool resting;

	bool round;
	unsigned int seen;	/* flags of the round's blocks */
	unsigned int break_from;	/* in the log, once @seen has BLOCK_BREAK */
	struct sample now;	/* the round */

	bool spinning;		/* a "spin" was seen, and nothing found since */
	unsigned int spin_from;	/* in the log */
	unsigned long spin_insns;	/* @now's, at that place */

	bool begun;		/* a sample, at a place where one may begin */
	bool dirty;
	struct sample sum;	/* the sample's rounds, without the current one */
	struct block **log;
	unsigned int kept;	/* of the log: the same rounds */
	unsigned int used;	/* and the current one */

	unsigned long rounds[NR_CLASSES];
	unsigned long ios_of[NR_CLASSES];
	unsigned long interrupts;
	unsigned long all_ios;
	unsigned int skipped;
	unsigned int nr_samples;
	struct sample samples[MAX_SAMPLES];
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
static unsigned int begun;	/* windows */
static unsigned int written;
static unsigned int sample_ios = 1;
static unsigned int skip_samples;
static unsigned int want_samples = MAX_SAMPLES;
static bool any_boundary;
static uint64_t plugin_id;
static bool counting;
static unsigned long user_end;
static char dir[4096];

static void on_translation(uint64_t id, struct qemu_plugin_tb *tb);

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

static bool is_iret(const uint8_t *bytes, size_t len)
{
	return bytes[len - 1] == 0xcf &&
	       (len == 1 || (len == 2 && (bytes[0] & 0xf0) == 0x40));
}

static unsigned int marks_at(unsigned long vaddr)
{
	unsigned int flags = vaddr < user_end ? BLOCK_USER : 0, i;

	for (i = 0; i < nr_marks; i++)
		if (marks[i].vaddr == vaddr)
			flags |= marks[i].flag;
	return flags;
}

static void new_window(struct cpu *c)
{
	size_t from = offsetof(struct cpu, window);
	struct block **log = c->log;

	memset((char *)c + from, 0, sizeof(*c) - from);
	c->log = log;
	c->window = begun;
}

/* The log's blocks from @from on are of this class, as is known now. */
static void classify(struct cpu *c, unsigned int vcpu, unsigned int from,
		     enum class class)
{
	unsigned int i;

	for (i = from; i < c->used; i++)
		c->log[i]->count[vcpu][class]++;
	c->used = from;
}

static void end_sample(struct cpu *c, unsigned int vcpu, enum class class)
{
	classify(c, vcpu, 0, class);
	c->rounds[class] += c->sum.rounds;
	c->ios_of[class] += c->sum.ios;
	c->kept = 0;
	c->sum = (struct sample){};
	c->dirty = false;
}

static void tell_enough(void)
{
	char path[sizeof(dir) + 32];
	FILE *f;

	snprintf(path, sizeof(path), "%s/enough", dir);
	f = fopen(path, "w");
	if (f)
		fclose(f);
}

/* A sample may end here, and another one begin. */
static void boundary(struct cpu *c, unsigned int vcpu)
{
	if (!c->begun || c->dirty || c->nr_samples == want_samples) {
		end_sample(c, vcpu, BROKEN);
		c->begun = true;
		return;
	}
	if (c->sum.ios < sample_ios)
		return;
	if (c->skipped < skip_samples) {
		c->skipped++;
		end_sample(c, vcpu, BROKEN);
		return;
	}
	c->samples[c->nr_samples++] = c->sum;
	end_sample(c, vcpu, WORK);
	if (c->nr_samples == want_samples)
		tell_enough();
}

static void end_round(struct cpu *c, unsigned int vcpu)
{
	bool idle = !(c->seen & BLOCK_WORK);

	c->round = false;
	if (idle) {
		/* The poller's thread looks again first thing when it is back. */
		if (c->seen & BLOCK_BREAK)
			classify(c, vcpu, c->break_from, BROKEN);
		classify(c, vcpu, c->kept, IDLE);
		c->rounds[IDLE]++;
	} else {
		c->dirty |= !!(c->seen & BLOCK_BREAK);
		c->kept = c->used;
		c->sum.rounds++;
		c->sum.ios += c->now.ios;
		c->sum.insns += c->now.insns;
	}
	if (idle || any_boundary)
		boundary(c, vcpu);
}

static void begin_round(struct cpu *c)
{
	c->round = true;
	c->spinning = false;
	c->seen = 0;
	c->now = (struct sample){};
}

/* A round without an end, or a sample: the log is full. */
static void give_up(struct cpu *c, unsigned int vcpu)
{
	end_sample(c, vcpu, BROKEN);
	c->round = false;
	c->spinning = false;
	c->begun = false;
}

/* One look of a caller that polls; the look before this one was idle if it found nothing. */
static void look(struct cpu *c, unsigned int vcpu)
{
	if (c->spinning) {
		classify(c, vcpu, c->spin_from, IDLE);
		c->rounds[IDLE]++;
		c->now.insns = c->spin_insns;
	}
	c->spinning = true;
	c->spin_from = c->used;
	c->spin_insns = c->now.insns;
}

static void count_round(struct cpu *c, unsigned int vcpu, struct block *b,
			unsigned int flags)
{
	if (flags & BLOCK_ROUND) {
		if (c->round)
			end_round(c, vcpu);
		begin_round(c);
	}
	if (c->used == LOG_MAX)
		give_up(c, vcpu);
	if (!c->round || flags & BLOCK_USER) {
		b->count[vcpu][OTHER]++;
		return;
	}
	if (flags & BLOCK_SPIN)
		look(c, vcpu);
	if (flags & BLOCK_FOUND)
		c->spinning = false;
	c->log[c->used++] = b;
	c->seen |= flags;
	c->now.ios += !!(flags & BLOCK_IO);
	c->now.insns += b->insns;
}

/* Another task goes on from here. */
static void note_break(struct cpu *c)
{
	if (!(c->seen & BLOCK_BREAK))
		c->break_from = c->used;
	c->seen |= BLOCK_BREAK;
}

static void push_frame(struct cpu *c, bool is_irq)
{
	/* So deep only if it was miscounted. */
	if (c->frames == MAX_FRAMES) {
		c->frames = 0;
		c->irqs = 0;
		note_break(c);
	}
	c->is_irq[c->frames++] = is_irq;
	c->irqs += is_irq;
	c->interrupts += is_irq;
}

static void pop_frame(struct cpu *c)
{
	/* A system call may end so, too, and an interrupt before the window. */
	if (c->frames)
		c->irqs -= c->is_irq[--c->frames];
}

static void count_host(struct cpu *c, unsigned int vcpu, struct block *b)
{
	unsigned int flags = __atomic_load_n(&b->flags, __ATOMIC_RELAXED);

	if (c->window != begun)
		new_window(c);
	if (flags & BLOCK_IO)
		c->all_ios++;
	if (flags & (BLOCK_BREAK | BLOCK_SWITCH)) {
		c->frames = 0;
		c->irqs = 0;
		c->spinning = false;
		if (flags & BLOCK_BREAK)
			note_break(c);
	}
	if (flags & (BLOCK_REST | BLOCK_GO))
		c->resting = flags & BLOCK_REST;
	if (flags & (BLOCK_IRQ | BLOCK_EXC))
		push_frame(c, flags & BLOCK_IRQ);
	if (c->irqs)
		b->count[vcpu][INTERRUPT]++;
	else if (c->resting && !c->frames)
		b->count[vcpu][REST]++;
	else
		count_round(c, vcpu, b, flags);
	if (flags & BLOCK_IRET)
		pop_frame(c);
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

/* A line of the marks: an address, or a number. */
static void read_mark(const char *name, unsigned long value)
{
	static const struct {
		const char *name;
		unsigned int flag;
	} kinds[] = {
		{ "round", BLOCK_ROUND }, { "work", BLOCK_WORK },
		{ "break", BLOCK_BREAK }, { "io", BLOCK_IO },
		{ "interrupt", BLOCK_IRQ }, { "exception", BLOCK_EXC },
		{ "spin", BLOCK_SPIN }, { "found", BLOCK_FOUND },
		{ "rest", BLOCK_REST }, { "go", BLOCK_GO },
		{ "switch", BLOCK_SWITCH },
	};
	unsigned int i;

	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(name, kinds[i].name) && nr_marks < MAX_MARKS)
			marks[nr_marks++] = (struct mark){ value, kinds[i].flag };
	if (!strcmp(name, "sample"))
		sample_ios = value;
	if (!strcmp(name, "skip"))
		skip_samples = value;
	if (!strcmp(name, "want") && value <= MAX_SAMPLES)
		want_samples = value;
	if (!strcmp(name, "any"))
		any_boundary = value;
	if (!strcmp(name, "user"))
		user_end = value;
}

static void read_marks(void)
{
	char path[sizeof(dir) + 32], name[16];
	unsigned long value;
	FILE *f;

	nr_marks = 0;
	sample_ios = 1;
	skip_samples = 0;
	want_samples = MAX_SAMPLES;
	any_boundary = false;
	user_end = 0;
	snprintf(path, sizeof(path), "%s/enough", dir);
	remove(path);
	snprintf(path, sizeof(path), "%s/marks", dir);
	f = fopen(path, "r");
	if (!f)
		return;
	while (fscanf(f, "%15s %lx", name, &value) == 2)
		read_mark(name, value);
	fclose(f);
}

static void clear_block(struct block *b)
{
	memset(b->count, 0, nr_cpus * sizeof(b->count[0]));
	b->flags = (b->flags & ~BLOCK_MARKS) | marks_at(b->vaddr);
}

static void begin_window(void)
{
	struct block *b;
	unsigned int i;

	pthread_mutex_lock(&lock);
	active = false;
	read_marks();
	for (i = 0; i < HASH_SIZE; i++)
		for (b = table[i]; b; b = b->next)
			clear_block(b);
	begun++;
	active = true;
	pthread_mutex_unlock(&lock);
}

/* The two are called once all translated code was dropped; no CPU runs meanwhile. */
static void begin_counting(uint64_t id)
{
	counting = true;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	begin_window();
}

static void end_counting(uint64_t id)
{
	counting = false;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
}

static void on_begin(unsigned int vcpu, void *data)
{
	qemu_plugin_reset(plugin_id, begin_counting);
}

static void write_cpu(FILE *f, const struct cpu *c)
{
	unsigned int i;

	fprintf(f, "{\"all_ios\": %lu, \"interrupts\": %lu", c->all_ios,
		c->interrupts);
	for (i = WORK; i <= BROKEN; i++)
		fprintf(f, ", \"%s\": {\"rounds\": %lu, \"ios\": %lu}",
			class_names[i], c->rounds[i], c->ios_of[i]);
	fprintf(f, ", \"samples\": [");
	for (i = 0; i < c->nr_samples; i++)
		fprintf(f, "%s[%u, %u, %lu]", i ? ", " : "", c->samples[i].ios,
			c->samples[i].rounds, c->samples[i].insns);
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
		if (cpus[i].window != begun)
			new_window(&cpus[i]);
		end_sample(&cpus[i], i, BROKEN);
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
	snprintf(path, sizeof(path), "%s/%u.json", dir, ++written);
	f = fopen(temp, "w");
	if (f) {
		write_window(f);
		if (!fclose(f))
			rename(temp, path);
	}
	pthread_mutex_unlock(&lock);
	qemu_plugin_reset(plugin_id, end_counting);
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
	if (!counting) {
		pthread_mutex_unlock(&lock);
		return;
	}
	if (is_iret(bytes, len))
		flags |= BLOCK_IRET;
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

	plugin_id = id;
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
