// SPDX-License-Identifier: GPL-2.0
/* ringload's command line. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "ringload.h"

static const char usage[] =
"ringload: play the guest of a virtio-blk device, without a guest\n"
"\n"
"  ringload --device PATH [OPTION]...   over /dev/vhost-blk\n"
"  ringload --socket PATH [OPTION]...   over a vhost-user-blk socket\n"
"\n"
"The load (one JSON object is printed at its end):\n"
"  --op OP           randread, randwrite, read or write (randread)\n"
"  --bs BYTES        of a request (4096)\n"
"  --depth N         requests in flight in each queue (32)\n"
"  --queues N        virtqueues (1)\n"
"  --secs S          how long it is measured (5)\n"
"  --warmup S        how long it runs before that (1)\n"
"  --rate N          requests a second over all queues (as many as it can)\n"
"  --burst           N requests at once, the next N when all are answered\n"
"  --poisson         random arrivals at that rate, not even ones\n"
"  --span BYTES      of the disk that is used, from its start (all)\n"
"  --cpu N           where the player runs (not bound)\n"
"  --wait poll|event look at the used ring all the time, or sleep for the\n"
"                    interrupt (poll)\n"
"  --ring-size N     (256)   --no-indirect   --no-event-idx\n"
"  --high-data       data lie in a second region of memory, as those above\n"
"                    4 GiB of a guest do (with --device)\n"
"\n"
"With --device:\n"
"  --mode M          busy, event or adaptive (busy)\n"
"  --poll-cpus A,B   one poller on each; queues take them in turn (0)\n"
"  --hctx A,B        hardware context of each queue (chosen by the kernel)\n"
"  --engine E        auto, mq, bio or file (auto)\n"
"  --pinned  --no-poll-queues  --bypass-scheduler  --buffered\n"
"\n"
"What is reported:\n"
"  --watch NAME      count CPU time of threads whose name contains NAME as\n"
"                    the back end's too (the poller and the socket's other\n"
"                    end are counted by themselves)\n"
"  --path NAME       the row's name (vhost_blk or vhost-user)\n";

enum {
	O_DEVICE = 256, O_SOCKET, O_OP, O_BS, O_DEPTH, O_QUEUES, O_SECS,
	O_WARMUP, O_RATE, O_BURST, O_POISSON, O_SPAN, O_CPU, O_WAIT, O_RING_SIZE,
	O_NO_INDIRECT, O_NO_EVENT_IDX, O_MODE, O_POLL_CPUS, O_HCTX, O_ENGINE,
	O_PINNED, O_NO_POLL_QUEUES, O_BYPASS, O_BUFFERED, O_HIGH_DATA, O_WATCH,
	O_PATH, O_HELP,
};

static const struct option long_opts[] = {
	{ "device", required_argument, NULL, O_DEVICE },
	{ "socket", required_argument, NULL, O_SOCKET },
	{ "op", required_argument, NULL, O_OP },
	{ "bs", required_argument, NULL, O_BS },
	{ "depth", required_argument, NULL, O_DEPTH },
	{ "queues", required_argument, NULL, O_QUEUES },
	{ "secs", required_argument, NULL, O_SECS },
	{ "warmup", required_argument, NULL, O_WARMUP },
	{ "rate", required_argument, NULL, O_RATE },
	{ "burst", no_argument, NULL, O_BURST },
	{ "poisson", no_argument, NULL, O_POISSON },
	{ "span", required_argument, NULL, O_SPAN },
	{ "cpu", required_argument, NULL, O_CPU },
	{ "wait", required_argument, NULL, O_WAIT },
	{ "ring-size", required_argument, NULL, O_RING_SIZE },
	{ "no-indirect", no_argument, NULL, O_NO_INDIRECT },
	{ "no-event-idx", no_argument, NULL, O_NO_EVENT_IDX },
	{ "mode", required_argument, NULL, O_MODE },
	{ "poll-cpus", required_argument, NULL, O_POLL_CPUS },
	{ "hctx", required_argument, NULL, O_HCTX },
	{ "engine", required_argument, NULL, O_ENGINE },
	{ "pinned", no_argument, NULL, O_PINNED },
	{ "no-poll-queues", no_argument, NULL, O_NO_POLL_QUEUES },
	{ "bypass-scheduler", no_argument, NULL, O_BYPASS },
	{ "buffered", no_argument, NULL, O_BUFFERED },
	{ "high-data", no_argument, NULL, O_HIGH_DATA },
	{ "watch", required_argument, NULL, O_WATCH },
	{ "path", required_argument, NULL, O_PATH },
	{ "help", no_argument, NULL, O_HELP },
	{ }
};

static int pick(const char *what, const char *arg, const char *const *names,
		unsigned int *out)
{
	unsigned int i;

	for (i = 0; names[i]; i++) {
		if (!strcmp(names[i], arg)) {
			*out = i;
			return 0;
		}
	}
	fprintf(stderr, "ringload: there is no %s \"%s\"; see --help\n", what,
		arg);
	return 2;
}

static unsigned int numbers(const char *arg, unsigned int *out,
			    unsigned int max)
{
	unsigned int n = 0;
	char *end;

	while (n < max && *arg) {
		out[n++] = strtoul(arg, &end, 0);
		arg = *end == ',' ? end + 1 : "";
	}
	return n;
}

static int parse_op(struct load_opts *o, const char *arg)
{
	static const char *const ops[] = {
		"randread", "randwrite", "read", "write", NULL
	};
	unsigned int i;
	int ret = pick("--op", arg, ops, &i);

	if (ret)
		return ret;
	o->op = ops[i];
	o->write = i & 1;
	o->sequential = i >= 2;
	return 0;
}

static int parse_mode(struct load_opts *o, const char *arg)
{
	static const char *const modes[] = {
		"adaptive", "busy", "event", NULL
	};
	int ret = pick("--mode", arg, modes, &o->mode);

	if (!ret)
		o->mode_name = modes[o->mode];
	return ret;
}

static int parse_choice(struct load_opts *o, int c, const char *arg)
{
	static const char *const engines[] = {
		"auto", "mq", "bio", "file", NULL
	};
	static const char *const waits[] = { "poll", "event", NULL };
	unsigned int i = 0;
	int ret;

	switch (c) {
	case O_OP:
		return parse_op(o, arg);
	case O_MODE:
		return parse_mode(o, arg);
	case O_ENGINE:
		return pick("--engine", arg, engines, &o->engine);
	case O_WAIT:
		ret = pick("--wait", arg, waits, &i);
		o->wait_event = i;
		return ret;
	case O_WATCH:
		if (o->nwatch < LOAD_MAX_WATCH)
			o->watch[o->nwatch++] = arg;
		return 0;
	case O_HELP:
		fputs(usage, stdout);
		exit(0);
	default:
		fputs("ringload: see --help\n", stderr);
		return 2;
	}
}

static int parse_one(struct load_opts *o, int c, const char *arg)
{
	switch (c) {
	case O_DEVICE:
		o->device = arg;
		return 0;
	case O_SOCKET:
		o->socket = arg;
		return 0;
	case O_BS:
		o->bs = strtoul(arg, NULL, 0);
		return 0;
	case O_DEPTH:
		o->depth = strtoul(arg, NULL, 0);
		return 0;
	case O_QUEUES:
		o->queues = strtoul(arg, NULL, 0);
		return 0;
	case O_SECS:
		o->secs = strtod(arg, NULL);
		return 0;
	case O_WARMUP:
		o->warmup = strtod(arg, NULL);
		return 0;
	case O_RATE:
		o->rate = strtod(arg, NULL);
		return 0;
	case O_BURST:
		o->burst = true;
		return 0;
	case O_POISSON:
		o->poisson = true;
		return 0;
	case O_SPAN:
		o->span = strtoull(arg, NULL, 0);
		return 0;
	case O_CPU:
		o->cpu = atoi(arg);
		return 0;
	case O_RING_SIZE:
		o->ring_size = strtoul(arg, NULL, 0);
		return 0;
	case O_NO_INDIRECT:
		o->no_indirect = true;
		return 0;
	case O_NO_EVENT_IDX:
		o->no_event_idx = true;
		return 0;
	case O_POLL_CPUS:
		o->npoll = numbers(arg, o->poll_cpu, LOAD_MAX_CPUS);
		return 0;
	case O_HCTX:
		o->nhctx = numbers(arg, o->hctx, LOAD_MAX_CPUS);
		return 0;
	case O_PINNED:
		o->backend_flags |= VHOST_BLK_BACKEND_PINNED;
		return 0;
	case O_NO_POLL_QUEUES:
		o->backend_flags |= VHOST_BLK_BACKEND_NO_POLL_QUEUES;
		return 0;
	case O_BYPASS:
		o->backend_flags |= VHOST_BLK_BACKEND_BYPASS_SCHEDULER;
		return 0;
	case O_BUFFERED:
		o->buffered = true;
		return 0;
	case O_HIGH_DATA:
		o->high_data = true;
		return 0;
	case O_PATH:
		o->path = arg;
		return 0;
	default:
		return parse_choice(o, c, arg);
	}
}

static int complain(const char *sentence)
{
	fprintf(stderr, "ringload: %s\n", sentence);
	return 2;
}

static int load_check(const struct load_opts *o)
{
	if (!o->device == !o->socket)
		return complain("give --device or --socket, one of them");
	if (o->socket && o->high_data)
		return complain("--high-data needs --device");
	if (!o->depth || !o->queues || o->queues > VHOST_SERVE_MAX_VRINGS)
		return complain("--depth is at least 1, --queues 1 to 64");
	if (!o->bs || o->bs % 512)
		return complain("--bs is a multiple of 512");
	if (!o->ring_size || o->ring_size & (o->ring_size - 1) ||
	    o->ring_size > 32768)
		return complain("--ring-size is a power of two up to 32768");
	if (o->depth * (o->no_indirect ? 3 : 1) > o->ring_size)
		return complain("the ring is too small for that depth: give a larger --ring-size");
	if (!o->npoll)
		return complain("--poll-cpus is a list of numbers, such as 1,2");
	return 0;
}

int load_parse(struct load_opts *o, int argc, char **argv)
{
	int c, ret;

	*o = (struct load_opts){
		.op = "randread", .mode = VHOST_POLL_MODE_BUSY,
		.mode_name = "busy", .npoll = 1, .cpu = -1, .depth = 32,
		.queues = 1, .ring_size = 256, .bs = 4096, .secs = 5,
		.warmup = 1,
	};
	while ((c = getopt_long(argc, argv, "", long_opts, NULL)) != -1) {
		ret = parse_one(o, c, optarg);
		if (ret)
			return ret;
	}
	if (!o->path)
		o->path = o->socket ? "vhost-user" : "vhost_blk";
	return load_check(o);
}
