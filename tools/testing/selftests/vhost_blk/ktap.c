// SPDX-License-Identifier: GPL-2.0
/* A test runner that prints KTAP; see ktap.h. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"

#define PASS	0
#define FAIL	1
#define SKIP	4
#define LIMIT	120

void ktap_msg(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("# ", stdout);
	vprintf(fmt, ap);
	fputc('\n', stdout);
	va_end(ap);
}

void ktap_fail(const char *file, int line, const char *what)
{
	ktap_msg("%s:%d: expected %s", file, line, what);
	_exit(FAIL);
}

void ktap_eq(const char *file, int line, const char *what, long long have,
	     long long want)
{
	if (have == want)
		return;
	ktap_msg("%s:%d: %s is %lld, expected %lld", file, line, what, have,
		 want);
	_exit(FAIL);
}

void ktap_skip(const char *why)
{
	ktap_msg("skipped: %s", why);
	_exit(SKIP);
}

bool ktap_full(void)
{
	return ktap_env("FULL", 0);
}

unsigned long ktap_env(const char *name, unsigned long otherwise)
{
	const char *v = getenv(name);

	return v && *v ? strtoul(v, NULL, 0) : otherwise;
}

static int run_one(const struct ktap_test *t)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid < 0)
		return FAIL;
	if (!pid) {
		setpgid(0, 0);
		alarm(t->limit ? t->limit : LIMIT);
		t->run();
		_exit(PASS);
	}
	setpgid(pid, pid);
	if (waitpid(pid, &status, 0) != pid)
		return FAIL;
	kill(-pid, SIGKILL);
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (WTERMSIG(status) == SIGALRM)
		ktap_msg("%s: took longer than its limit", t->name);
	else
		ktap_msg("%s: killed by signal %d", t->name, WTERMSIG(status));
	return FAIL;
}

static bool wanted(int argc, char **argv, const char *name)
{
	int i;

	for (i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return argc < 2;
}

int ktap_main(int argc, char **argv, const struct ktap_test *tests,
	      unsigned int count, void (*cleanup)(void))
{
	unsigned int i, n = 0, failed = 0, skipped = 0, plan = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("TAP version 13");
	for (i = 0; i < count; i++)
		plan += wanted(argc, argv, tests[i].name);
	printf("1..%u\n", plan);

	for (i = 0; i < count; i++) {
		int ret;

		if (!wanted(argc, argv, tests[i].name))
			continue;
		ret = run_one(&tests[i]);
		if (cleanup)
			cleanup();
		n++;
		failed += ret != PASS && ret != SKIP;
		skipped += ret == SKIP;
		printf("%s %u %s%s\n",
		       ret == PASS || ret == SKIP ? "ok" : "not ok", n,
		       tests[i].name, ret == SKIP ? " # SKIP" : "");
	}
	if (failed)
		return FAIL;
	return n && skipped == n ? SKIP : PASS;
}
