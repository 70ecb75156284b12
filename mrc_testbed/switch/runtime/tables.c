/* Table entries: hashes for exact and lpm tables, a list by priority for the rest. */
#include <stdlib.h>

#include "runtime.h"

/* ---- open-addressing hash ------------------------------------------------------------------------------------ */

static int hash_grow(struct p4rt_hash *hash)
{
    uint64_t capacity = hash->slots ? (hash->limit + 1) * 2 : 16;
    struct p4rt_slot *slots = calloc(capacity, sizeof *slots), *old = hash->slots;

    if (!slots)
        return RT_NO_MEMORY;
    for (uint64_t i = 0; old && i <= hash->limit; i++) {
        if (!old[i].entry)
            continue;
        uint64_t at = old[i].hash & (capacity - 1);
        while (slots[at].entry)
            at = (at + 1) & (capacity - 1);
        slots[at] = old[i];
    }
    hash->slots = slots;
    hash->limit = capacity - 1;
    free(old);
    return RT_OK;
}

static int hash_add(struct p4rt_hash *hash, struct p4rt_entry *entry, unsigned words)
{
    if ((hash->used + 1) * 2 > hash->limit + 1 && hash_grow(hash))
        return RT_NO_MEMORY;
    uint64_t h = p4rt_hash_words(entry->value, words), at = h & hash->limit;
    while (hash->slots[at].entry)
        at = (at + 1) & hash->limit;
    hash->slots[at] = (struct p4rt_slot){h, entry};
    hash->used++;
    return RT_OK;
}

/* Close the gap by moving back whatever would no longer be found behind it. */
static void hash_remove(struct p4rt_hash *hash, const struct p4rt_entry *entry, unsigned words)
{
    uint64_t gap = p4rt_hash_words(entry->value, words) & hash->limit;

    while (hash->slots[gap].entry != entry)
        gap = (gap + 1) & hash->limit;
    for (uint64_t at = (gap + 1) & hash->limit; hash->slots[at].entry; at = (at + 1) & hash->limit) {
        uint64_t home = hash->slots[at].hash & hash->limit;
        if (((at - home) & hash->limit) >= ((at - gap) & hash->limit)) {
            hash->slots[gap] = hash->slots[at];
            gap = at;
        }
    }
    hash->slots[gap].entry = NULL;
    hash->used--;
}

/* ---- creating tables -------------------------------------------------------------------------------------------- */

static enum p4rt_search search_of(const struct p4rt_table_desc *desc)
{
    enum p4rt_search search = desc->n_fields ? P4RT_SEARCH_EXACT : P4RT_SEARCH_NONE;
    for (uint32_t i = 0; i < desc->n_fields; i++) {
        if (desc->fields[i].match > P4RT_LPM)
            return P4RT_SEARCH_LIST;
        if (desc->fields[i].match == P4RT_LPM)
            search = P4RT_SEARCH_LPM;
    }
    return search;
}

static void list_ranges(const struct p4rt_table_desc *desc, struct p4rt_table *table, struct p4rt_range **next)
{
    uint32_t offset = 0;

    table->ranges = *next;
    for (uint32_t i = 0; i < desc->n_fields; i++) {
        uint32_t bytes = (desc->fields[i].bits + 7) / 8;
        if (desc->fields[i].match == P4RT_RANGE) {
            *(*next)++ = (struct p4rt_range){offset, bytes};
            table->n_ranges++;
        }
        offset += bytes;
    }
}

/* The default entry as the program has it. */
int rt_default_reset(struct rt_device *dev, uint32_t index)
{
    const struct p4rt_table_desc *desc = &dev->pub.program->tables[index];
    enum rt_kind kind = desc->default_action == P4RT_NONE ? RT_KIND_NONE : RT_KIND_ACTION;
    struct rt_entry *miss = &dev->pipeline.tables[index].miss;
    return rt_entry_act(dev, index, miss, kind, desc->default_action, desc->default_params);
}

int rt_tables_create(struct rt_device *dev)
{
    const struct p4_program *p = dev->pub.program;
    struct p4rt_range *next;
    uint32_t fields = 0;

    for (uint32_t i = 0; i < p->n_tables; i++)
        fields += p->tables[i].n_fields;
    dev->pub.tables = calloc(p->n_tables + 1, sizeof *dev->pub.tables);
    dev->pipeline.tables = calloc(p->n_tables + 1, sizeof *dev->pipeline.tables);
    dev->pipeline.ranges = next = calloc(fields + 1, sizeof *dev->pipeline.ranges);
    if (!dev->pub.tables || !dev->pipeline.tables || !dev->pipeline.ranges)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < p->n_tables; i++) {
        const struct p4rt_table_desc *desc = &p->tables[i];
        struct p4rt_table *table = &dev->pub.tables[i];
        int error;

        table->search = search_of(desc);
        table->words = P4RT_WORDS(desc->key_bytes);
        table->noted = desc->direct_counter || desc->idle_timeout;
        list_ranges(desc, table, &next);
        if (table->search == P4RT_SEARCH_EXACT) {
            table->hashes = calloc(1, sizeof *table->hashes);
            table->n_hashes = 1;
            if (!table->hashes || hash_grow(table->hashes))
                return RT_NO_MEMORY;
        }
        /* The program's initial entries are inserted like a client's; const ones are locked afterwards. */
        error = rt_default_reset(dev, i);
        for (uint32_t e = 0; !error && e < desc->n_entries; e++) {
            const struct p4rt_init_entry *init = &desc->entries[e];
            struct rt_entry *entry = rt_entry_insert(dev, i, init->key, init->aux, init->priority, RT_KIND_ACTION,
                                                     init->action, init->params, &error);
            if (entry)
                entry->constant = init->constant;
        }
        if (error)
            return error;
    }
    return RT_OK;
}

static void free_entry(struct rt_entry *entry)
{
    free(entry->pub.own.params);
    free(entry->pub.meter);
    free(entry->pub.value);         /* one block: value, mask, key, aux */
    free(entry);
}

/* Also after a rt_tables_create that failed half way. Members and groups are freed by rt_profiles_destroy. */
void rt_tables_destroy(struct rt_device *dev)
{
    for (uint32_t i = 0; dev->pub.tables && dev->pipeline.tables && i < dev->pub.program->n_tables; i++) {
        struct p4rt_table *table = &dev->pub.tables[i];
        struct rt_entry *entry = dev->pipeline.tables[i].first, *next;

        for (; entry; entry = next) {
            next = entry->next;
            if (entry->kind == RT_KIND_SET)
                rt_set_free(dev, dev->pub.program->tables[i].profile, entry->group);
            free_entry(entry);
        }
        free(dev->pipeline.tables[i].miss.pub.own.params);
        free(table->miss.meter);
        for (uint32_t h = 0; table->hashes && h < table->n_hashes; h++) {
            free(table->hashes[h].slots);
            free(table->hashes[h].mask);
        }
        free(table->hashes);
        free(table->list);
    }
    free(dev->pub.tables);
    free(dev->pipeline.tables);
    free(dev->pipeline.ranges);
    dev->pub.tables = NULL;
    dev->pipeline.tables = NULL;
    dev->pipeline.ranges = NULL;
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

/* Fill value and mask (the words that are compared) from key and aux. */
static void make_words(const struct p4rt_table *table, struct p4rt_entry *entry, uint32_t key_bytes)
{
    uint8_t *value = (uint8_t *)entry->value, *mask = (uint8_t *)entry->mask;

    memcpy(value, entry->key, key_bytes);
    memcpy(mask, entry->aux, key_bytes);
    for (uint32_t r = 0; r < table->n_ranges; r++) {
        memset(value + table->ranges[r].offset, 0, table->ranges[r].bytes);
        memset(mask + table->ranges[r].offset, 0, table->ranges[r].bytes);
    }
}

static struct rt_entry *new_entry(const struct p4rt_table *table, uint32_t key_bytes, const uint8_t *key,
                                  const uint8_t *aux, int32_t priority)
{
    struct rt_entry *entry = calloc(1, sizeof *entry);
    uint64_t *words = calloc(table->words * 4, sizeof *words);

    if (!entry || !words) {
        free(entry);
        free(words);
        return NULL;
    }
    entry->pub.value = words;
    entry->pub.mask = words + table->words;
    entry->pub.key = (uint8_t *)(words + 2 * table->words);
    entry->pub.aux = (uint8_t *)(words + 3 * table->words);
    memcpy(entry->pub.key, key, key_bytes);
    memcpy(entry->pub.aux, aux, key_bytes);
    make_words(table, &entry->pub, key_bytes);
    entry->pub.priority = priority;
    entry->pub.hit = 1;
    return entry;
}

/* Point an entry at its action and drop what it pointed at before; nothing changes on an error. `ref` and `params`: of
 * an action its index and parameters, of a member or group its id, of a one-shot set the number of its members and what
 * rt_set_make takes. */
int rt_entry_act(struct rt_device *dev, uint32_t index, struct rt_entry *entry, enum rt_kind kind, uint32_t ref,
                 const uint8_t *params)
{
    uint32_t profile = dev->pub.program->tables[index].profile;
    struct rt_group *group = NULL, *old = entry->kind == RT_KIND_SET ? entry->group : NULL;
    struct rt_member *member = NULL;
    uint8_t *own = NULL;
    int error = RT_INVALID;

    if (kind == RT_KIND_ACTION) {
        if (ref >= dev->pub.program->n_actions)
            return RT_INVALID;
        uint32_t bytes = dev->pub.program->actions[ref].params_bytes;
        own = calloc(1, bytes + 8);
        if (!own)
            return RT_NO_MEMORY;
        if (bytes)
            memcpy(own, params, bytes);
    } else if (kind == RT_KIND_MEMBER) {
        member = rt_member_find(dev, profile, ref);
    } else if (kind == RT_KIND_GROUP) {
        group = rt_group_find(dev, profile, ref);
    } else if (kind == RT_KIND_SET) {
        group = rt_set_make(dev, profile, old, ref, params, &error);
    }
    if ((kind == RT_KIND_MEMBER && !member) || (kind >= RT_KIND_GROUP && !group))
        return error;
    if (member)
        member->refs++;
    if (group)
        group->refs++;
    if (entry->member)
        entry->member->refs--;
    if (entry->group)
        entry->group->refs--;
    if (old)
        rt_set_free(dev, profile, old);
    free(entry->pub.own.params);
    entry->kind = kind;
    entry->member = member;
    entry->group = group;
    entry->pub.own = (struct p4rt_action){.action = kind == RT_KIND_ACTION ? ref : P4RT_NONE, .params = own};
    entry->pub.act = own ? &entry->pub.own : member ? &member->act : NULL;
    entry->pub.group = group ? &group->live : NULL;
    if (entry == &dev->pipeline.tables[index].miss) { /* programs see a copy, with the counter and the meter */
        struct p4rt_entry *shown = &dev->pub.tables[index].miss, before = *shown;
        *shown = entry->pub;
        shown->count = before.count;
        shown->hit_us = before.hit_us;
        shown->meter = before.meter;
    }
    return RT_OK;
}

static uint32_t bits_set(const uint8_t *bytes, uint32_t n)
{
    uint32_t bits = 0;
    while (n--)
        bits += (uint32_t)__builtin_popcount(*bytes++);
    return bits;
}

/* The hash an entry belongs to; of an lpm table by prefix length, which orders them. NULL: there is none yet. */
static struct p4rt_hash *hash_of(struct p4rt_table *table, uint32_t prefix_bits)
{
    if (table->search == P4RT_SEARCH_EXACT)
        return &table->hashes[0];
    for (uint32_t i = 0; i < table->n_hashes; i++)
        if (table->hashes[i].prefix_bits == prefix_bits)
            return &table->hashes[i];
    return NULL;
}

static struct p4rt_hash *add_hash(struct p4rt_table *table, const struct p4rt_entry *entry, uint32_t prefix_bits)
{
    struct p4rt_hash *hashes = realloc(table->hashes, (table->n_hashes + 1) * sizeof *hashes);
    struct p4rt_hash fresh = {.prefix_bits = prefix_bits};
    uint32_t at = 0;

    if (!hashes)
        return NULL;
    table->hashes = hashes;
    fresh.mask = malloc(table->words * sizeof *fresh.mask);
    if (!fresh.mask || hash_grow(&fresh)) {
        free(fresh.mask);
        return NULL;
    }
    memcpy(fresh.mask, entry->mask, table->words * sizeof *fresh.mask);
    while (at < table->n_hashes && hashes[at].prefix_bits > prefix_bits)
        at++;
    memmove(hashes + at + 1, hashes + at, (table->n_hashes - at) * sizeof *hashes);
    hashes[at] = fresh;
    table->n_hashes++;
    return &hashes[at];
}

/* Where the list keeps (or would put) entries of this priority: after all of higher, and with `after` of equal, one. */
static uint32_t list_place(const struct p4rt_table *table, int32_t priority, int after)
{
    uint32_t low = 0, high = table->n_list;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int32_t there = table->list[middle]->priority;
        if (there > priority || (after && there == priority))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct rt_entry *rt_entry_at(struct rt_device *dev, uint32_t index, const uint8_t *key, const uint8_t *aux,
                             int32_t priority, uint32_t *place)
{
    struct p4rt_table *table = &dev->pub.tables[index];
    uint32_t bytes = dev->pub.program->tables[index].key_bytes;
    uint64_t words[P4RT_MAX_KEY_WORDS] = {0};

    if (table->search == P4RT_SEARCH_LIST) {
        for (uint32_t i = list_place(table, priority, 0); i < table->n_list; i++) {
            struct p4rt_entry *entry = table->list[i];
            if (entry->priority != priority)
                return NULL;
            if (!memcmp(entry->key, key, bytes) && !memcmp(entry->aux, aux, bytes)) {
                *place = i;
                return (struct rt_entry *)entry;
            }
        }
        return NULL;
    }
    if (table->search == P4RT_SEARCH_NONE)
        return NULL;
    struct p4rt_hash *hash = hash_of(table, bits_set(aux, bytes));
    memcpy(words, key, bytes);
    return hash ? (struct rt_entry *)p4rt_hash_find(hash, words, table->words) : NULL;
}

static int index_entry(struct p4rt_table *table, struct p4rt_entry *entry, uint32_t key_bytes)
{
    if (table->search == P4RT_SEARCH_LIST) {
        struct p4rt_entry **list = realloc(table->list, (table->n_list + 1) * sizeof *list);
        if (!list)
            return RT_NO_MEMORY;
        table->list = list;
        uint32_t at = list_place(table, entry->priority, 1);
        memmove(list + at + 1, list + at, (table->n_list - at) * sizeof *list);
        list[at] = entry;
        table->n_list++;
        return RT_OK;
    }
    uint32_t prefix_bits = bits_set(entry->aux, key_bytes);
    struct p4rt_hash *hash = hash_of(table, prefix_bits);
    if (!hash)
        hash = add_hash(table, entry, prefix_bits);
    return hash ? hash_add(hash, entry, table->words) : RT_NO_MEMORY;
}

static void unindex_entry(struct p4rt_table *table, struct p4rt_entry *entry, uint32_t key_bytes, uint32_t place)
{
    if (table->search == P4RT_SEARCH_LIST) {
        table->n_list--;
        memmove(table->list + place, table->list + place + 1, (table->n_list - place) * sizeof *table->list);
        return;
    }
    struct p4rt_hash *hash = hash_of(table, bits_set(entry->aux, key_bytes));
    hash_remove(hash, entry, table->words);
    if (table->search == P4RT_SEARCH_LPM && !hash->used) {
        uint32_t at = (uint32_t)(hash - table->hashes);
        free(hash->slots);
        free(hash->mask);
        table->n_hashes--;
        memmove(hash, hash + 1, (table->n_hashes - at) * sizeof *hash);
    }
}

/* NULL, with the error, when it cannot be. */
struct rt_entry *rt_entry_insert(struct rt_device *dev, uint32_t index, const uint8_t *key, const uint8_t *aux,
                                 int32_t priority, enum rt_kind kind, uint32_t ref, const uint8_t *params, int *error)
{
    const struct p4rt_table_desc *desc = &dev->pub.program->tables[index];
    struct p4rt_table *table = &dev->pub.tables[index];
    struct rt_table *own = &dev->pipeline.tables[index];
    uint32_t place = 0;

    *error = RT_OK;
    if (table->search == P4RT_SEARCH_NONE)
        *error = RT_INVALID;
    else if (rt_entry_at(dev, index, key, aux, priority, &place))
        *error = RT_EXISTS;
    else if (own->used >= desc->size)
        *error = RT_FULL;
    if (*error)
        return NULL;
    struct rt_entry *entry = new_entry(table, desc->key_bytes, key, aux, priority);
    if (!entry) {
        *error = RT_NO_MEMORY;
        return NULL;
    }
    *error = rt_entry_act(dev, index, entry, kind, ref, params);
    if (!*error) {
        *error = index_entry(table, &entry->pub, desc->key_bytes);
        if (*error)
            rt_entry_act(dev, index, entry, RT_KIND_NONE, 0, NULL);
    }
    if (*error) {
        free_entry(entry);
        return NULL;
    }
    entry->prev = own->last;
    *(own->last ? &own->last->next : &own->first) = entry;
    own->last = entry;
    own->used++;
    return entry;
}

void rt_entry_delete(struct rt_device *dev, uint32_t index, struct rt_entry *entry, uint32_t place)
{
    struct rt_table *own = &dev->pipeline.tables[index];

    unindex_entry(&dev->pub.tables[index], &entry->pub, dev->pub.program->tables[index].key_bytes, place);
    rt_entry_act(dev, index, entry, RT_KIND_NONE, 0, NULL);
    *(entry->prev ? &entry->prev->next : &own->first) = entry->next;
    *(entry->next ? &entry->next->prev : &own->last) = entry->prev;
    own->used--;
    free_entry(entry);
}
