/* One sweep of mrc_testbed/simulator/fluid/sharing.py over some queue pairs: what sweep_in_numpy does there, which tells why. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { NO_SPINE = 0xFFFF, SLOTS_MAX = 256 };

typedef struct {
    const float *values;
    long long count;
    float per_unit;
} Table;

/* Floats of a link's price: cost, skips, trims, and one unused, so that a price never crosses a cache line. */
enum { COST, SKIPS, TRIMS, PRICE_FLOATS = 4 };

/* Load of a link that no queue pair uses, but for rounding. */
#define UNUSED_LOAD 1e-6

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

/* The same of a table of prices, times the part of a full queue. */
static inline void set_price(const Table *table, float load, float crowd, float *price)
{
    float place = load * table->per_unit;
    long long below = place > 0 ? (long long)place : 0;
    float part = place > 0 ? place - (float)below : 0;
    if (below >= table->count - 1) {
        below = table->count - 1;
        part = 0;
    }
    /* The table has one more row than its count. */
    const float *low = table->values + PRICE_FLOATS * below, *high = low + PRICE_FLOATS;
    for (int i = 0; i < PRICE_FLOATS; i++)
        price[i] = crowd * (low[i] * (1 - part) + high[i] * part);
}

typedef struct {
    int32_t planes, racks, spines, slots;
    float eta, step, top, floor, sacks, relief;
    Table prices, wanted;
    const int32_t *source, *target;
    const float *weight;
    const uint16_t *spine;
    const uint8_t *usable;
    const float *limit;
    float *rate, *demand, *share;
    double *up, *down, *variance;
    float *price, *delay;
    const float *crowd, *bursts;
} Sharing;

/* Set the prices of all links, a T0's in a plane at a time.

A link's queue follows the wire: packets of its own, SACKs of those the other way, which are spread over the T0's links,
and a part of the mean of these links, for marks send packets from one to another. Flows of rings send and wait by turns:
a link's price is the mean of those one deviation of its load above and below what they find while they send. */
static void set_prices(const Sharing *all)
{
    const int racks = all->racks, spines = all->spines;
    const long long rows = (long long)all->planes * racks;
    const Table prices = all->prices;
    const double data = 1 - all->sacks, own = (1 - all->relief) * data;
    for (int way = 0; way < 2; way++) {
        const double *loads = way ? all->down : all->up, *others = way ? all->up : all->down;
        float *price = all->price + way * PRICE_FLOATS * rows * spines;
        for (long long row = 0; row < rows; row++) {
            const double *load = loads + row * spines, *other = others + row * spines;
            const float crowd = all->crowd[way * racks + row % racks];
            double sum = 0, others_sum = 0;
            int used = 0;
            for (int spine = 0; spine < spines; spine++) {
                sum += load[spine];
                others_sum += other[spine];
                used += load[spine] > UNUSED_LOAD;
            }
            /* What a packet of a ring finds beyond the mean load: its own flow sends now, others may or may not. */
            const double excess = sum > 0 ? all->variance[way * rows + row] / sum : 0;
            const double common = used ? (all->relief * data * sum + all->sacks * others_sum) / used : 0;
            for (int spine = 0; spine < spines; spine++, price += PRICE_FLOATS) {
                if (excess <= 0 || load[spine] <= UNUSED_LOAD) {
                    set_price(&prices, (float)(own * load[spine] + common), crowd, price);
                    continue;
                }
                const double mean = load[spine] + excess, deviation = sqrt(load[spine] * excess);
                float high[PRICE_FLOATS];
                set_price(&prices, (float)(own * (mean - deviation) + common), 0.5f * crowd, price);
                set_price(&prices, (float)(own * (mean + deviation) + common), 0.5f * crowd, high);
                for (int i = 0; i < PRICE_FLOATS; i++)
                    price[i] += high[i];
            }
        }
    }
}

/* Largest change of a rate. `active`: `count` queue pairs; `mine`: room for the shares of one. */
__attribute__((visibility("default"))) double sweep(
    const Sharing *all, long long count, const int32_t *active, float *mine)
{
    const int planes = all->planes, racks = all->racks, spines = all->spines, slots = all->slots;
    const float eta = all->eta, step = all->step, top = all->top;
    const Table wanted = all->wanted;
    const int32_t *source = all->source, *target = all->target;
    const float *weight = all->weight;
    const uint16_t *spine = all->spine;
    const uint8_t *usable = all->usable;
    const float *up_price = all->price, *down_price = all->price + PRICE_FLOATS * (long long)planes * racks * spines;
    const float *limit = all->limit;
    float *rate = all->rate, *demand = all->demand, *share = all->share;
    double *up = all->up, *down = all->down;
    const long long row = (long long)planes * slots;
    float turn[SLOTS_MAX], missed[SLOTS_MAX], cost[SLOTS_MAX], trims[SLOTS_MAX];
    double more[SLOTS_MAX], largest = 0;

    /* Prices come first: all queue pairs see the loads from before the sweep. */
    set_prices(all);
    memset(all->variance, 0, 2 * planes * racks * sizeof(double));
    for (long long i = 0; i < count; i++) {
        const long long qp = active[i];
        if (source[qp] == target[qp]) {
            if (fabsf(top - rate[qp]) > largest)
                largest = fabsf(top - rate[qp]);
            rate[qp] = top;
            continue;
        }
        float *before = share + qp * row;
        memset(mine, 0, row * sizeof(float));
        float seen = 0;
        int used = 0;
        for (int plane = 0; plane < planes; plane++) {
            if (!usable[qp * planes + plane])
                continue;
            const uint16_t *lane = spine + (qp * planes + plane) * slots;
            const float *first = up_price + PRICE_FLOATS * ((long long)plane * racks + source[qp]) * spines;
            const float *second = down_price + PRICE_FLOATS * ((long long)plane * racks + target[qp]) * spines;
            const float *held = before + plane * slots;
            float *fresh = mine + plane * slots;
            /* Gathered first, so that the compiler takes several slots at once. An empty slot has no turns. */
            for (int slot = 0; slot < slots; slot++) {
                const int has = lane[slot] != NO_SPINE;
                const float *a = first + (has ? PRICE_FLOATS * lane[slot] : 0);
                const float *z = second + (has ? PRICE_FLOATS * lane[slot] : 0);
                turn[slot] = has;
                missed[slot] = 1 + a[SKIPS] + z[SKIPS];
                cost[slot] = a[COST] + z[COST];
                trims[slot] = a[TRIMS] + z[TRIMS];
            }
            for (int slot = 0; slot < slots; slot++)
                turn[slot] /= missed[slot];
            float total = 0;
            for (int slot = 0; slot < slots; slot++)
                total += turn[slot];
            if (total == 0)
                continue;
            used++;
            /* Trims cost more the more packets a round trip has. */
            const float pace = rate[qp];
            for (int slot = 0; slot < slots; slot++) {
                fresh[slot] = 0.5f * held[slot] + 0.5f * turn[slot] / total;
                cost[slot] = fresh[slot] * (cost[slot] + pace * trims[slot]);
            }
            for (int slot = 0; slot < slots; slot++)
                seen += cost[slot];
        }
        /* Bursts grow with rate ** BURST_POWER. */
        const float burst = all->bursts[qp] * rate[qp] * rate[qp] * sqrtf(rate[qp]);
        float change = used ? eta * (at(&wanted, rate[qp]) - burst - seen / used) : 0;
        change = change > step ? step : change < -step ? -step : change;
        float next = rate[qp] + change;
        next = next > top ? top : next < all->floor ? all->floor : next;
        if (fabsf(next - rate[qp]) > largest)
            largest = fabsf(next - rate[qp]);
        /* A flow that could be faster than its job waits, and loads links by the job's pace. */
        const float load = next < limit[qp] ? next : limit[qp];
        for (int plane = 0; plane < planes; plane++) {
            const uint16_t *lane = spine + (qp * planes + plane) * slots;
            double *up_loads = up + ((long long)plane * racks + source[qp]) * spines;
            double *down_loads = down + ((long long)plane * racks + target[qp]) * spines;
            const float *held = before + plane * slots, *fresh = mine + plane * slots;
            const double old = demand[qp], new = load, size = weight[qp];
            if (load < next) {
                float squares = 0;
                for (int slot = 0; slot < slots; slot++)
                    squares += fresh[slot] * fresh[slot];
                const double variance = size * size * load * (next - load) * squares;
                all->variance[plane * racks + source[qp]] += variance;
                all->variance[(planes + plane) * racks + target[qp]] += variance;
            }
            for (int slot = 0; slot < slots; slot++)
                more[slot] = size * (new * fresh[slot] - old * held[slot]);
            for (int slot = 0; slot < slots; slot++) {
                if (lane[slot] == NO_SPINE)
                    continue;
                up_loads[lane[slot]] += more[slot];
                down_loads[lane[slot]] += more[slot];
            }
        }
        all->delay[qp] = used ? seen / used : 0;
        memcpy(before, mine, row * sizeof(float));
        rate[qp] = next;
        demand[qp] = load;
    }
    return largest;
}

/* Set rates of queue pairs, and what their links carry. */
__attribute__((visibility("default"))) void set_rates(
    const Sharing *all, long long count, const int32_t *active, const float *rates)
{
    const int planes = all->planes, racks = all->racks, spines = all->spines, slots = all->slots;
    for (long long i = 0; i < count; i++) {
        const long long qp = active[i], from = all->source[qp], to = all->target[qp];
        const float load = rates[i] < all->limit[qp] ? rates[i] : all->limit[qp];
        const double change = (double)all->weight[qp] * ((double)load - (double)all->demand[qp]);
        all->rate[qp] = rates[i];
        all->demand[qp] = load;
        for (int plane = 0; plane < planes && from != to; plane++) {
            const uint16_t *lane = all->spine + (qp * planes + plane) * slots;
            const float *share = all->share + (qp * planes + plane) * slots;
            double *up = all->up + ((long long)plane * racks + from) * spines;
            double *down = all->down + ((long long)plane * racks + to) * spines;
            for (int slot = 0; slot < slots; slot++) {
                if (lane[slot] == NO_SPINE)
                    continue;
                up[lane[slot]] += change * share[slot];
                down[lane[slot]] += change * share[slot];
            }
        }
    }
}
