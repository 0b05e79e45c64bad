// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of policy.c: how the polling policy decides on simulated loads. */
#include <kunit/test.h>
#include <linux/module.h>
#include <linux/time64.h>
#include <linux/vhost_poll.h>
#include <uapi/linux/vhost_poll.h>

#include "policy.h"

#define USEC		((u64)NSEC_PER_USEC)
#define MSEC		((u64)NSEC_PER_MSEC)
#define WINDOW		(200 * USEC)

/* The time that a wake-up takes, and how often a spinning poller polls. */
#define WAKEUP		(8 * USEC)
#define TICK		(USEC / 2)

/* A poller with one source.  The test chooses how long the backend and the guest take. */
struct sim {
	struct vhost_poll_policy pol;
	unsigned int mode;
	bool polled;
	u64 timer_late;
	u64 now;
	u64 spun;
	u64 slept;
	u64 late;
	unsigned int lates;
	unsigned int sleeps;
};

static void sim_init(struct sim *s, unsigned int mode, bool polled)
{
	*s = (struct sim) { .mode = mode, .polled = polled, .now = NSEC_PER_SEC };
	vhost_poll_policy_init(&s->pol, WINDOW, s->now);
}

/*
 * Let the poller wait for an event at the time @event.  If @oldest is not 0, a request has been in
 * flight since then, and takes about @service.
 */
static void sim_wait(struct sim *s, u64 event, u64 oldest, u64 service)
{
	bool told = !oldest || !s->polled;
	struct vhost_poll_outlook out;
	u64 until, wake;

	while (s->now < event) {
		out.inflight = !!oldest;
		out.wake_at = VHOST_POLL_FOREVER;
		if (oldest && !(told && s->mode == VHOST_POLL_MODE_EVENT))
			out.wake_at = vhost_poll_predict(&s->pol, s->now, 1,
							 oldest, service,
							 s->polled);
		until = vhost_poll_decide(&s->pol, s->mode, s->now, &out);
		if (until == VHOST_POLL_SPIN) {
			s->spun += TICK;
			s->now += TICK;
			continue;
		}
		wake = told ? min(until, event) : until;
		s->sleeps++;
		s->slept += wake - s->now;
		s->now = wake + WAKEUP + (wake == until ? s->timer_late : 0);
		vhost_poll_policy_slept(&s->pol, until, out.inflight,
					wake == until ? 0 : wake, s->now);
	}
	s->late += s->now - event;
	s->lates += s->now - event > TICK;
}

/* Simulate a guest that sends @n requests, each @think after the last completion. */
static void sim_depth1(struct sim *s, unsigned int n, u64 service, u64 think)
{
	u64 oldest;

	while (n--) {
		sim_wait(s, s->now + think, 0, 0);
		vhost_poll_policy_work(&s->pol, 0, s->now);
		oldest = s->now;
		sim_wait(s, oldest + service, oldest, service);
		vhost_poll_policy_work(&s->pol, 0, s->now);
	}
}

static void sim_restart_counts(struct sim *s)
{
	s->spun = 0;
	s->slept = 0;
	s->late = 0;
	s->lates = 0;
	s->sleeps = 0;
}

static void busy_never_sleeps(struct kunit *test)
{
	struct sim s;

	sim_init(&s, VHOST_POLL_MODE_BUSY, false);
	sim_depth1(&s, 10, 100 * USEC, MSEC);
	KUNIT_EXPECT_EQ(test, s.sleeps, 0);
}

static void event_sleeps_at_once(struct kunit *test)
{
	struct sim s;

	sim_init(&s, VHOST_POLL_MODE_EVENT, false);
	sim_depth1(&s, 10, 100 * USEC, 5 * USEC);
	KUNIT_EXPECT_EQ(test, s.sleeps, 20);
	KUNIT_EXPECT_EQ(test, s.spun, 0);
}

static void event_looks_at_a_polled_backend(struct kunit *test)
{
	struct sim s;

	sim_init(&s, VHOST_POLL_MODE_EVENT, true);
	sim_depth1(&s, 100, MSEC, MSEC);
	KUNIT_EXPECT_GE(test, s.sleeps, 200);
	KUNIT_EXPECT_LT(test, s.spun, 100 * MSEC / 4);
}

static void idle_has_no_timer(struct kunit *test)
{
	struct vhost_poll_outlook out = { .wake_at = VHOST_POLL_FOREVER };
	struct vhost_poll_policy pol;

	vhost_poll_policy_init(&pol, WINDOW, MSEC);
	pol.idle_window = WINDOW;
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_decide(&pol, VHOST_POLL_MODE_ADAPTIVE,
					  MSEC + WINDOW / 2, &out));
	KUNIT_EXPECT_EQ(test, VHOST_POLL_FOREVER,
			vhost_poll_decide(&pol, VHOST_POLL_MODE_ADAPTIVE,
					  MSEC + WINDOW, &out));
}

static void frequent_arrivals_are_polled_for(struct kunit *test)
{
	struct sim s;

	sim_init(&s, VHOST_POLL_MODE_ADAPTIVE, false);
	sim_depth1(&s, 10, 10 * USEC, 50 * USEC);
	sim_restart_counts(&s);
	sim_depth1(&s, 1000, 10 * USEC, 50 * USEC);
	KUNIT_EXPECT_EQ(test, s.sleeps, 0);
	KUNIT_EXPECT_GE(test, s.pol.idle_window, 50 * USEC);
	KUNIT_EXPECT_LE(test, s.pol.idle_window, WINDOW);
}

static void rare_arrivals_are_not(struct kunit *test)
{
	struct sim s;

	sim_init(&s, VHOST_POLL_MODE_ADAPTIVE, false);
	s.pol.idle_window = WINDOW;
	sim_depth1(&s, 10, 10 * USEC, 10 * MSEC);
	KUNIT_EXPECT_EQ(test, s.pol.idle_window, 0);
	sim_restart_counts(&s);
	sim_depth1(&s, 100, 10 * USEC, 10 * MSEC);
	KUNIT_EXPECT_EQ(test, s.sleeps, 100);
	/* The poller spins only while it waits for the backend. */
	KUNIT_EXPECT_LE(test, s.spun, 100 * 11 * USEC);
}

static void slow_backend_is_slept_for(struct kunit *test, bool polled)
{
	struct sim s;

	sim_init(&s, VHOST_POLL_MODE_ADAPTIVE, polled);
	sim_depth1(&s, 50, MSEC, 20 * USEC);
	sim_restart_counts(&s);
	sim_depth1(&s, 1000, MSEC, 20 * USEC);
	KUNIT_EXPECT_GE(test, s.sleeps, 1000);
	KUNIT_EXPECT_LT(test, s.spun, 1000 * MSEC * 15 / 100);
	KUNIT_EXPECT_LT(test, s.late, 1000 * MSEC / 100);
	KUNIT_EXPECT_LT(test, s.lates, 300);
}

static void slow_told_backend_is_slept_for(struct kunit *test)
{
	slow_backend_is_slept_for(test, false);
}

static void slow_polled_backend_is_slept_for(struct kunit *test)
{
	slow_backend_is_slept_for(test, true);
}

static void fast_backend_is_spun_for(struct kunit *test)
{
	struct vhost_poll_policy pol;

	vhost_poll_policy_init(&pol, WINDOW, MSEC);
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, 10 * USEC, false));
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, 0, true));
}

static void stuck_backend_is_not_spun_for(struct kunit *test)
{
	struct vhost_poll_policy pol;
	u64 now = NSEC_PER_SEC;

	vhost_poll_policy_init(&pol, WINDOW, MSEC);
	KUNIT_EXPECT_EQ(test, VHOST_POLL_FOREVER,
			vhost_poll_predict(&pol, now, 1, MSEC, 10 * USEC, false));
	KUNIT_EXPECT_EQ(test, now + MSEC,
			vhost_poll_predict(&pol, now, 1, MSEC, 10 * USEC, true));
}

/* The clocks of other CPUs may be behind, and an owner may name any service time. */
static void nothing_wraps(struct kunit *test)
{
	struct vhost_poll_outlook out = { .inflight = 1 };
	struct vhost_poll_policy pol;

	vhost_poll_policy_init(&pol, WINDOW, 10 * MSEC);
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC, 1, 2 * MSEC, 0, true));
	out.wake_at = vhost_poll_predict(&pol, MSEC, 1, MSEC, U64_MAX, true);
	KUNIT_EXPECT_GT(test, out.wake_at, MSEC);
	vhost_poll_decide(&pol, VHOST_POLL_MODE_ADAPTIVE, MSEC, &out);
	vhost_poll_policy_work(&pol, 0, MSEC);
	KUNIT_EXPECT_LE(test, pol.idle_window, WINDOW);
}

static void arrivals_during_a_wait_widen_the_overlap(struct kunit *test)
{
	struct vhost_poll_policy pol;

	vhost_poll_policy_init(&pol, WINDOW, MSEC);
	vhost_poll_policy_slept(&pol, 3 * MSEC, 1, MSEC + 20 * USEC,
				MSEC + 30 * USEC);
	vhost_poll_policy_work(&pol, 2, MSEC + 30 * USEC);
	KUNIT_EXPECT_GE(test, pol.overlap_window, 30 * USEC);
	KUNIT_EXPECT_EQ(test, pol.idle_window, 0);
	vhost_poll_policy_slept(&pol, 3 * MSEC, 1, 0, 3 * MSEC);
	vhost_poll_policy_work(&pol, 0, 3 * MSEC);
	KUNIT_EXPECT_LT(test, pol.overlap_window, 30 * USEC);
}

static void so_do_arrivals_while_it_waits_to_be_told(struct kunit *test)
{
	struct vhost_poll_outlook out = {
		.inflight = 2, .wake_at = VHOST_POLL_FOREVER,
	};
	struct vhost_poll_policy pol;

	vhost_poll_policy_init(&pol, WINDOW, MSEC);
	vhost_poll_policy_slept(&pol, VHOST_POLL_FOREVER, 1, MSEC + 20 * USEC,
				MSEC + 30 * USEC);
	vhost_poll_policy_work(&pol, 0, MSEC + 30 * USEC);
	KUNIT_EXPECT_EQ(test, pol.overlap_window, 0);
	vhost_poll_policy_slept(&pol, VHOST_POLL_FOREVER, 1, MSEC + 50 * USEC,
				MSEC + 60 * USEC);
	vhost_poll_policy_work(&pol, 2, MSEC + 60 * USEC);
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_decide(&pol, VHOST_POLL_MODE_ADAPTIVE,
					  MSEC + 80 * USEC, &out));
	KUNIT_EXPECT_EQ(test, VHOST_POLL_FOREVER,
			vhost_poll_decide(&pol, VHOST_POLL_MODE_ADAPTIVE,
					  2 * MSEC, &out));
}

static void half_a_wait_is_worth_sleeping(struct kunit *test)
{
	struct vhost_poll_policy pol;

	vhost_poll_policy_init(&pol, WINDOW, MSEC);
	pol.margin = 400 * USEC;
	KUNIT_EXPECT_EQ(test, MSEC + 600 * USEC,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, MSEC, true));
	pol.margin = 500 * USEC;
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, MSEC, true));
}

static void what_cannot_be_foreseen_is_told(struct kunit *test)
{
	struct vhost_poll_policy pol;

	vhost_poll_policy_init(&pol, WINDOW, MSEC);
	pol.margin = 500 * USEC;
	/* The poller has not measured yet how long a wake-up by the backend takes. */
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, MSEC, false));
	pol.told = 100 * USEC;
	KUNIT_EXPECT_EQ(test, VHOST_POLL_FOREVER,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, MSEC, false));
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, MSEC, true));
	/* A wake-up takes more than a tenth of the service, so the poller spins. */
	pol.told = 101 * USEC;
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, MSEC, false));
	/* The poller can foresee the completion.  It sleeps first, and spins when it is near. */
	pol.told = USEC;
	pol.margin = 100 * USEC;
	KUNIT_EXPECT_EQ(test, MSEC + 900 * USEC,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, MSEC, false));
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC + 900 * USEC, 1, MSEC, MSEC,
					   false));
}

/* The poller spins even if a wake-up by the backend takes no time. */
static void what_comes_soon_is_spun_for(struct kunit *test)
{
	struct vhost_poll_policy pol;

	vhost_poll_policy_init(&pol, WINDOW, MSEC);
	pol.told = 1;
	pol.margin = 500 * USEC;
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, 40 * USEC,
					   false));
	KUNIT_EXPECT_EQ(test, VHOST_POLL_FOREVER,
			vhost_poll_predict(&pol, MSEC, 1, MSEC, 200 * USEC,
					   false));
	/* With so many requests in flight, one completes every 6 us. */
	KUNIT_EXPECT_EQ(test, VHOST_POLL_SPIN,
			vhost_poll_predict(&pol, MSEC, 32, MSEC, 200 * USEC,
					   false));
}

/* Timers fire late, as in a VM whose host gives the VM's CPUs to other tasks now and then. */
static void where_timers_are_late_it_is_told(struct kunit *test)
{
	unsigned int i, n = 1000;
	struct sim s;
	u64 oldest;

	sim_init(&s, VHOST_POLL_MODE_ADAPTIVE, false);
	sim_depth1(&s, 1, MSEC, 10 * MSEC);
	for (i = 0; i < n; i++) {
		s.timer_late = i * 389 % 1000 * USEC;
		oldest = s.now;
		sim_wait(&s, oldest + MSEC, oldest, MSEC);
		vhost_poll_policy_work(&s.pol, 0, s.now);
	}
	KUNIT_EXPECT_LT(test, s.spun, n * MSEC * 10 / 100);
	KUNIT_EXPECT_LT(test, s.late, n * MSEC * 10 / 100);
}

static void an_outlier_is_not_the_usual(struct kunit *test)
{
	struct vhost_poll_source src = {};
	int i;

	vhost_poll_learn(&src, MSEC);
	KUNIT_EXPECT_EQ(test, src.service_ns, MSEC);
	vhost_poll_learn(&src, 15 * MSEC);
	KUNIT_EXPECT_LE(test, src.service_ns, MSEC + MSEC / 8);
	vhost_poll_learn(&src, 0);
	vhost_poll_learn(&src, -MSEC);
	KUNIT_EXPECT_GE(test, src.service_ns, MSEC);
	/* If the service time stays long, the policy learns it. */
	for (i = 0; i < 64; i++)
		vhost_poll_learn(&src, 15 * MSEC);
	KUNIT_EXPECT_GE(test, src.service_ns, 14 * MSEC);
}

static struct kunit_case policy_cases[] = {
	KUNIT_CASE(busy_never_sleeps),
	KUNIT_CASE(event_sleeps_at_once),
	KUNIT_CASE(event_looks_at_a_polled_backend),
	KUNIT_CASE(idle_has_no_timer),
	KUNIT_CASE(frequent_arrivals_are_polled_for),
	KUNIT_CASE(rare_arrivals_are_not),
	KUNIT_CASE(slow_told_backend_is_slept_for),
	KUNIT_CASE(slow_polled_backend_is_slept_for),
	KUNIT_CASE(fast_backend_is_spun_for),
	KUNIT_CASE(stuck_backend_is_not_spun_for),
	KUNIT_CASE(nothing_wraps),
	KUNIT_CASE(arrivals_during_a_wait_widen_the_overlap),
	KUNIT_CASE(so_do_arrivals_while_it_waits_to_be_told),
	KUNIT_CASE(half_a_wait_is_worth_sleeping),
	KUNIT_CASE(what_cannot_be_foreseen_is_told),
	KUNIT_CASE(what_comes_soon_is_spun_for),
	KUNIT_CASE(where_timers_are_late_it_is_told),
	KUNIT_CASE(an_outlier_is_not_the_usual),
	{}
};

static struct kunit_suite policy_suite = {
	.name = "vhost_poll_policy",
	.test_cases = policy_cases,
};

kunit_test_suite(policy_suite);

MODULE_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);
MODULE_DESCRIPTION("KUnit tests of the vhost_poll policy");
MODULE_LICENSE("GPL");
