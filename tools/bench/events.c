/* The limit: an event loop that does nothing but keep its events in order of time.
 *
 *     events EVENTS DEPTH      both at least 1
 *
 * A binary heap of (time, serial number, handler, argument), as mrc_testbed/simulator/events.py has it. DEPTH events wait at the
 * beginning; each of EVENTS turns takes the earliest, calls its handler, and that puts one in at a random later time, so
 * that DEPTH stay. Prints the CPU seconds of these turns. Exit code 1 when an event came before an earlier one: then the
 * figure would be that of a broken queue.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct event {
    double at;
    uint64_t serial;
    void (*handler)(void *argument, double now);
    void *argument;
};

static struct event *heap;
static size_t waiting;
static uint64_t next_serial, dice = 0x9E3779B97F4A7C15u;

static int before(const struct event *a, const struct event *b)
{
    return a->at < b->at || (a->at == b->at && a->serial < b->serial);
}

static void push(double at, void (*handler)(void *, double), void *argument)
{
    struct event new = {at, next_serial++, handler, argument};
    size_t hole = waiting++;
    while (hole && before(&new, &heap[(hole - 1) / 2])) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = new;
}

static struct event pop(void)
{
    struct event first = heap[0], last = heap[--waiting];
    size_t hole = 0, child;
    while ((child = 2 * hole + 1) < waiting) {
        if (child + 1 < waiting && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &last))
            break;
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = last;
    return first;
}

static double later(void)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (double)(dice >> 11) / 9007199254740992.0; /* 0 to 1 */
}

static void again(void *argument, double now)
{
    push(now + later(), again, argument);
}

static double cpu_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

int main(int count, char **words)
{
    uint64_t events = count == 3 ? strtoull(words[1], NULL, 10) : 0;
    size_t depth = count == 3 ? strtoull(words[2], NULL, 10) : 0;
    if (!events || !depth) {
        fprintf(stderr, "usage: events EVENTS DEPTH\n");
        return 2;
    }
    heap = calloc(depth + 1, sizeof *heap);
    if (!heap) {
        fprintf(stderr, "events: no memory for %zu events\n", depth);
        return 2;
    }
    while (waiting < depth)
        push(later(), again, NULL);
    double began = cpu_s(), now = 0;
    int wrong = 0;
    for (uint64_t done = 0; done < events; done++) {
        struct event first = pop();
        wrong |= first.at < now;
        now = first.at;
        first.handler(first.argument, now);
    }
    double used = cpu_s() - began;
    if (wrong || waiting != depth) {
        fprintf(stderr, "events: not in order of time\n");
        return 1;
    }
    printf("%.9f\n", used);
    return 0;
}
