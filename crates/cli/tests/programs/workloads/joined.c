/* A process that has joined its only other thread is one of one thread again: only such may have a
 * new user namespace. The kernel wakes who waits for a thread a moment before the thread is gone, so
 * a few find it still there.
 *
 * Exit status 1 if many do.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 300
#define FEW (ROUNDS / 20)

static void *rest(void *argument)
{
	/* So that the other waits for its end. */
	usleep(1000);
	return argument;
}

static int join(void)
{
	pthread_t thread;

	if (pthread_create(&thread, 0, rest, 0) || pthread_join(thread, 0))
		return 3;
	if (!unshare(CLONE_NEWUSER))
		return 0;
	return errno == EINVAL ? 1 : 2;
}

int main(void)
{
	int found = 0, refused = 0;

	for (int i = 0; i < ROUNDS; i++) {
		pid_t child = fork();
		int status = -1;

		if (!child)
			_exit(join());
		waitpid(child, &status, 0);
		found += status == 1 << 8;
		refused += status != 0 && status != 1 << 8;
	}
	if (refused)
		return puts("there are no user namespaces here"), 0;
	puts(found > FEW ? "threads were there that had been joined" : "threads are gone that are joined");
	return found > FEW;
}
