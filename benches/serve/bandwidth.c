// Reads a buffer with some threads, again and again; prints the bytes a second of the best pass.
// usage: bandwidth BYTES THREADS PASSES

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t *buffer;
static const size_t huge_page = 1 << 21;
static size_t words, threads, passes;
static pthread_barrier_t barrier;
static double best, *starts;
static uint64_t total;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Several sums, so that additions do not wait for each other.
static uint64_t sum(const uint64_t *from, size_t count) {
    uint64_t sums[32] = {0};
    for (size_t i = 0; i + 32 <= count; i += 32)
        for (size_t j = 0; j < 32; j++) sums[j] += from[i + j];
    uint64_t all = 0;
    for (size_t j = 0; j < 32; j++) all += sums[j];
    return all;
}

// Thread 0 judges a pass that all have ended. It may itself have begun after the others.
static void judge(size_t share) {
    double start = starts[0];
    for (size_t i = 1; i < threads; i++)
        if (starts[i] < start) start = starts[i];
    double rate = (double)(share * threads * sizeof *buffer) / (now() - start);
    if (rate > best) best = rate;
}

static void *reader(void *argument) {
    size_t index = (size_t)argument, share = words / threads;
    uint64_t *from = buffer + index * share;
    // Written by the thread that reads it, so that the pages lie near its core.
    for (size_t i = 0; i < share; i++) from[i] = i;
    for (size_t pass = 0; pass < passes; pass++) {
        pthread_barrier_wait(&barrier);
        starts[index] = now();
        uint64_t read = sum(from, share);
        pthread_barrier_wait(&barrier);
        __atomic_fetch_add(&total, read, __ATOMIC_RELAXED);
        if (index == 0) judge(share);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    words = strtoull(argv[1], NULL, 10) / sizeof *buffer;
    threads = strtoull(argv[2], NULL, 10);
    passes = strtoull(argv[3], NULL, 10);
    if (!words || !threads || posix_memalign((void **)&buffer, huge_page, words * sizeof *buffer)) return 1;
    // Looking up small pages costs a third of the rate. Where the kernel has no others, it may refuse.
    madvise(buffer, words * sizeof *buffer, MADV_HUGEPAGE);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    pthread_t *ids = calloc(threads, sizeof *ids);
    starts = calloc(threads, sizeof *starts);
    if (!ids || !starts) return 1;
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, reader, (void *)i)) return 1;
    for (size_t i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    // The sum is printed so that no compiler leaves it out.
    printf("%.0f %llu\n", best, (unsigned long long)total);
    return 0;
}
