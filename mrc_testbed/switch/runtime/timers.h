/* Timers by due time: a binary heap of things that know their place in it. */
#ifndef RT_TIMERS_H
#define RT_TIMERS_H

#include <stdint.h>
#include <stdlib.h>

#define RT_NEVER UINT64_MAX

struct rt_timer {
    uint64_t due_ns;
    uint32_t place;             /* in rt_timers.at, counted from 1; 0: not there */
    uint32_t order;             /* among those due at the same time, the least first */
};

struct rt_timers {
    struct rt_timer **at;       /* at[0] is due first */
    uint32_t n, room;
};

/* Room for `n` timers, so that rt_timer_set cannot fail. -1: out of memory. */
static inline int rt_timers_reserve(struct rt_timers *timers, uint32_t n)
{
    uint32_t room = timers->room ? timers->room : 8;

    while (room < n)
        room *= 2;
    if (room == timers->room)
        return 0;
    struct rt_timer **at = realloc(timers->at, room * sizeof *at);
    if (!at)
        return -1;
    timers->at = at;
    timers->room = room;
    return 0;
}

static inline int rt_timer_before(const struct rt_timer *a, const struct rt_timer *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static inline void rt_timer_at(struct rt_timers *timers, uint32_t index, struct rt_timer *timer)
{
    timers->at[index] = timer;
    timer->place = index + 1;
}

/* Put `timer` where it belongs when its right place is at `index` or above or below it. */
static inline void rt_timer_sift(struct rt_timers *timers, uint32_t index, struct rt_timer *timer)
{
    while (index && rt_timer_before(timer, timers->at[(index - 1) / 2])) {
        rt_timer_at(timers, index, timers->at[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    for (uint32_t child; (child = 2 * index + 1) < timers->n; index = child) {
        if (child + 1 < timers->n && rt_timer_before(timers->at[child + 1], timers->at[child]))
            child++;
        if (!rt_timer_before(timers->at[child], timer))
            break;
        rt_timer_at(timers, index, timers->at[child]);
    }
    rt_timer_at(timers, index, timer);
}

/* `timer` is due then; RT_NEVER takes it out. */
static inline void rt_timer_set(struct rt_timers *timers, struct rt_timer *timer, uint64_t due_ns)
{
    uint32_t index = timer->place ? timer->place - 1 : timers->n;

    if (timer->place && timer->due_ns == due_ns)
        return;
    timer->due_ns = due_ns;
    if (due_ns != RT_NEVER) {
        if (!timer->place)
            timers->n++;
        rt_timer_sift(timers, index, timer);
    } else if (timer->place) {
        struct rt_timer *last = timers->at[--timers->n];
        timer->place = 0;
        if (last != timer)
            rt_timer_sift(timers, index, last);
    }
}

#endif
