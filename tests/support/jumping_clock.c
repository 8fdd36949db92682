/* Shifts the time of day of a process by the seconds in the file that JUMPING_CLOCK names.
 *
 * Only what an operator or NTP can set is shifted (CLOCK_REALTIME): a monotonic clock never jumps.
 * libfaketime 0.9.10 cannot do that for Python 3.11: if it leaves the monotonic clock alone, its
 * clock_nanosleep fails, and with it each time.sleep.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Seconds since boot are fewer, and those since 1970 more. */
#define EPOCH 1000000000L

static const volatile long *shift;
static int (*cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*semaphore_timedwait)(sem_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
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

/* The kernel waits by its own clock. */
static struct timespec kernels(const struct timespec *until) {
    struct timespec at = *until;
    if (at.tv_sec > EPOCH) at.tv_sec -= seconds();
    return at;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *until) {
    struct timespec at = kernels(until);
    return cond_timedwait(cond, mutex, &at);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec at = kernels(until);
    return semaphore_timedwait(semaphore, &at);
}
