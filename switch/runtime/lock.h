/* A fair lock: whoever came first gets it first.
 *
 * The forwarding thread takes and gives a lock for every batch of frames, without a pause between; with an ordinary
 * mutex a control thread that waits could starve. Here it draws a ticket and is next. Waiters sleep in a futex.
 */
#ifndef RT_LOCK_H
#define RT_LOCK_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rt_lock {
    _Atomic uint32_t next;      /* ticket of the next to come */
    _Atomic uint32_t serving;   /* ticket of the holder; a futex */
};

static inline void rt_lock(struct rt_lock *lock)
{
    uint32_t mine = atomic_fetch_add(&lock->next, 1), now;
    while ((now = atomic_load(&lock->serving)) != mine)
        syscall(SYS_futex, (uint32_t *)&lock->serving, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
}

static inline void rt_unlock(struct rt_lock *lock)
{
    uint32_t now = atomic_fetch_add(&lock->serving, 1) + 1;
    if (atomic_load(&lock->next) != now)
        syscall(SYS_futex, (uint32_t *)&lock->serving, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#endif
