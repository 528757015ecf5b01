// A wall clock that a test can step, for a program that is preloaded with this.
//
// The offset in seconds is the 64-bit number in the file that TOLLGATE_TEST_CLOCK
// names; it is mapped, so that a write to the file is seen by the next reading.
// Not libfaketime: 0.9.10 hangs redis-server 7.0 at its start, with "unexpected
// recursive calls to clock_gettime()"; most likely jemalloc reads the clock while
// libfaketime sets itself up. Nothing here allocates or needs to set itself up first.
// The monotonic clock is left alone, as it is when an administrator sets the time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("TOLLGATE_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) _exit(97); // a test must not run on the wrong clock
    close(file);
    offset = mapped;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, id, now);
    if (!failed && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    if (!failed) *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
