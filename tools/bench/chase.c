/* Nanoseconds of a step from one line of memory to the next one, in random order, through so many MB: chase MB STEPS.
 *
 * Beside what fits in the last level of the caches it tells how much of that other machines leave to this one.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LINE = 64 };

static uint64_t state = 88172645463325252u;

static uint64_t draw(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **words)
{
    size_t lines = count == 3 ? strtoul(words[1], NULL, 10) * (1 << 20) / LINE : 0;
    size_t steps = count == 3 ? strtoul(words[2], NULL, 10) : 0;
    char *memory = lines ? aligned_alloc(LINE, lines * LINE) : NULL;
    size_t *order = lines ? malloc(lines * sizeof *order) : NULL;
    if (memory == NULL || order == NULL || steps == 0)
        return fprintf(stderr, "usage: chase MB STEPS, and memory for it\n"), 2;
    for (size_t i = 0; i < lines; i++)
        order[i] = i;
    for (size_t i = lines - 1; i > 0; i--) {
        size_t j = draw() % (i + 1), moved = order[i];
        order[i] = order[j], order[j] = moved;
    }
    for (size_t i = 0; i < lines; i++)
        *(void **)(memory + order[i] * LINE) = memory + order[(i + 1) % lines] * LINE;
    free(order);
    void **at = (void **)memory;
    for (size_t i = 0; i < lines; i++) /* once round: what can be in the caches then is */
        at = *at;
    double began = now_s();
    for (size_t i = 0; i < steps; i++)
        at = *at;
    double took = now_s() - began;
    printf("%.2f\n", 1e9 * took / (double)steps);
    return at == NULL;
}
