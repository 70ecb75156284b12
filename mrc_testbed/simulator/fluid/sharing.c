/* One sweep of mrc_testbed/simulator/fluid/sharing.py over some queue pairs: what sweep_in_numpy does there, which tells why. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { NO_SPINE = 0xFFFF };

typedef struct {
    const float *values;
    long long count;
    float per_unit;
} Table;

/* Value of a table of equal steps, linear between them, constant beyond its end. */
static inline float at(const Table *table, float where)
{
    float place = where * table->per_unit;
    if (place <= 0)
        return table->values[0];
    long long below = (long long)place;
    if (below >= table->count - 1)
        return table->values[table->count - 1];
    float part = place - (float)below;
    return table->values[below] * (1 - part) + table->values[below + 1] * part;
}

typedef struct {
    int32_t planes, racks, spines, slots;
    float eta, step, top, floor;
    Table cost, skips, trims, wanted;
    const int32_t *source, *target;
    const float *weight;
    const uint16_t *spine;
    const uint8_t *usable;
    float *rate, *share;
    double *up, *down;
    float *price;
    const float *crowd, *bursts;
} Sharing;

/* Largest change of a rate. `active`: `count` queue pairs; `new_rate`, `new_share`: room for what they get. */
__attribute__((visibility("default"))) double sweep(
    const Sharing *all, long long count, const int32_t *active, float *new_rate, float *new_share)
{
    const int planes = all->planes, racks = all->racks, spines = all->spines, slots = all->slots;
    const float eta = all->eta, step = all->step, top = all->top;
    const Table cost = all->cost, skips = all->skips, trims = all->trims, wanted = all->wanted;
    const int32_t *source = all->source, *target = all->target;
    const float *weight = all->weight;
    const uint16_t *spine = all->spine;
    const uint8_t *usable = all->usable;
    float *rate = all->rate, *share = all->share, *price = all->price;
    double *up = all->up, *down = all->down;
    const long long row = (long long)planes * slots;
    double largest = 0;

    /* Prices of all links first where a link has many users: cost, skips and trims, up and down. Else they are made as needed. */
    const long long links = (long long)planes * racks * spines;
    const int few = count * row < links;
    for (long long i = 0; !few && i < links; i++) {
        const float senders = all->crowd[i / spines % racks], receivers = all->crowd[racks + i / spines % racks];
        price[6 * i] = senders * at(&cost, (float)up[i]);
        price[6 * i + 1] = senders * at(&skips, (float)up[i]);
        price[6 * i + 2] = senders * at(&trims, (float)up[i]);
        price[6 * i + 3] = receivers * at(&cost, (float)down[i]);
        price[6 * i + 4] = receivers * at(&skips, (float)down[i]);
        price[6 * i + 5] = receivers * at(&trims, (float)down[i]);
    }
    for (long long i = 0; i < count; i++) {
        const long long qp = active[i];
        float *mine = new_share + i * row;
        const float *before = share + qp * row;
        memset(mine, 0, row * sizeof(float));
        if (source[qp] == target[qp] || weight[qp] == 0) {
            new_rate[i] = top;
            continue;
        }
        float seen = 0;
        int used = 0;
        for (int plane = 0; plane < planes; plane++) {
            if (!usable[qp * planes + plane])
                continue;
            const uint16_t *lane = spine + (qp * planes + plane) * slots;
            const long long from = ((long long)plane * racks + source[qp]) * spines;
            const long long to = ((long long)plane * racks + target[qp]) * spines;
            float total = 0;
            for (int slot = 0; slot < slots; slot++) {
                if (lane[slot] == NO_SPINE)
                    continue;
                const long long a = from + lane[slot], z = to + lane[slot];
                if (few) {
                    const float senders = all->crowd[source[qp]], receivers = all->crowd[racks + target[qp]];
                    price[6 * a] = senders * at(&cost, (float)up[a]);
                    price[6 * a + 1] = senders * at(&skips, (float)up[a]);
                    price[6 * a + 2] = senders * at(&trims, (float)up[a]);
                    price[6 * z + 3] = receivers * at(&cost, (float)down[z]);
                    price[6 * z + 4] = receivers * at(&skips, (float)down[z]);
                    price[6 * z + 5] = receivers * at(&trims, (float)down[z]);
                }
                const float turn = 1 / (1 + price[6 * a + 1] + price[6 * z + 4]);
                mine[plane * slots + slot] = turn;
                total += turn;
            }
            if (total == 0)
                continue;
            used++;
            for (int slot = 0; slot < slots; slot++) {
                if (lane[slot] == NO_SPINE)
                    continue;
                float *one = mine + plane * slots + slot;
                *one = 0.5f * before[plane * slots + slot] + 0.5f * *one / total;
                const float *first = price + 6 * (from + lane[slot]), *second = price + 6 * (to + lane[slot]) + 3;
                /* Trims cost more the more packets a round trip has. */
                seen += *one * (first[0] + second[0] + rate[qp] * (first[2] + second[2]));
            }
        }
        /* Bursts grow with rate ** BURST_POWER. */
        const float burst = all->bursts[qp] * rate[qp] * rate[qp] * sqrtf(rate[qp]);
        float change = used ? eta * (at(&wanted, rate[qp]) - burst - seen / used) : 0;
        change = change > step ? step : change < -step ? -step : change;
        float next = rate[qp] + change;
        new_rate[i] = next > top ? top : next < all->floor ? all->floor : next;
        if (fabsf(new_rate[i] - rate[qp]) > largest)
            largest = fabsf(new_rate[i] - rate[qp]);
    }
    for (long long i = 0; i < count; i++) {
        const long long qp = active[i];
        float *mine = new_share + i * row, *before = share + qp * row;
        if (source[qp] != target[qp]) {
            for (int plane = 0; plane < planes; plane++) {
                const uint16_t *lane = spine + (qp * planes + plane) * slots;
                const long long from = ((long long)plane * racks + source[qp]) * spines;
                const long long to = ((long long)plane * racks + target[qp]) * spines;
                for (int slot = 0; slot < slots; slot++) {
                    if (lane[slot] == NO_SPINE)
                        continue;
                    const long long k = plane * slots + slot;
                    const double more =
                        (double)weight[qp] * ((double)new_rate[i] * mine[k] - (double)rate[qp] * before[k]);
                    up[from + lane[slot]] += more;
                    down[to + lane[slot]] += more;
                }
            }
            memcpy(before, mine, row * sizeof(float));
        }
        rate[qp] = new_rate[i];
    }
    return largest;
}
