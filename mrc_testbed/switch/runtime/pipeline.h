/* A frame's way through a device (pipeline.c). Every function is called with the device locked. */
#ifndef RT_PIPELINE_H
#define RT_PIPELINE_H

#include "runtime.h"

/* Where frames go that leave a device. `data` stays where it is until the caller of the pipeline has sent it and calls
 * rt_buffers_reap. */
struct rt_out {
    void (*frame)(struct rt_out *out, struct rt_device *dev, uint32_t port, uint8_t *data, uint32_t len,
                  uint64_t at_ns);
};

/* The ways in: a frame of `len` bytes at `data`, with `headroom` bytes before it that programs may use. */
void rt_receive(struct rt_device *dev, struct rt_out *out, uint32_t port, uint8_t *data, uint32_t len,
                uint32_t headroom, uint64_t now_ns);
void rt_enter(struct rt_device *dev, struct rt_out *out, uint32_t port, uint8_t *data, uint32_t len, uint32_t headroom,
              uint64_t now_ns);
void rt_pass(struct rt_device *dev, struct rt_out *out, uint32_t port, uint8_t *data, uint32_t len, uint32_t headroom,
             uint64_t now_ns);

/* Time: what waits goes on when it is due. */
void rt_advance(struct rt_device *dev, struct rt_out *out, uint64_t now_ns);

#endif
