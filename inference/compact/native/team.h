/* The threads of a step: the caller leads, helpers take tasks when they are there to take them.
 *
 * The leader publishes a number of tasks; each thread that is awake claims one at a time. So a helper
 * that the system has put aside delays no other unless it holds a task at that moment, and one that
 * wakes late joins in the middle. Helpers spin for a bounded time, then sleep.
 */
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LANES_MAX 64
/* How often a waiting thread looks before it reads the clock. */
#define LOOKS_PER_CLOCK 32
/* How often the leader looks for the last task's end before it offers its core to others. */
#define LOOKS_BEFORE_YIELD 2000

#ifdef __x86_64__
#define relax() __builtin_ia32_pause()
#else
#define relax() __asm__ volatile("yield")
#endif

typedef void (*task_fn)(void *job, int task, int lane);

struct helper {
    _Alignas(LINE) _Atomic uint32_t asleep;
    struct team *team;
    pthread_t thread;
    int lane;
};

struct team {
    /* Generation of the phase in the upper half, tasks left to claim in the lower: a claim by
     * compare-and-swap can therefore never hit a later phase. */
    _Alignas(LINE) _Atomic uint64_t work;
    _Alignas(LINE) _Atomic uint32_t done;
    _Alignas(LINE) _Atomic int width;
    _Atomic int closing;
    task_fn fn;
    void *job;
    int64_t stall_ns;
    int64_t spin_ns;
    int lanes;
    struct helper helpers[LANES_MAX];
};

static int64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Take and finish one task of the current phase; 0 if there is none. */
static int team_take(struct team *team, int lane) {
    uint64_t work = atomic_load_explicit(&team->work, memory_order_acquire);
    do {
        if (!(uint32_t)work) return 0;
    } while (!atomic_compare_exchange_weak(&team->work, &work, work - 1));
    /* The phase cannot end before this task, so `fn` and `job` are those of the claim. */
    team->fn(team->job, (int)(uint32_t)work - 1, lane);
    atomic_fetch_add_explicit(&team->done, 1, memory_order_release);
    return 1;
}

static void helper_sleep(struct helper *helper) {
    struct team *team = helper->team;
    atomic_store(&helper->asleep, 1);
    /* Looked at once more after saying so, or a phase published in between would be missed. */
    if ((uint32_t)atomic_load(&team->work) && helper->lane < atomic_load(&team->width)) {
        atomic_store(&helper->asleep, 0);
        return;
    }
    while (atomic_load(&helper->asleep) && !atomic_load(&team->closing))
        syscall(SYS_futex, &helper->asleep, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

static void helper_wake(struct helper *helper) {
    if (!atomic_load(&helper->asleep)) return;
    atomic_store(&helper->asleep, 0);
    syscall(SYS_futex, &helper->asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *helper_main(void *argument) {
    struct helper *helper = argument;
    struct team *team = helper->team;
    int64_t idle_since = now_ns(CLOCK_MONOTONIC);
    while (!atomic_load_explicit(&team->closing, memory_order_relaxed)) {
        int worked = 0;
        for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
            if (helper->lane < atomic_load_explicit(&team->width, memory_order_relaxed))
                while (team_take(team, helper->lane)) worked = 1;
            relax();
        }
        int64_t now = now_ns(CLOCK_MONOTONIC);
        if (worked) idle_since = now;
        if (now - idle_since < team->spin_ns) continue;
        helper_sleep(helper);
        idle_since = now_ns(CLOCK_MONOTONIC);
    }
    return NULL;
}

/* Run `fn` for tasks 0 to `tasks` - 1, the highest first; all are finished on return. */
static void team_run(struct team *team, int tasks, task_fn fn, void *job) {
    int width = atomic_load_explicit(&team->width, memory_order_relaxed);
    if (width == 1 || tasks <= 1) {
        for (int task = tasks - 1; task >= 0; task--) fn(job, task, 0);
        return;
    }
    team->fn = fn;
    team->job = job;
    atomic_store_explicit(&team->done, 0, memory_order_relaxed);
    uint64_t generation = (atomic_load_explicit(&team->work, memory_order_relaxed) >> 32) + 1;
    atomic_store(&team->work, generation << 32 | (uint32_t)tasks);
    for (int lane = 1; lane < width; lane++) helper_wake(&team->helpers[lane]);
    while (team_take(team, 0)) continue;
    if (atomic_load_explicit(&team->done, memory_order_acquire) == (uint32_t)tasks) return;
    int64_t waiting_since = now_ns(CLOCK_MONOTONIC);
    for (int looks = 0; atomic_load_explicit(&team->done, memory_order_acquire) != (uint32_t)tasks;
         looks++) {
        relax();
        /* The thread with the last task may be waiting for this very core. */
        if (looks >= LOOKS_BEFORE_YIELD) sched_yield();
    }
    team->stall_ns += now_ns(CLOCK_MONOTONIC) - waiting_since;
}

static void team_close(struct team *team) {
    atomic_store(&team->closing, 1);
    for (int lane = 1; lane < team->lanes; lane++) {
        atomic_store(&team->helpers[lane].asleep, 0);
        syscall(SYS_futex, &team->helpers[lane].asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        pthread_join(team->helpers[lane].thread, NULL);
    }
    free(team);
}

/* A team of at most `lanes` threads, the caller included; fewer where the system gives no more. */
static struct team *team_open(int lanes, int64_t spin_ns) {
    struct team *team = aligned_alloc(LINE, (sizeof *team + LINE - 1) / LINE * LINE);
    if (!team) return NULL;
    *team = (struct team){.spin_ns = spin_ns, .lanes = 1, .width = 1};
    for (int lane = 1; lane < lanes && lane < LANES_MAX; lane++) {
        struct helper *helper = &team->helpers[lane];
        helper->team = team;
        helper->lane = lane;
        if (pthread_create(&helper->thread, NULL, helper_main, helper)) break;
        team->lanes = lane + 1;
    }
    return team;
}
