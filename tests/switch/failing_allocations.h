/* Forced into each file of the runtime (gcc -include) by allocation_run.py: one allocation, by its number, fails. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* as the files of the runtime do, which come after this */
#endif
#include <stdlib.h>

__attribute__((weak, visibility("default"))) long p4rt_allocations; /* so far */
__attribute__((weak, visibility("default"))) long p4rt_failing_allocation; /* its number, from 1; 0: none */

static inline int p4rt_allocation_fails(void)
{
    return ++p4rt_allocations == p4rt_failing_allocation;
}

static inline void *p4rt_test_malloc(size_t bytes)
{
    return p4rt_allocation_fails() ? NULL : malloc(bytes);
}

static inline void *p4rt_test_calloc(size_t count, size_t bytes)
{
    return p4rt_allocation_fails() ? NULL : calloc(count, bytes);
}

static inline void *p4rt_test_realloc(void *old, size_t bytes)
{
    return p4rt_allocation_fails() ? NULL : realloc(old, bytes);
}

static inline void *p4rt_test_aligned_alloc(size_t alignment, size_t bytes)
{
    return p4rt_allocation_fails() ? NULL : aligned_alloc(alignment, bytes);
}

#define malloc p4rt_test_malloc
#define calloc p4rt_test_calloc
#define realloc p4rt_test_realloc
#define aligned_alloc p4rt_test_aligned_alloc
