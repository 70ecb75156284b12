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
    int32_t planes, racks, spines, slots, stream_rows;
    float eta, step, top, floor, relief, steady, full, overload;
    Table streams, wander, marks, trims, wanted;
    const int32_t *source, *target;
    const float *weight;
    const uint16_t *spine;
    const uint8_t *usable;
    float *rate, *share;
    double *up, *down;
    int32_t *users;
    const float *feeders, *bursts;
    double *rack_rate;
    float *price;
} Sharing;

/* Price of a link with so many users and feeders, at its load and the mean of its T0's links.

`slack`: part of the wander that the rates of the rack's queue pairs leave. */
static inline void set_price(
    const Sharing *all, int users, float feeders, float load, float mean, float slack, float *price)
{
    if (users == 0)
        return;
    const float links = (float)users < feeders ? (float)users : feeders;
    Table streams = all->streams;
    streams.values += (users < all->stream_rows ? users - 1 : all->stream_rows - 1) * streams.count;
    float delay = at(&streams, load) + slack * at(&all->wander, load + all->relief * (mean - load));
    if (load > all->full)
        delay += all->overload * (load - all->full);
    delay = delay > 0 ? (1 - 1 / links) * delay : 0;
    price[COST] = delay;
    price[SKIPS] = at(&all->marks, delay);
    price[TRIMS] = at(&all->trims, delay);
}

/* Sum loads, and loads times rates, of the queue pairs that send from each rack, then of those that send to it. */
static void sum_rates(const Sharing *all, long long count, const int32_t *active)
{
    memset(all->rack_rate, 0, 4 * all->racks * sizeof(double));
    for (long long i = 0; i < count; i++) {
        const long long qp = active[i], from = all->source[qp], to = all->target[qp];
        if (from == to)
            continue;
        const double load = (double)(all->weight[qp] * all->rate[qp]);
        double *up = all->rack_rate + from, *down = all->rack_rate + 2 * all->racks + to;
        up[0] += load;
        up[all->racks] += load * all->rate[qp];
        down[0] += load;
        down[all->racks] += load * all->rate[qp];
    }
}

/* Set the mean load of the links of each T0 in each plane, on their way up and down, and the prices of all links. */
static void set_prices(const Sharing *all)
{
    const int planes = all->planes, racks = all->racks, spines = all->spines;
    const long long rows = (long long)planes * racks, links = rows * spines;
    for (int way = 0; way < 2; way++) {
        const double *loads = way ? all->down : all->up;
        for (long long row = 0; row < rows; row++) {
            const double *load = loads + row * spines;
            const int32_t *users = all->users + way * links + row * spines;
            const float feeders = all->feeders[way * racks + row % racks];
            const double *rates = all->rack_rate + 2 * way * racks + row % racks;
            const float slack = rates[0] > 0 ? (float)(1 - all->steady * rates[racks] / rates[0]) : 1;
            float *price = all->price + PRICE_FLOATS * (way * links + row * spines);
            double sum = 0;
            int used = 0;
            for (int spine = 0; spine < spines; spine++)
                if (users[spine]) {
                    sum += load[spine];
                    used++;
                }
            const float mean = used ? (float)(sum / used) : 0;
            for (int spine = 0; spine < spines; spine++)
                set_price(all, users[spine], feeders, (float)load[spine], mean, slack, price + PRICE_FLOATS * spine);
        }
    }
}

/* Count the queue pairs that have each link in rotation; `users` is all 0 before. */
__attribute__((visibility("default"))) void count_users(const Sharing *all, long long count, const int32_t *active)
{
    const int planes = all->planes, racks = all->racks, spines = all->spines, slots = all->slots;
    const long long links = (long long)planes * racks * spines;
    for (long long i = 0; i < count; i++) {
        const long long qp = active[i], from = all->source[qp], to = all->target[qp];
        for (int plane = 0; plane < planes && from != to; plane++) {
            const uint16_t *lane = all->spine + (qp * planes + plane) * slots;
            int32_t *up = all->users + ((long long)plane * racks + from) * spines;
            int32_t *down = all->users + links + ((long long)plane * racks + to) * spines;
            for (int slot = 0; all->usable[qp * planes + plane] && slot < slots; slot++) {
                if (lane[slot] == NO_SPINE)
                    continue;
                up[lane[slot]]++;
                down[lane[slot]]++;
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
    float *rate = all->rate, *share = all->share;
    double *up = all->up, *down = all->down;
    const long long row = (long long)planes * slots;
    float turn[SLOTS_MAX], missed[SLOTS_MAX], cost[SLOTS_MAX], trims[SLOTS_MAX];
    double more[SLOTS_MAX], largest = 0;

    /* Prices come first: all queue pairs see the loads from before the sweep. */
    sum_rates(all, count, active);
    set_prices(all);
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
        for (int plane = 0; plane < planes; plane++) {
            const uint16_t *lane = spine + (qp * planes + plane) * slots;
            double *up_loads = up + ((long long)plane * racks + source[qp]) * spines;
            double *down_loads = down + ((long long)plane * racks + target[qp]) * spines;
            const float *held = before + plane * slots, *fresh = mine + plane * slots;
            const double old = rate[qp], new = next, size = weight[qp];
            for (int slot = 0; slot < slots; slot++)
                more[slot] = size * (new * fresh[slot] - old * held[slot]);
            for (int slot = 0; slot < slots; slot++) {
                if (lane[slot] == NO_SPINE)
                    continue;
                up_loads[lane[slot]] += more[slot];
                down_loads[lane[slot]] += more[slot];
            }
        }
        memcpy(before, mine, row * sizeof(float));
        rate[qp] = next;
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
        const double change = (double)all->weight[qp] * ((double)rates[i] - (double)all->rate[qp]);
        all->rate[qp] = rates[i];
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
