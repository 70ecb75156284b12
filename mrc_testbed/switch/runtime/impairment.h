/* A cable in one direction: its delay, what it loses and corrupts, and the frames that are on it. */
#ifndef RT_IMPAIRMENT_H
#define RT_IMPAIRMENT_H

#include "buffers.h"

struct rt_pattern {
    char *text;                 /* of 0 and 1; NULL: none */
    uint32_t n, at;
};

struct rt_line {
    uint64_t delay_ns, seed, salt; /* salt: makes cables with one seed differ */
    uint32_t loss_ppm, corrupt_ppm;
    struct rt_pattern loss, corrupt;
    uint64_t loss_random, corrupt_random;
    struct rt_fifo fifo;        /* by due time */
    uint64_t held, lost_packets, lost_bytes, corrupted, dropped_packets, dropped_bytes;
};

/* All are called with the device locked. */
int rt_line_pass(struct rt_line *line, uint8_t *data, uint32_t len);
int rt_line_hold(struct rt_device *dev, struct rt_line *line, const struct p4rt_packet *pkt, struct rt_buffer *buffer,
                 uint64_t due_ns);
struct rt_buffer *rt_line_take(struct rt_line *line, uint64_t now_ns);
void rt_line_restart(struct rt_line *line);
void rt_line_shift(struct rt_line *line, uint64_t delay_ns);

/* Whether a frame passes as if there were no cable. */
static inline int rt_line_plain(const struct rt_line *line)
{
    return !(line->delay_ns | line->loss_ppm | line->corrupt_ppm) && !line->loss.text && !line->corrupt.text &&
           !line->fifo.first;
}

#endif
