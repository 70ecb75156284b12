/* Action profiles and selectors: members, groups, and which members of a group are alive. */
#include <stdlib.h>

#include "runtime.h"

/* ---- things by id -------------------------------------------------------------------------------------------- */

static uint32_t map_place(const struct rt_map *map, uint32_t id)
{
    uint32_t low = 0, high = map->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (map->at[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void *rt_map_find(const struct rt_map *map, uint32_t id)
{
    uint32_t at = map_place(map, id);
    return at < map->n && map->at[at].id == id ? map->at[at].thing : NULL;
}

int rt_map_put(struct rt_map *map, uint32_t id, void *thing)
{
    uint32_t at = map_place(map, id);

    if (map->n == map->room) {
        uint32_t room = map->room ? map->room * 2 : 16;
        void *more = realloc(map->at, room * sizeof *map->at);
        if (!more)
            return RT_NO_MEMORY;
        map->at = more;
        map->room = room;
    }
    memmove(map->at + at + 1, map->at + at, (map->n - at) * sizeof *map->at);
    map->at[at].id = id;
    map->at[at].thing = thing;
    map->n++;
    return RT_OK;
}

void rt_map_take(struct rt_map *map, uint32_t id)
{
    uint32_t at = map_place(map, id);
    map->n--;
    memmove(map->at + at, map->at + at + 1, (map->n - at) * sizeof *map->at);
}

static struct rt_profile *profile_of(struct rt_device *dev, uint32_t profile)
{
    return dev->pub.program && profile < dev->pub.program->n_profiles ? &dev->pipeline.profiles[profile] : NULL;
}

struct rt_member *rt_member_find(struct rt_device *dev, uint32_t profile, uint32_t id)
{
    struct rt_profile *p = profile_of(dev, profile);
    return p ? rt_map_find(&p->members, id) : NULL;
}

struct rt_group *rt_group_find(struct rt_device *dev, uint32_t profile, uint32_t id)
{
    struct rt_profile *p = profile_of(dev, profile);
    return p ? rt_map_find(&p->groups, id) : NULL;
}

static void free_member(struct rt_member *member)
{
    free(member->act.params);
    free(member);
}

static void free_group(struct rt_group *group)
{
    free(group->live.live);
    free(group->members);
    free(group);
}

void rt_profiles_destroy(struct rt_device *dev)
{
    for (uint32_t i = 0; dev->pipeline.profiles && i < dev->pub.program->n_profiles; i++) {
        struct rt_profile *p = &dev->pipeline.profiles[i];
        for (uint32_t m = 0; m < p->members.n; m++)
            free_member(p->members.at[m].thing);
        for (uint32_t g = 0; g < p->groups.n; g++)
            free_group(p->groups.at[g].thing);
        free(p->members.at);
        free(p->groups.at);
    }
    free(dev->pipeline.profiles);
    dev->pipeline.profiles = NULL;
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

static int write_member(struct rt_device *dev, int op, uint32_t profile, uint32_t id, uint32_t action,
                        const uint8_t *params)
{
    struct rt_profile *p = profile_of(dev, profile);
    struct rt_member *member = rt_member_find(dev, profile, id);
    uint8_t *own;

    if (!p)
        return RT_INVALID;
    if (op == RT_INSERT ? member != NULL : member == NULL)
        return op == RT_INSERT ? RT_EXISTS : RT_NOT_FOUND;
    if (op == RT_DELETE) {
        if (member->refs)
            return RT_IN_USE;
        rt_map_take(&p->members, id);
        free_member(member);
        return RT_OK;
    }
    if (action >= dev->pub.program->n_actions)
        return RT_INVALID;
    /* P4Runtime: a selector serves either one-shot action sets, or members and groups. */
    if (op == RT_INSERT && p->sets)
        return RT_MIXED;
    if (op == RT_INSERT && p->members.n >= dev->pub.program->profiles[profile].size)
        return RT_FULL;
    uint32_t bytes = dev->pub.program->actions[action].params_bytes;
    own = calloc(1, bytes + 8);
    if (!own)
        return RT_NO_MEMORY;
    if (bytes)
        memcpy(own, params, bytes);
    if (op == RT_INSERT) {
        member = calloc(1, sizeof *member);
        if (!member || rt_map_put(&p->members, id, member)) {
            free(member);
            free(own);
            return RT_NO_MEMORY;
        }
    }
    free(member->act.params);
    member->act = (struct p4rt_action){.action = action, .member = id, .params = own};
    return RT_OK;
}

RT_API int rt_member_write(struct rt_device *dev, int op, uint32_t profile, uint32_t id, uint32_t action,
                           const uint8_t *params)
{
    rt_lock(&dev->lock);
    int error = write_member(dev, op, profile, id, action, params);
    rt_unlock(&dev->lock);
    return error;
}

/* ---- groups -------------------------------------------------------------------------------------------------------- */

static void refresh(struct rt_device *dev, struct rt_group *group)
{
    uint32_t n = 0;
    for (uint32_t m = 0; m < group->n_members; m++)
        if (!rt_port_is_down(dev, group->members[m].watch_port))
            for (uint32_t w = 0; w < group->members[m].weight; w++)
                group->live.live[n++] = &group->members[m].member->act;
    group->live.n_live = n;
}

static void refresh_watching(struct rt_device *dev, struct rt_group *group, int32_t port)
{
    for (uint32_t m = 0; m < group->n_members; m++)
        if (group->members[m].watch_port >= 0 && (port < 0 || group->members[m].watch_port == port)) {
            refresh(dev, group);
            return;
        }
}

/* A port changed state, or (-1) any may have: choose anew in every group that watches it. */
void rt_groups_refresh(struct rt_device *dev, int32_t port)
{
    for (uint32_t i = 0; dev->pub.program && i < dev->pub.program->n_profiles; i++) {
        struct rt_profile *p = &dev->pipeline.profiles[i];
        for (uint32_t g = 0; g < p->groups.n; g++)
            refresh_watching(dev, p->groups.at[g].thing, port);
        for (struct rt_group *set = p->sets; set; set = set->next)
            refresh_watching(dev, set, port);
    }
}

/* A place in a group as Python gives and reads it. */
struct rt_place {
    uint32_t member, weight;
    int32_t watch_port;
};

/* Give `group` new members; nothing changes on an error. */
static int fill_group(struct rt_device *dev, uint32_t profile, struct rt_group *group, uint32_t max_size, uint32_t n,
                      const struct rt_place *places)
{
    struct rt_group_member *members = calloc(n + 1, sizeof *members);
    const struct p4rt_action **live;
    uint64_t weights = 0;

    if (!members)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        struct rt_member *member = rt_member_find(dev, profile, places[i].member);
        if (!member) {
            free(members);
            return RT_INVALID;
        }
        members[i] = (struct rt_group_member){member, places[i].weight, places[i].watch_port};
        weights += places[i].weight;
    }
    live = calloc(weights + 1, sizeof(*live));
    if (!live) {
        free(members);
        return RT_NO_MEMORY;
    }
    /* Nothing can fail from here on: move the references, then replace the old arrays. */
    for (uint32_t i = 0; i < n; i++)
        members[i].member->refs++;
    for (uint32_t i = 0; i < group->n_members; i++)
        group->members[i].member->refs--;
    free(group->members);
    free(group->live.live);
    group->members = members;
    group->n_members = n;
    group->max_size = max_size;
    group->live.live = live;
    refresh(dev, group);
    return RT_OK;
}

static int write_group(struct rt_device *dev, int op, uint32_t profile, uint32_t id, uint32_t max_size, uint32_t n,
                       const struct rt_place *places)
{
    struct rt_profile *p = profile_of(dev, profile);
    struct rt_group *group = rt_group_find(dev, profile, id);
    int error;

    if (!p)
        return RT_INVALID;
    if (op == RT_INSERT ? group != NULL : group == NULL)
        return op == RT_INSERT ? RT_EXISTS : RT_NOT_FOUND;
    if (op == RT_MODIFY)
        return fill_group(dev, profile, group, max_size, n, places);
    if (op == RT_DELETE) {
        if (group->refs)
            return RT_IN_USE;
        /* An empty group holds no references to members. */
        error = fill_group(dev, profile, group, 0, 0, NULL);
        if (error)
            return error;
        rt_map_take(&p->groups, id);
        free_group(group);
        return RT_OK;
    }
    if (p->sets)
        return RT_MIXED;
    if (p->groups.n >= dev->pub.program->profiles[profile].size)
        return RT_FULL;
    group = calloc(1, sizeof *group);
    if (!group)
        return RT_NO_MEMORY;
    group->live.id = id;
    error = fill_group(dev, profile, group, max_size, n, places);
    if (!error)
        error = rt_map_put(&p->groups, id, group);
    if (error) {
        for (uint32_t i = 0; i < group->n_members; i++)
            group->members[i].member->refs--;
        free_group(group);
    }
    return error;
}

RT_API int rt_group_write(struct rt_device *dev, int op, uint32_t profile, uint32_t id, uint32_t max_size, uint32_t n,
                          const struct rt_place *places)
{
    rt_lock(&dev->lock);
    int error = write_group(dev, op, profile, id, max_size, n, places);
    rt_unlock(&dev->lock);
    return error;
}

/* ---- one-shot action sets ------------------------------------------------------------------------------------------- */

/* A member of a set as Python gives and reads it; its parameters follow. */
struct rt_set_head {
    uint32_t action, weight;
    int32_t watch_port;
    uint32_t params_bytes;
};

static void free_set(struct rt_group *set)
{
    for (uint32_t i = 0; i < set->n_members; i++)
        if (set->members[i].member)
            free_member(set->members[i].member);
    free_group(set);
}

static int fill_set(const struct p4_program *p, struct rt_group *set, uint32_t n, const uint8_t *blob)
{
    uint64_t weights = 0;

    set->members = calloc(n + 1, sizeof *set->members);
    for (uint32_t i = 0; set->members && i < n; i++) {
        struct rt_set_head head;
        struct rt_member *member = calloc(1, sizeof *member);

        memcpy(&head, blob, sizeof head);
        blob += sizeof head;
        if (!member)
            return RT_NO_MEMORY;
        set->members[i] = (struct rt_group_member){member, head.weight, head.watch_port};
        set->n_members = i + 1;
        if (head.action >= p->n_actions || head.params_bytes != p->actions[head.action].params_bytes)
            return RT_INVALID;
        member->act = (struct p4rt_action){.action = head.action, .params = calloc(1, head.params_bytes + 8)};
        if (!member->act.params)
            return RT_NO_MEMORY;
        memcpy(member->act.params, blob, head.params_bytes);
        blob += head.params_bytes;
        weights += head.weight;
    }
    set->live.live = calloc(weights + 1, sizeof *set->live.live);
    return set->members && set->live.live ? RT_OK : RT_NO_MEMORY;
}

/* A group with members of its own for one entry, from `n` members in `blob`; it is to take the place of `instead` (or
 * NULL), which the caller frees. NULL with the error when it cannot be made. */
struct rt_group *rt_set_make(struct rt_device *dev, uint32_t profile, const struct rt_group *instead, uint32_t n,
                             const uint8_t *blob, int *error)
{
    struct rt_profile *p = profile_of(dev, profile);
    struct rt_group *set;
    uint64_t members = (uint64_t)n + (p ? p->set_members : 0) - (instead ? instead->n_members : 0);

    *error = !p ? RT_INVALID
             : p->members.n || p->groups.n ? RT_MIXED
             : members > dev->pub.program->profiles[profile].size ? RT_FULL
                                                                  : RT_OK;
    if (*error)
        return NULL;
    set = calloc(1, sizeof *set);
    *error = set ? fill_set(dev->pub.program, set, n, blob) : RT_NO_MEMORY;
    if (*error) {
        if (set)
            free_set(set);
        return NULL;
    }
    refresh(dev, set);
    set->next = p->sets;
    if (p->sets)
        p->sets->prev = set;
    p->sets = set;
    p->set_members += n;
    return set;
}

void rt_set_free(struct rt_device *dev, uint32_t profile, struct rt_group *set)
{
    struct rt_profile *p = profile_of(dev, profile);

    *(set->prev ? &set->prev->next : &p->sets) = set->next;
    if (set->next)
        set->next->prev = set->prev;
    p->set_members -= set->n_members;
    free_set(set);
}

size_t rt_set_bytes(const struct p4_program *p, const struct rt_group *set)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < set->n_members; i++)
        bytes += sizeof(struct rt_set_head) + p->actions[set->members[i].member->act.action].params_bytes;
    return bytes;
}

uint8_t *rt_set_put(const struct p4_program *p, const struct rt_group *set, uint8_t *out)
{
    for (uint32_t i = 0; i < set->n_members; i++) {
        const struct p4rt_action *act = &set->members[i].member->act;
        struct rt_set_head head = {act->action, set->members[i].weight, set->members[i].watch_port,
                                   p->actions[act->action].params_bytes};
        memcpy(out, &head, sizeof head);
        memcpy(out + sizeof head, act->params, head.params_bytes);
        out += sizeof head + head.params_bytes;
    }
    return out;
}

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

/* All members of a profile by rising id, each as uint32_t id, action, params_bytes and the parameters; *out is to be
 * freed with rt_free. Returns their number or an error. */
RT_API int rt_members_read(struct rt_device *dev, uint32_t profile, uint8_t **out, size_t *out_bytes)
{
    int n = RT_INVALID;

    rt_lock(&dev->lock);
    struct rt_profile *p = profile_of(dev, profile);
    if (p) {
        const struct p4rt_action_desc *actions = dev->pub.program->actions;
        size_t bytes = 0;
        for (uint32_t i = 0; i < p->members.n; i++)
            bytes += 12 + actions[((struct rt_member *)p->members.at[i].thing)->act.action].params_bytes;
        uint8_t *at = *out = malloc(bytes + 1);
        *out_bytes = bytes;
        n = at ? (int)p->members.n : RT_NO_MEMORY;
        for (uint32_t i = 0; at && i < p->members.n; i++) {
            struct rt_member *member = p->members.at[i].thing;
            uint32_t head[3] = {p->members.at[i].id, member->act.action, actions[member->act.action].params_bytes};
            memcpy(at, head, sizeof head);
            memcpy(at + sizeof head, member->act.params, head[2]);
            at += sizeof head + head[2];
        }
    }
    rt_unlock(&dev->lock);
    return n;
}

/* All groups of a profile by rising id, each as uint32_t id, max_size, n and n struct rt_place; else as above. */
RT_API int rt_groups_read(struct rt_device *dev, uint32_t profile, uint8_t **out, size_t *out_bytes)
{
    int n = RT_INVALID;

    rt_lock(&dev->lock);
    struct rt_profile *p = profile_of(dev, profile);
    if (p) {
        size_t bytes = 0;
        for (uint32_t i = 0; i < p->groups.n; i++)
            bytes += 12 + ((struct rt_group *)p->groups.at[i].thing)->n_members * sizeof(struct rt_place);
        uint8_t *at = *out = malloc(bytes + 1);
        *out_bytes = bytes;
        n = at ? (int)p->groups.n : RT_NO_MEMORY;
        for (uint32_t i = 0; at && i < p->groups.n; i++) {
            struct rt_group *group = p->groups.at[i].thing;
            uint32_t head[3] = {group->live.id, group->max_size, group->n_members};
            memcpy(at, head, sizeof head);
            at += sizeof head;
            for (uint32_t m = 0; m < group->n_members; m++, at += sizeof(struct rt_place)) {
                struct rt_place place = {group->members[m].member->act.member, group->members[m].weight,
                                         group->members[m].watch_port};
                memcpy(at, &place, sizeof place);
            }
        }
    }
    rt_unlock(&dev->lock);
    return n;
}
