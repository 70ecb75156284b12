/* Cables: what a direction of a port's cable does to frames. Loss and corruption are decided when a frame enters it. */
#include "impairment.h"
#include "runtime.h"

#define PPM 1000000u

/* The next mark of a pattern: 1 when it says so for this frame. */
static int marked(struct rt_pattern *pattern)
{
    if (!pattern->text)
        return 0;
    int yes = pattern->text[pattern->at] == '1';
    pattern->at = pattern->at + 1 == pattern->n ? 0 : pattern->at + 1;
    return yes;
}

/* With probability ppm / 1,000,000; draws only when there is something to decide. */
static int by_chance(uint64_t *random, uint32_t ppm)
{
    return ppm && (uint32_t)((rt_splitmix(random) >> 32) * PPM >> 32) < ppm;
}

/* A frame enters the cable: 0 when it is lost there; corruption flips one bit of it. */
int rt_line_pass(struct rt_line *line, uint8_t *data, uint32_t len)
{
    int lost = marked(&line->loss) | by_chance(&line->loss_random, line->loss_ppm);
    int corrupt = marked(&line->corrupt) | by_chance(&line->corrupt_random, line->corrupt_ppm);

    if (lost) {
        line->lost_packets++;
        line->lost_bytes += len;
        return 0;
    }
    if (corrupt && len) {
        uint64_t bit = rt_splitmix(&line->corrupt_random) % ((uint64_t)len * 8);
        data[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
        line->corrupted++;
    }
    return 1;
}

/* The frame of `pkt` (in `buffer`, or NULL: it is copied) arrives at due_ns, or behind the one before it. Returns 0
 * when there was no buffer for it. */
int rt_line_hold(struct rt_device *dev, struct rt_line *line, const struct p4rt_packet *pkt, struct rt_buffer *buffer,
                 uint64_t due_ns)
{
    if (!buffer)
        buffer = rt_buffer_copy(dev, pkt, 0);
    if (!buffer) {
        line->dropped_packets++;
        line->dropped_bytes += pkt->len;
        return 0;
    }
    if (line->fifo.first && line->fifo.last->due_ns > due_ns)
        due_ns = line->fifo.last->due_ns;
    buffer->due_ns = due_ns;
    rt_fifo_put(&line->fifo, buffer);
    line->held++;
    return 1;
}

/* The next frame that has arrived at now_ns, or NULL. */
struct rt_buffer *rt_line_take(struct rt_line *line, uint64_t now_ns)
{
    if (!line->fifo.first || line->fifo.first->due_ns > now_ns)
        return NULL;
    line->held--;
    return rt_fifo_take(&line->fifo);
}

/* Patterns and random choices from their beginning. */
void rt_line_restart(struct rt_line *line)
{
    uint64_t state = line->seed ^ line->salt * 0x9e3779b97f4a7c15u;

    line->loss.at = line->corrupt.at = 0;
    line->loss_random = rt_splitmix(&state);
    line->corrupt_random = rt_splitmix(&state);
}

/* A new delay: what is under way moves by the difference, so that nothing overtakes. */
void rt_line_shift(struct rt_line *line, uint64_t delay_ns)
{
    for (struct rt_buffer *b = line->fifo.first; b; b = b->next)
        b->due_ns = b->due_ns + delay_ns > line->delay_ns ? b->due_ns + delay_ns - line->delay_ns : 0;
    line->delay_ns = delay_ns;
}
