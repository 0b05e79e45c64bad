/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests as statements of behaviour, reported in KTAP.  Each runs in a process
 * of its own under a time limit, so that one that fails, crashes or hangs
 * leaves nothing open behind it, and the others still run.
 */
#ifndef VHOST_BLK_KTAP_H
#define VHOST_BLK_KTAP_H

#include <stdbool.h>

struct ktap_test {
	const char *name;
	void (*run)(void);
	/* seconds; 0 for the usual */
	unsigned int limit;
};

/*
 * Runs the tests, or those whose name contains an argument; returns the exit
 * status.  @cleanup runs in the parent after each.
 */
int ktap_main(int argc, char **argv, const struct ktap_test *tests,
	      unsigned int count, void (*cleanup)(void));

__noreturn void ktap_fail(const char *file, int line, const char *what);
void ktap_eq(const char *file, int line, const char *what, long long have,
	     long long want);
__noreturn void ktap_skip(const char *why);
void ktap_msg(const char *fmt, ...) __printf(1, 2);

/* Whether the long versions were asked for (FULL=1). */
bool ktap_full(void);
/* A number from the environment. */
unsigned long ktap_env(const char *name, unsigned long otherwise);

#define EXPECT(cond) \
	((cond) ? (void)0 : ktap_fail(__FILE__, __LINE__, #cond))
#define EXPECT_EQ(have, want) \
	ktap_eq(__FILE__, __LINE__, #have, (long long)(have), (long long)(want))

#define KTAP_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif /* VHOST_BLK_KTAP_H */
