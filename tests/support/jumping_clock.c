/* Shifts the time of day of a process by the seconds in the file that JUMPING_CLOCK names.
 *
 * Only what an operator or NTP can set is shifted (CLOCK_REALTIME): a monotonic clock never jumps.
 * libfaketime 0.9.10 cannot do that for Python 3.11: if it leaves the monotonic clock alone, its
 * clock_nanosleep fails, and with it each time.sleep.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

/* Seconds since boot are fewer, and those since 1970 more. */
#define EPOCH 1000000000L
#define SHORT 50000000L

static const volatile long *shift;
static int (*cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*c11_timedwait)(cnd_t *, mtx_t *, const struct timespec *);
static int (*semaphore_timedwait)(sem_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    c11_timedwait = dlsym(RTLD_NEXT, "cnd_timedwait");
    semaphore_timedwait = dlsym(RTLD_NEXT, "sem_timedwait");
    const char *name = getenv("JUMPING_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED) shift = found;
}

static long seconds(void) { return shift ? *shift : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += seconds();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    if (!failed) now->tv_sec += seconds();
    return failed;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}

/* The kernel waits by its own clock. So a wait until a time of day is cut into short ones, and lasts
 * until that time as it is shown, whatever it jumps to meanwhile. Returns 1 if this is the last. */
static int next_wait(const struct timespec *until, struct timespec *at) {
    *at = *until;
    if (until->tv_sec < EPOCH) return 1;
    at->tv_sec -= seconds();
    struct timespec soon;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &soon);
    soon.tv_nsec += SHORT;
    if (soon.tv_nsec >= 1000000000L) {
        soon.tv_nsec -= 1000000000L;
        soon.tv_sec++;
    }
    if (at->tv_sec < soon.tv_sec || (at->tv_sec == soon.tv_sec && at->tv_nsec <= soon.tv_nsec))
        return 1;
    *at = soon;
    return 0;
}

/* Who waits for a condition looks at it whenever it is woken, for whatever reason. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *until) {
    struct timespec at;
    int last = next_wait(until, &at), failed = cond_timedwait(cond, mutex, &at);
    return failed == ETIMEDOUT && !last ? 0 : failed;
}

int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex,
                  const struct timespec *restrict until) {
    struct timespec at;
    int last = next_wait(until, &at), failed = c11_timedwait(cond, mutex, &at);
    return failed == thrd_timedout && !last ? thrd_success : failed;
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    for (;;) {
        struct timespec at;
        int last = next_wait(until, &at), failed = semaphore_timedwait(semaphore, &at);
        if (!failed || last || errno != ETIMEDOUT) return failed;
    }
}
