/* A fair lock: whoever came first gets it first.
 *
 * The forwarding thread takes and gives a lock for every batch of frames, without a pause between; with an ordinary
 * mutex a control thread that waits could starve. Here it draws a ticket and is next. Waiters sleep in a futex.
 */
#ifndef RT_LOCK_H
#define RT_LOCK_H

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rt_lock {
    _Atomic uint32_t next;      /* ticket of the next to come */
    _Atomic uint32_t serving;   /* ticket of the holder; a futex */
    _Atomic uint64_t holder;    /* thread that may take it again (rt_lock_keep); 0: none */
    uint32_t again;             /* how often it has */
};

static inline uint64_t rt_this_thread(void)
{
    return (uint64_t)pthread_self();
}

static inline void rt_lock(struct rt_lock *lock)
{
    uint64_t holder = atomic_load_explicit(&lock->holder, memory_order_relaxed);
    if (holder && holder == rt_this_thread()) {
        lock->again++;
        return;
    }
    uint32_t mine = atomic_fetch_add(&lock->next, 1), now;
    while ((now = atomic_load(&lock->serving)) != mine)
        syscall(SYS_futex, (uint32_t *)&lock->serving, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
}

static inline void rt_unlock(struct rt_lock *lock)
{
    if (lock->again) { /* only the holder ever sees it above 0, for only it has the lock */
        lock->again--;
        return;
    }
    uint32_t now = atomic_fetch_add(&lock->serving, 1) + 1;
    if (atomic_load(&lock->next) != now)
        syscall(SYS_futex, (uint32_t *)&lock->serving, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Take the lock and keep it over several calls of functions that take and give it themselves. May be nested. */
static inline void rt_lock_keep(struct rt_lock *lock)
{
    rt_lock(lock);
    atomic_store_explicit(&lock->holder, rt_this_thread(), memory_order_relaxed);
}

static inline void rt_lock_release(struct rt_lock *lock)
{
    if (!lock->again)
        atomic_store_explicit(&lock->holder, 0, memory_order_relaxed);
    rt_unlock(lock);
}

#endif
