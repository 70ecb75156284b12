/* CRCs and random numbers for programs. */
#include "runtime.h"

static uint16_t crc16_table[256];
static uint32_t crc32_table[256];

__attribute__((constructor)) static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c16 = i, c32 = i;
        for (int bit = 0; bit < 8; bit++) {
            c16 = c16 & 1 ? c16 >> 1 ^ 0xa001 : c16 >> 1;
            c32 = c32 & 1 ? c32 >> 1 ^ 0xedb88320 : c32 >> 1;
        }
        crc16_table[i] = (uint16_t)c16;
        crc32_table[i] = c32;
    }
}

static uint16_t crc16(const uint8_t *data, size_t len)
{
    uint16_t crc = 0;
    while (len--)
        crc = (uint16_t)(crc >> 8 ^ crc16_table[(crc ^ *data++) & 0xff]);
    return crc;
}

static uint32_t crc32(const uint8_t *data, size_t len)
{
    uint32_t crc = ~0u;
    while (len--)
        crc = crc >> 8 ^ crc32_table[(crc ^ *data++) & 0xff];
    return ~crc;
}

void rt_random_seed(struct rt_random *random)
{
    uint64_t state = random->seed;
    random->state[0] = rt_splitmix(&state);
    random->state[1] = rt_splitmix(&state);
}

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

/* xoroshiro128+ */
static uint64_t random64(struct p4rt_device *pub)
{
    uint64_t *s = ((struct rt_device *)pub)->random.state;
    uint64_t a = s[0], b = s[1], result = a + b;
    b ^= a;
    s[0] = rotl(a, 24) ^ b ^ b << 16;
    s[1] = rotl(b, 37);
    return result;
}

const struct p4rt_ops rt_ops = {.crc16 = crc16, .crc32 = crc32, .random = random64, .digest = rt_digest, .meter = rt_meter,
                               .trace = rt_trace};
