/* The event queues of mrc_testbed/simulator/events.py: heaps of four children a node, times and serial numbers in one array.
 *
 * An event is a handler and its argument; the handler is called as handler(argument, time). EventQueue: events come in
 * order of time, those of one instant in the order in which they were pushed. LookaheadQueue: the same for each node, one
 * node after the other. Both do what the Python classes do, and those tell why.
 *
 * A node of a LookaheadQueue needs no heap. About half of its events are due by the end of its turn: these are taken out
 * and entered in a calendar when the turn begins (R. Brown, 1988), and the others stay as they came.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include "shared_wire.h"

enum { CHILDREN = 4 };

typedef struct {
    double at;
    long long serial;
    PyObject *handler, *argument;
} Event;

typedef struct {
    Event *events;
    int count, room;
    long long serial;
} Heap;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call; /* add() */
    Heap heap;
    long long done;
    double now;
    char halted;
} Queue;

static inline int before(const Event *a, const Event *b)
{
    return a->at < b->at || (a->at == b->at && a->serial < b->serial);
}

static void sift_up(Event *events, int at)
{
    Event moved = events[at];
    while (at > 0) {
        int parent = (at - 1) / CHILDREN;
        if (!before(&moved, &events[parent]))
            break;
        events[at] = events[parent];
        at = parent;
    }
    events[at] = moved;
}

static void sift_down(Event *events, int count, int at)
{
    Event moved = events[at];
    for (;;) {
        int first = at * CHILDREN + 1, last = first + CHILDREN, best = first;
        if (first >= count)
            break;
        if (last > count)
            last = count;
        for (int child = first + 1; child < last; child++)
            if (before(&events[child], &events[best]))
                best = child;
        if (!before(&events[best], &moved))
            break;
        events[at] = events[best];
        at = best;
    }
    events[at] = moved;
}

/* Puts an event behind all others, wherever it belongs in the heap. Returns 0, or -1 with an exception. */
static int heap_append(Heap *heap, double at, long long serial, PyObject *handler, PyObject *argument)
{
    if (heap->count == heap->room) {
        int room = heap->room ? 2 * heap->room : 16;
        Event *events = room > 0 ? PyMem_Realloc(heap->events, (size_t)room * sizeof(Event)) : NULL;
        if (events == NULL)
            return PyErr_NoMemory(), -1;
        heap->events = events, heap->room = room;
    }
    heap->events[heap->count++] = (Event){at, serial, Py_XNewRef(handler), Py_XNewRef(argument)};
    return 0;
}

/* Returns 0, or -1 with an exception. */
static int heap_add(Heap *heap, double at, long long serial, PyObject *handler, PyObject *argument)
{
    if (heap_append(heap, at, serial, handler, argument))
        return -1;
    sift_up(heap->events, heap->count - 1);
    return 0;
}

/* The first event, taken out; its references are the caller's. */
static Event heap_pop(Heap *heap)
{
    Event first = heap->events[0];
    heap->events[0] = heap->events[--heap->count];
    if (heap->count > 1)
        sift_down(heap->events, heap->count, 0);
    return first;
}

static double heap_next(const Heap *heap) { return heap->count ? heap->events[0].at : INFINITY; }

static void heap_clear(Heap *heap)
{
    while (heap->count) {
        Event event = heap->events[--heap->count];
        Py_XDECREF(event.handler);
        Py_XDECREF(event.argument);
    }
}

static int heap_traverse(Heap *heap, visitproc visit, void *arg)
{
    for (int i = 0; i < heap->count; i++) {
        Py_VISIT(heap->events[i].handler);
        Py_VISIT(heap->events[i].argument);
    }
    return 0;
}

/* A float of that value; the one of the event before, where the handler did not keep it. */
static PyObject *time_object(double at)
{
    static PyObject *kept = NULL;
    if (kept != NULL && Py_REFCNT(kept) == 1)
        ((PyFloatObject *)kept)->ob_fval = at;
    else
        Py_XSETREF(kept, PyFloat_FromDouble(at));
    return Py_XNewRef(kept);
}

/* Adds an event to a queue or to a node of one, whose add() and checks it has. Returns 0, or -1 with an exception. */
static int add_event(PyObject *events, double at, PyObject *handler, PyObject *argument);

typedef PyObject *(*KeywordFunction)(PyObject *, PyObject *const *, size_t, PyObject *);

#ifdef COMPILED_HEADER /* what mypyc made of the Python files; tests that build the queues alone do without */
#include COMPILED_HEADER
#include "hops.c"
#include "host.c"

static struct {
    long long hops, of_hosts; /* handled by hops.c, by host.c */
} handled;

/* Handles an event whose handler is a function of machine code, if it is one of these files; returns as on_free() does. */
static inline int handle_here(KeywordFunction function, PyObject *self, PyObject *argument, double now)
{
    int done = hop(function, self, argument, now);
    handled.hops += done != NOT_HERE;
    if (done != NOT_HERE)
        return done;
    done = host_event(function, self, argument, now);
    handled.of_hosts += done != NOT_HERE;
    return done;
}
#else
enum { NOT_HERE };
#define handle_here(function, self, argument, now) NOT_HERE
#endif

/* Calls the handler of an event; `function`: of machine code, or NULL. Returns 0, or -1 with an exception. */
static __attribute__((noinline)) int call_handler(PyObject *handler, KeywordFunction function, PyObject *argument, double time)
{
    PyObject *at = time_object(time), *result = NULL;
    if (at != NULL) {
        PyObject *args[3] = {NULL, argument, at};
        /* Functions of mypyc are called as what they are, which takes half of the time. */
        if (function != NULL)
            result = function(PyCFunction_GET_SELF(handler), args + 1, 2, NULL);
        else
            result = PyObject_Vectorcall(handler, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_DECREF(at);
    }
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Handles an event that was taken out: here, or by its handler. Returns 0, or -1 with an exception. */
static int handle(Event event)
{
    PyObject *handler = event.handler;
    KeywordFunction function = NULL;
    if (PyCFunction_CheckExact(handler) && PyCFunction_GET_FLAGS(handler) == (METH_FASTCALL | METH_KEYWORDS))
        function = (KeywordFunction)(void (*)(void))PyCFunction_GET_FUNCTION(handler);
    int done = function != NULL ? handle_here(function, PyCFunction_GET_SELF(handler), event.argument, event.at) : NOT_HERE;
    int failed = done == NOT_HERE ? call_handler(handler, function, event.argument, event.at) : done < 0;
    Py_DECREF(handler);
    Py_DECREF(event.argument);
    return failed ? -1 : 0;
}

static int by_time(const void *a, const void *b) { return before(a, b) ? -1 : 1; }

/* Takes the events out of which predicate(handler, argument) is true, and appends them to `found` with their time. Returns 0,
 * or -1 with an exception; then those taken out are gone.
 */
static int heap_take(Heap *heap, PyObject *predicate, Heap *found)
{
    /* In order of time; a sorted array is a heap, and stays one without some of its events. */
    if (heap->count) /* qsort() may not be given no array */
        qsort(heap->events, (size_t)heap->count, sizeof(Event), by_time);
    int kept = 0, count = heap->count, failed = 0;
    for (int i = 0; i < count; i++) {
        Event event = heap->events[i];
        int take = 0;
        if (!failed) {
            PyObject *args[2] = {event.handler, event.argument};
            PyObject *answer = PyObject_Vectorcall(predicate, args, 2, NULL);
            take = answer == NULL ? -1 : PyObject_IsTrue(answer);
            Py_XDECREF(answer);
            if (heap->count != count) {
                PyErr_SetString(PyExc_RuntimeError, "an event was pushed while events are taken out");
                return -1;
            }
            failed = take < 0 || (take && heap_add(found, event.at, ++found->serial, NULL, event.argument));
        }
        if (!failed && take) {
            Py_DECREF(event.handler);
            Py_DECREF(event.argument);
        } else {
            heap->events[kept++] = event;
        }
    }
    heap->count = kept;
    return failed ? -1 : 0;
}

/* A list of the arguments of events, in order of time; empties the heap. NULL with an exception, or when `failed`. */
static PyObject *arguments_of(Heap *found, int failed)
{
    PyObject *list = failed ? NULL : PyList_New(0);
    while (list != NULL && found->count) {
        Event event = heap_pop(found);
        if (PyList_Append(list, event.argument))
            Py_CLEAR(list);
        Py_DECREF(event.argument);
    }
    heap_clear(found);
    PyMem_Free(found->events);
    return list;
}

/* The time of add() and push(). Returns 0, or -1 with an exception. */
static int time_of(PyObject *const *args, Py_ssize_t count, double *at)
{
    if (count != 3)
        return PyErr_SetString(PyExc_TypeError, "three arguments are needed: a time, a handler and its argument"), -1;
    *at = PyFloat_AsDouble(args[0]);
    if (*at == -1.0 && PyErr_Occurred())
        return -1;
    if (isnan(*at))
        return PyErr_SetString(PyExc_ValueError, "the time of an event is not a number"), -1;
    return 0;
}

/* ---- events in order of time ---------------------------------------------------------------------------------- */

static PyObject *push_from(Queue *self, PyObject *const *args, Py_ssize_t count, int clamp)
{
    double at;
    if (time_of(args, count, &at))
        return NULL;
    if (clamp && at < self->now)
        at = self->now;
    if (heap_add(&self->heap, at, ++self->heap.serial, args[1], args[2]))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *queue_add(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (names != NULL && PyTuple_GET_SIZE(names))
        return PyErr_SetString(PyExc_TypeError, "a queue takes no arguments by name"), NULL;
    return push_from((Queue *)self, args, PyVectorcall_NARGS(count), 0);
}

static PyObject *queue_push(Queue *self, PyObject *const *args, Py_ssize_t count) { return push_from(self, args, count, 1); }

static PyObject *queue_next_at(Queue *self, PyObject *Py_UNUSED(none)) { return PyFloat_FromDouble(heap_next(&self->heap)); }

static PyObject *queue_run(Queue *self, PyObject *until)
{
    double end = PyFloat_AsDouble(until);
    if (end == -1.0 && PyErr_Occurred())
        return NULL;
    self->halted = 0;
    while (self->heap.count && self->heap.events[0].at <= end) {
        Event event = heap_pop(&self->heap);
        self->now = event.at;
        self->done++;
        if (handle(event))
            return NULL;
        if (self->halted)
            Py_RETURN_TRUE;
        if ((self->done & 0xFFF) == 0 && PyErr_CheckSignals())
            return NULL;
    }
    Py_RETURN_FALSE;
}

/* Whether the next event is after `now`, which is then counted as one. */
static inline int is_alone(double next, double now, long long *done)
{
    *done += next > now;
    return next > now;
}

/* The same for Python. Returns a new reference. */
static PyObject *count_if_alone(double next, PyObject *now, long long *done)
{
    double at = PyFloat_AsDouble(now);
    if (at == -1.0 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(is_alone(next, at, done));
}

static PyObject *queue_count_if_alone(Queue *self, PyObject *now)
{
    return count_if_alone(heap_next(&self->heap), now, &self->done);
}

static PyObject *queue_halt(Queue *self, PyObject *Py_UNUSED(none))
{
    self->halted = 1;
    Py_RETURN_NONE;
}

static PyObject *queue_take(Queue *self, PyObject *predicate)
{
    Heap found = {0};
    return arguments_of(&found, heap_take(&self->heap, predicate, &found));
}

static PyObject *queue_add_node(Queue *self, PyObject *Py_UNUSED(side)) { return Py_NewRef(self); }

static PyObject *queue_note_part(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    Py_RETURN_FALSE;
}

static PyObject *queue_keep_near(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    Py_RETURN_NONE;
}

static PyObject *queue_note_delay(Queue *Py_UNUSED(self), PyObject *Py_UNUSED(seconds)) { Py_RETURN_NONE; }

static PyObject *queue_split(Queue *Py_UNUSED(self), PyObject *Py_UNUSED(meeting))
{
    return PyErr_SetString(PyExc_RuntimeError, "a queue in the exact order has no halves. Cure: give the fabric a lookahead"),
           NULL;
}

static Py_ssize_t queue_length(Queue *self) { return self->heap.count; }

static int queue_traverse(Queue *self, visitproc visit, void *arg) { return heap_traverse(&self->heap, visit, arg); }

static int queue_clear(Queue *self)
{
    heap_clear(&self->heap);
    return 0;
}

static void queue_dealloc(Queue *self)
{
    PyObject_GC_UnTrack(self);
    heap_clear(&self->heap);
    PyMem_Free(self->heap.events);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef queue_methods[] = {
    {"push", (PyCFunction)(void (*)(void))queue_push, METH_FASTCALL, "push(time, handler, argument): not before now"},
    {"next_at", (PyCFunction)queue_next_at, METH_NOARGS, "Time of the next event; inf when there is none."},
    {"count_if_alone", (PyCFunction)queue_count_if_alone, METH_O, "count_if_alone(now): True when nothing else is due"},
    {"run", (PyCFunction)queue_run, METH_O, "run(end): True when it was halted"},
    {"halt", (PyCFunction)queue_halt, METH_NOARGS, "End run() after the event being handled."},
    {"take", (PyCFunction)queue_take, METH_O, "take(predicate): the arguments of events taken out, in order"},
    {"add_node", (PyCFunction)queue_add_node, METH_O, "The queue itself: it knows no nodes."},
    {"keep_near", (PyCFunction)(void (*)(void))queue_keep_near, METH_FASTCALL, "Nothing: nodes do not have turns."},
    {"note_part", (PyCFunction)(void (*)(void))queue_note_part, METH_FASTCALL, "Nothing: nodes do not have turns."},
    {"note_delay", (PyCFunction)queue_note_delay, METH_O, "Nothing: the order is exact."},
    {"split", (PyCFunction)queue_split, METH_O, "Refuse: a stretch of this order is one event."},
    {"disown", (PyCFunction)queue_split, METH_NOARGS, "Refuse: it knows no nodes."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef queue_members[] = {
    {"now", T_DOUBLE, offsetof(Queue, now), 0, "Virtual time, seconds."},
    {"event_count", T_LONGLONG, offsetof(Queue, done), 0, "Events handled so far."},
    {NULL, 0, 0, 0, NULL},
};

static PySequenceMethods queue_as_sequence = {.sq_length = (lenfunc)queue_length};

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    if (!PyArg_ParseTuple(args, "") || (named != NULL && PyDict_GET_SIZE(named)))
        return NULL;
    Queue *self = (Queue *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->call = queue_add;
    return (PyObject *)self;
}

static PyTypeObject QueueType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mrc_testbed.simulator.event_queue.EventQueue",
    .tp_doc = "Events in order of time; see mrc_testbed/simulator/events.py.",
    .tp_basicsize = sizeof(Queue),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Queue, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = queue_new,
    .tp_dealloc = (destructor)queue_dealloc,
    .tp_traverse = (traverseproc)queue_traverse,
    .tp_clear = (inquiry)queue_clear,
    .tp_methods = queue_methods,
    .tp_members = queue_members,
    .tp_as_sequence = &queue_as_sequence,
};

/* ---- events in order of time at each node ------------------------------------------------------------------- */

typedef struct Lookahead Lookahead;

typedef struct {
    PyObject *objects; /* a tuple, or NULL */
    uintptr_t *starts; /* where each begins; the lowest bits: how many lines of the caches it takes */
    Py_ssize_t count;
} Near;

enum { PARTS = 8 };

typedef struct {
    PyTypeObject *of;
    int offset, lines;
} Part; /* what an argument refers to, see note_part() */

typedef struct {
    /* What an event from elsewhere needs: one line of the CPU's caches. */
    PyObject_HEAD
    vectorcallfunc call; /* add(); a node is called, so that no object of its method is needed for that */
    Heap heap; /* in no order */
    double listed; /* its earliest time among the turns; infinite: not there; -infinite: it has its turn */
    double now;    /* time of its last event; infinite: disowned */
    /* What its turn needs. */
    Lookahead *queue;
    double later; /* during its turn: the earliest of `heap`, which holds what is not due in this stretch */
    int number;
    char side, fetches_parts;
    Near near; /* see keep_near() */
} Node;

enum { DAYS = 64, NONE = -1 };

typedef struct {
    Event event;
    int next; /* the next event of the same day, in order of time; or NONE */
} Dated;

typedef struct {
    Dated *dated;
    int count, room; /* `count`: entered so far, those taken out included */
    double start, days_per_s;
    uint64_t days_taken; /* days that have events, the first day in the lowest bit; others have no first and last */
    int first[DAYS], last[DAYS];
} Calendar; /* events between two times, which are divided into days: to enter and to take out one costs the same for any
               number of events */

enum { LINE = 64, COLLECTOR_BYTES = 16 }; /* what the CPU fetches at a time; what Python's collector has in front */
_Static_assert(offsetof(Node, queue) == LINE, "what comes from elsewhere touches one line");
_Static_assert((sizeof(Node) + COLLECTOR_BYTES) % LINE == 0, "so a node begins where a line does");

struct Lookahead {
    PyObject_HEAD
    vectorcallfunc call; /* add() */
    Heap heap; /* events of no node */
    PyObject *nodes;
    Part parts[PARTS];
    int noted; /* parts */
    Heap turns[2]; /* by side: when nodes are due, by their numbers; no handlers, and entries that are out of date */
    int sided; /* whether nodes of one side reach those of the other only */
    Node *running;
    Calendar due; /* events of the running node up to the end of the stretch */
    long long done;
    double now, ahead;
    double stretch; /* where the stretch ends; -infinite between stretches */
    PyObject *meeting; /* called before each stretch, where the fabric is split; or NULL */
    char halted;
};

static PyTypeObject NodeType, LookaheadType;

static inline void fetch(const void *object, int lines)
{
    for (int i = 0; i < lines; i++)
        __builtin_prefetch((const char *)object + i * LINE);
}

/* The earliest time in a heap that has no order. */
static double earliest(const Heap *heap)
{
    double first = INFINITY;
    for (int i = 0; i < heap->count; i++)
        if (heap->events[i].at < first)
            first = heap->events[i].at;
    return first;
}

/* Makes room for so many events in a calendar. Returns 0, or -1 with an exception. */
static int calendar_reserve(Calendar *calendar, int count)
{
    if (count <= calendar->room)
        return 0;
    int room = calendar->room ? calendar->room : 64;
    while (room < count)
        room *= 2;
    Dated *dated = PyMem_Realloc(calendar->dated, (size_t)room * sizeof(Dated));
    if (dated == NULL)
        return PyErr_NoMemory(), -1;
    calendar->dated = dated, calendar->room = room;
    return 0;
}

/* Empties a calendar, for events from `start` up to `end`. */
static void calendar_begin(Calendar *calendar, double start, double end)
{
    calendar->count = 0, calendar->days_taken = 0;
    calendar->start = start, calendar->days_per_s = DAYS / (end - start);
}

/* Enters an event, whose references become the calendar's. There must be room. */
static inline void calendar_enter(Calendar *calendar, Event event)
{
    double days = (event.at - calendar->start) * calendar->days_per_s;
    /* Not a number where the days are infinitely short: then all events are of one moment. */
    int day = days < DAYS - 1 ? (int)days : DAYS - 1, added = calendar->count++;
    Dated *dated = calendar->dated;
    uint64_t bit = (uint64_t)1 << day;
    dated[added] = (Dated){event, NONE};
    if (!(calendar->days_taken & bit)) {
        calendar->days_taken |= bit;
        calendar->first[day] = calendar->last[day] = added;
    } else if (!before(&event, &dated[calendar->last[day]].event)) {
        dated[calendar->last[day]].next = added;
        calendar->last[day] = added;
    } else {
        int *link = &calendar->first[day];
        while (before(&dated[*link].event, &event))
            link = &dated[*link].next;
        dated[added].next = *link;
        *link = added;
    }
}

/* The first event of a calendar that is not empty. */
static inline const Event *calendar_first(const Calendar *calendar)
{
    return &calendar->dated[calendar->first[__builtin_ctzll(calendar->days_taken)]].event;
}

/* The first event, taken out; its references are the caller's. */
static inline Event calendar_pop(Calendar *calendar)
{
    int day = __builtin_ctzll(calendar->days_taken), index = calendar->first[day];
    calendar->first[day] = calendar->dated[index].next;
    if (calendar->first[day] == NONE)
        calendar->days_taken &= calendar->days_taken - 1;
    return calendar->dated[index].event;
}

/* When the first event of a node is due. */
static double node_next(const Node *node)
{
    const Lookahead *queue = node->queue;
    if (queue == NULL || queue->running != node)
        return earliest(&node->heap);
    return queue->due.days_taken ? calendar_first(&queue->due)->at : node->later;
}

/* Takes the events of the running node from `start` up to the end of the stretch out of its heap. Returns 0, or -1 with an
 * exception and nothing taken.
 */
static int gather_due(Lookahead *self, Node *node, double start)
{
    Heap *heap = &node->heap;
    int kept = 0;
    calendar_begin(&self->due, start, self->stretch);
    if (calendar_reserve(&self->due, heap->count))
        return -1;
    node->later = INFINITY;
    for (int i = 0; i < heap->count; i++) {
        Event event = heap->events[i];
        if (event.at < self->stretch) {
            fetch(event.argument, 2);
            calendar_enter(&self->due, event);
        } else {
            heap->events[kept++] = event;
            if (event.at < node->later)
                node->later = event.at;
        }
    }
    heap->count = kept;
    return 0;
}

/* Puts what is left of the events due back into the heap of the running node. Returns 0, or -1 with an exception. */
static int put_back_due(Lookahead *self, Node *node)
{
    int failed = 0;
    while (self->due.days_taken) {
        Event event = calendar_pop(&self->due);
        failed = failed || heap_append(&node->heap, event.at, event.serial, event.handler, event.argument);
        Py_DECREF(event.handler);
        Py_DECREF(event.argument);
    }
    return -failed;
}

/* Notes that a node is due at a time, infinite: not at all. Returns 0, or -1 with an exception and nothing noted. */
static int list_turn(Node *node, double at)
{
    if (node->queue == NULL)
        return PyErr_SetString(PyExc_RuntimeError, "the queue of this node is gone"), -1;
    if (at < INFINITY && heap_add(&node->queue->turns[node->side], at, node->number, NULL, NULL))
        return -1;
    node->listed = at;
    return 0;
}

/* Returns 0, or -1 with an exception and nothing added. */
static int add_to_node(Node *self, double at, PyObject *handler, PyObject *argument)
{
    if (at < self->now) {
        if (self->now == INFINITY)
            return 0;
        PyErr_SetString(PyExc_RuntimeError, "an event in the past of its node: the queue looks further ahead than it may");
        return -1;
    }
    long long serial = ++self->heap.serial;
    if (self->queue != NULL && self->queue->running == self) {
        Calendar *due = &self->queue->due;
        if (at < self->queue->stretch) {
            if (calendar_reserve(due, due->count + 1))
                return -1;
            calendar_enter(due, (Event){at, serial, Py_NewRef(handler), Py_NewRef(argument)});
            return 0;
        }
        if (at < self->later)
            self->later = at;
    }
    if (heap_append(&self->heap, at, serial, handler, argument))
        return -1;
    if (at < self->listed && list_turn(self, at)) {
        Event refused = self->heap.events[--self->heap.count]; /* still where heap_append() put it: the last one */
        Py_DECREF(refused.handler);
        Py_DECREF(refused.argument);
        return -1;
    }
    return 0;
}

static PyObject *node_from(Node *self, PyObject *const *args, Py_ssize_t count, int clamp)
{
    double at;
    if (time_of(args, count, &at))
        return NULL;
    if (clamp && self->queue != NULL && at < self->queue->now)
        at = self->queue->now;
    if (add_to_node(self, at, args[1], args[2]))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *node_add(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (names != NULL && PyTuple_GET_SIZE(names))
        return PyErr_SetString(PyExc_TypeError, "a node takes no arguments by name"), NULL;
    return node_from((Node *)self, args, PyVectorcall_NARGS(count), 0);
}

static PyObject *node_push(Node *self, PyObject *const *args, Py_ssize_t count) { return node_from(self, args, count, 1); }

static void forget_near(Near *near)
{
    Py_CLEAR(near->objects);
    PyMem_Free(near->starts);
    near->starts = NULL, near->count = 0;
}

enum { LINES_MAX = 3 }; /* of an object: who is wider has what each packet needs in these */

/* Lines of the caches that an object of that width may take which begins `shift` bytes behind the beginning of one. */
static int lines_of(PyObject *object, Py_ssize_t shift)
{
    Py_ssize_t lines = (shift + Py_TYPE(object)->tp_basicsize + LINE - 1) / LINE;
    return lines < LINES_MAX ? (int)lines : LINES_MAX;
}

static PyObject *node_keep_near(Node *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_SetString(PyExc_TypeError, "keep_near() takes objects, and whether it fetches parts"), NULL;
    int parts = PyObject_IsTrue(args[1]);
    Near near = {parts < 0 ? NULL : PySequence_Tuple(args[0]), NULL, 0};
    if (near.objects == NULL)
        return NULL;
    near.count = PyTuple_GET_SIZE(near.objects);
    near.starts = PyMem_New(uintptr_t, near.count ? near.count : 1);
    if (near.starts == NULL)
        return Py_DECREF(near.objects), PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < near.count; i++) {
        PyObject *object = PyTuple_GET_ITEM(near.objects, i);
        near.starts[i] = (uintptr_t)object | (uintptr_t)lines_of(object, (uintptr_t)object % LINE);
    }
    forget_near(&self->near);
    self->near = near;
    self->fetches_parts = (char)parts;
    Py_RETURN_NONE;
}

/* Has the CPU fetch what note_part() named of an object; `inner`: of these parts, for which they must have come. */
static void fetch_parts(const Lookahead *queue, PyObject *object, int inner)
{
    for (int i = 0; i < queue->noted; i++) {
        const Part *part = &queue->parts[i];
        if (Py_TYPE(object) != part->of)
            continue;
        PyObject *found = *(PyObject **)((char *)object + part->offset);
        if (!inner)
            fetch(found, part->lines);
        else if (found != NULL)
            fetch_parts(queue, found, 0);
    }
}

/* Has the CPU fetch what the events due at a node will look at: one by one it would wait for each. The arguments
 * themselves were asked for by gather_due().
 */
static void fetch_near(const Node *node, const Calendar *due) /* before the first of them is handled */
{
    for (Py_ssize_t i = 0; i < node->near.count; i++)
        fetch((void *)(node->near.starts[i] & ~(uintptr_t)LINES_MAX), (int)(node->near.starts[i] & LINES_MAX));
    for (int inner = 0; inner < 2 * node->fetches_parts; inner++)
        for (int i = 0; i < due->count; i++)
            fetch_parts(node->queue, due->dated[i].event.argument, inner);
}

static PyObject *node_next_at(Node *self, PyObject *Py_UNUSED(none)) { return PyFloat_FromDouble(node_next(self)); }

static PyObject *node_count_if_alone(Node *self, PyObject *now)
{
    if (self->queue == NULL)
        return PyErr_SetString(PyExc_RuntimeError, "the queue of this node is gone"), NULL;
    return count_if_alone(node_next(self), now, &self->queue->done);
}

static PyObject *node_disown(Node *self, PyObject *Py_UNUSED(none))
{
    heap_clear(&self->heap);
    self->now = self->listed = INFINITY;
    Py_RETURN_NONE;
}

static int node_traverse(Node *self, visitproc visit, void *arg)
{
    Py_VISIT(self->queue);
    Py_VISIT(self->near.objects);
    return heap_traverse(&self->heap, visit, arg);
}

static int node_clear(Node *self)
{
    Py_CLEAR(self->queue);
    forget_near(&self->near);
    heap_clear(&self->heap);
    self->listed = INFINITY;
    return 0;
}

static void node_dealloc(Node *self)
{
    PyObject_GC_UnTrack(self);
    node_clear(self);
    PyMem_Free(self->heap.events);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef node_methods[] = {
    {"push", (PyCFunction)(void (*)(void))node_push, METH_FASTCALL, "push(time, handler, argument): not before now"},
    {"keep_near", (PyCFunction)(void (*)(void))node_keep_near, METH_FASTCALL,
     "keep_near(objects, parts): what its handlers look at"},
    {"next_at", (PyCFunction)node_next_at, METH_NOARGS, "Time of the next event here; inf when there is none."},
    {"count_if_alone", (PyCFunction)node_count_if_alone, METH_O, "count_if_alone(now): True when nothing else is due"},
    {"disown", (PyCFunction)node_disown, METH_NOARGS, "Ignore all events of the node."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject NodeType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mrc_testbed.simulator.event_queue.NodeEvents",
    .tp_doc = "Events of one node of a LookaheadQueue, whose node() makes it; called as (time, handler, argument).",
    .tp_basicsize = sizeof(Node),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Node, call),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)node_dealloc,
    .tp_traverse = (traverseproc)node_traverse,
    .tp_clear = (inquiry)node_clear,
    .tp_methods = node_methods,
};

#include "channel.c"
#ifdef COMPILED_HEADER
#include "crossing.c"
#endif

static int add_event(PyObject *events, double at, PyObject *handler, PyObject *argument)
{
    if (Py_IS_TYPE(events, &NodeType) && !isnan(at))
        return add_to_node((Node *)events, at, handler, argument);
#ifdef COMPILED_HEADER
    if (Py_IS_TYPE(events, &GateType) && !isnan(at))
        return pass_gate((Gate *)events, at, handler, argument);
#endif
    if (Py_IS_TYPE(events, &QueueType) && !isnan(at))
        return heap_add(&((Queue *)events)->heap, at, ++((Queue *)events)->heap.serial, handler, argument);
    PyObject *time = PyFloat_FromDouble(at), *args[3] = {time, handler, argument};
    PyObject *result = time == NULL ? NULL : PyObject_Vectorcall(events, args, 3, NULL);
    Py_XDECREF(time);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

#ifdef COMPILED_HEADER
static int counts_alone(PyObject *events, double now)
{
    if (Py_IS_TYPE(events, &NodeType) && ((Node *)events)->queue != NULL)
        return is_alone(node_next((Node *)events), now, &((Node *)events)->queue->done);
    if (Py_IS_TYPE(events, &QueueType))
        return is_alone(heap_next(&((Queue *)events)->heap), now, &((Queue *)events)->done);
    return NOT_ITS;
}
#endif

static PyObject *lookahead_add_node(Lookahead *self, PyObject *side)
{
    int upper = PyObject_IsTrue(side);
    if (upper < 0)
        return NULL;
    Node *node = PyObject_GC_New(Node, &NodeType);
    if (node == NULL)
        return NULL;
    node->near = (Near){NULL, NULL, 0}, node->fetches_parts = 0;
    node->call = node_add;
    node->heap = (Heap){0}, node->later = INFINITY;
    node->queue = (Lookahead *)Py_NewRef(self);
    node->number = (int)PyList_GET_SIZE(self->nodes), node->side = self->sided && upper;
    node->now = 0, node->listed = INFINITY;
    PyObject_GC_Track(node);
    if (PyList_Append(self->nodes, (PyObject *)node))
        Py_CLEAR(node);
    return (PyObject *)node;
}

/* Finds where an object keeps an attribute: the machine word that is a reference to its value. */
static PyObject *lookahead_note_part(Lookahead *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *part = count == 2 ? PyObject_GetAttr(args[0], args[1]) : NULL;
    if (part == NULL)
        return PyErr_Occurred() ? NULL : (PyErr_SetString(PyExc_TypeError, "note_part() takes an object and a name"), NULL);
    int found = 0, size = (int)Py_TYPE(args[0])->tp_basicsize;
    for (int at = (int)sizeof(PyObject); at + (int)sizeof(PyObject *) <= size; at += (int)sizeof(PyObject *))
        if (*(PyObject **)((char *)args[0] + at) == part) {
            if (found++ || self->noted == PARTS)
                break;
            self->parts[self->noted] = (Part){Py_TYPE(args[0]), at, lines_of(part, LINE - 16)};
        }
    int known = found == 1 && self->noted < PARTS;
    self->noted += known;
    Py_DECREF(part);
    return PyBool_FromLong(known);
}

static PyObject *lookahead_note_delay(Lookahead *self, PyObject *seconds)
{
    double delay = PyFloat_AsDouble(seconds);
    if (delay == -1.0 && PyErr_Occurred())
        return NULL;
    if (delay < self->ahead)
        self->ahead = delay;
    Py_RETURN_NONE;
}

static PyObject *lookahead_from(Lookahead *self, PyObject *const *args, Py_ssize_t count, int clamp)
{
    double at;
    if (time_of(args, count, &at))
        return NULL;
    if (clamp && at < self->now)
        at = self->now;
    if (at < self->stretch)
        at = self->stretch;
    if (heap_add(&self->heap, at, ++self->heap.serial, args[1], args[2]))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *lookahead_add(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (names != NULL && PyTuple_GET_SIZE(names))
        return PyErr_SetString(PyExc_TypeError, "a queue takes no arguments by name"), NULL;
    return lookahead_from((Lookahead *)self, args, PyVectorcall_NARGS(count), 0);
}

static PyObject *lookahead_push(Lookahead *self, PyObject *const *args, Py_ssize_t count)
{
    return lookahead_from(self, args, count, 1);
}

static PyObject *lookahead_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    int sided = 0;
    if (!PyArg_ParseTuple(args, "|p", &sided) || (named != NULL && PyDict_GET_SIZE(named)))
        return NULL;
    Lookahead *self = (Lookahead *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = lookahead_add;
    self->ahead = INFINITY, self->stretch = -INFINITY, self->sided = sided;
    self->nodes = PyList_New(0);
    if (self->nodes == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static inline Node *node_of(Lookahead *self, long long number) { return (Node *)PyList_GET_ITEM(self->nodes, number); }

/* Time of the first turn of a node of that side; infinite when there is none. */
static double first_turn_of(Lookahead *self, int side)
{
    Heap *turns = &self->turns[side];
    while (turns->count) {
        Event *turn = &turns->events[0];
        if (turn->at == node_of(self, turn->serial)->listed)
            return turn->at;
        heap_pop(turns);
    }
    return INFINITY;
}

static double first_turn(Lookahead *self) { return fmin(first_turn_of(self, 0), first_turn_of(self, 1)); }

static PyObject *lookahead_next_at(Lookahead *self, PyObject *Py_UNUSED(none))
{
    return PyFloat_FromDouble(fmin(heap_next(&self->heap), first_turn(self)));
}

static PyObject *lookahead_count_if_alone(Lookahead *self, PyObject *now)
{
    return count_if_alone(fmin(heap_next(&self->heap), first_turn(self)), now, &self->done);
}

/* Handles an event that was taken out. Returns 0, or -1 with an exception. */
static int lookahead_handle(Lookahead *self, Event event)
{
    self->now = event.at;
    self->done++;
    if (handle(event))
        return -1;
    return (self->done & 0xFFF) == 0 ? PyErr_CheckSignals() : 0;
}

/* Runs all nodes of a side up to the end of the stretch, one after the other. Returns 0, or -1 with an exception. */
static int run_stretch(Lookahead *self, int side)
{
    int failed = 0;
    double latest = self->now;
    while (!failed && first_turn_of(self, side) < self->stretch) {
        Node *node = self->running = node_of(self, heap_pop(&self->turns[side]).serial);
        double start = node->listed;
        node->listed = -INFINITY;
        failed = gather_due(self, node, start);
        fetch_near(node, &self->due);
        while (!failed && self->due.days_taken) {
            Event event = calendar_pop(&self->due);
            node->now = event.at;
            failed = lookahead_handle(self, event);
        }
        if (failed)
            put_back_due(self, node);
        self->due.count = 0;
        latest = fmax(latest, self->now);
        self->running = NULL;
        if (list_turn(node, failed ? earliest(&node->heap) : node->later))
            node->listed = INFINITY, failed = -1; /* so that its next event lists it */
    }
    self->now = latest;
    return failed;
}

static PyObject *lookahead_split(Lookahead *self, PyObject *meeting)
{
    Py_XSETREF(self->meeting, Py_NewRef(meeting));
    Py_RETURN_NONE;
}

/* Agrees with the queue of the other half on the first events and now. Returns whether the run is over, or -1 with an
 * exception.
 */
static int meet(Lookahead *self, double *lower, double *upper, double common)
{
    int is_over = -1;
    PyObject *answer = PyObject_CallFunction(self->meeting, "ddddO", *lower, *upper, common, self->now,
                                             self->halted ? Py_True : Py_False);
    self->halted = 0;
    if (answer != NULL && !PyArg_ParseTuple(answer, "dddp", lower, upper, &self->now, &is_over))
        is_over = -1;
    Py_XDECREF(answer);
    return is_over;
}

static PyObject *lookahead_run(Lookahead *self, PyObject *until)
{
    double end = PyFloat_AsDouble(until);
    if (end == -1.0 && PyErr_Occurred())
        return NULL;
    self->halted = 0;
    for (;;) {
        double lower = first_turn_of(self, 0), upper = first_turn_of(self, 1), common = heap_next(&self->heap);
        if (self->meeting != NULL) {
            int is_over = meet(self, &lower, &upper, common);
            if (is_over < 0)
                return NULL;
            if (is_over)
                Py_RETURN_TRUE;
        }
        double turn = fmin(lower, upper), first = fmin(common, turn);
        if (first > end || first == INFINITY)
            Py_RETURN_FALSE;
        int failed;
        if (common <= turn) {
            failed = lookahead_handle(self, heap_pop(&self->heap));
        } else {
            double reach = self->sided ? fmin(fmax(lower, upper) + self->ahead, turn + 2 * self->ahead) : turn + self->ahead;
            double stretch = fmax(reach, nextafter(turn, INFINITY));
            self->stretch = fmin(fmin(stretch, common), nextafter(end, INFINITY));
            failed = run_stretch(self, lower > upper);
            self->stretch = -INFINITY;
        }
        if (failed)
            return NULL;
        if (self->halted && self->meeting == NULL)
            Py_RETURN_TRUE;
    }
}

static PyObject *lookahead_halt(Lookahead *self, PyObject *Py_UNUSED(none))
{
    self->halted = 1;
    Py_RETURN_NONE;
}

static PyObject *lookahead_take(Lookahead *self, PyObject *predicate)
{
    Heap found = {0};
    int failed = self->running != NULL && put_back_due(self, self->running);
    failed = failed || heap_take(&self->heap, predicate, &found);
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(self->nodes); i++) {
        Node *node = node_of(self, i);
        failed = heap_take(&node->heap, predicate, &found);
        double first = earliest(&node->heap);
        if (!failed && node != self->running && node->listed != first)
            failed = list_turn(node, first);
    }
    if (self->running != NULL && self->due.days_taken) {
        failed = 1;
        put_back_due(self, self->running);
        PyErr_SetString(PyExc_RuntimeError, "an event was pushed while events are taken out");
    }
    if (self->running != NULL && gather_due(self, self->running, self->running->now))
        failed = 1;
    return arguments_of(&found, failed);
}

/* Loop over the indexes of the events due that are not handled yet. */
#define DUE_LEFT(self, index)                                                                                          \
    for (uint64_t days = (self)->due.days_taken; days; days &= days - 1)                                               \
        for (int index = (self)->due.first[__builtin_ctzll(days)]; index != NONE; index = (self)->due.dated[index].next)

static Py_ssize_t lookahead_length(Lookahead *self)
{
    Py_ssize_t count = self->heap.count;
    DUE_LEFT(self, i) count++;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(self->nodes); i++)
        count += node_of(self, i)->heap.count;
    return count;
}

static int lookahead_traverse(Lookahead *self, visitproc visit, void *arg)
{
    Py_VISIT(self->nodes);
    Py_VISIT(self->meeting);
    DUE_LEFT(self, i) {
        Py_VISIT(self->due.dated[i].event.handler);
        Py_VISIT(self->due.dated[i].event.argument);
    }
    return heap_traverse(&self->heap, visit, arg);
}

static void due_clear(Lookahead *self)
{
    while (self->due.days_taken) {
        Event event = calendar_pop(&self->due);
        Py_DECREF(event.handler);
        Py_DECREF(event.argument);
    }
}

static int lookahead_clear(Lookahead *self)
{
    /* The list stays, empty: turns name nodes by their numbers in it. */
    self->turns[0].count = self->turns[1].count = 0;
    due_clear(self);
    heap_clear(&self->heap);
    Py_CLEAR(self->meeting);
    return self->nodes == NULL ? 0 : PyList_SetSlice(self->nodes, 0, PyList_GET_SIZE(self->nodes), NULL);
}

static void lookahead_dealloc(Lookahead *self)
{
    PyObject_GC_UnTrack(self);
    heap_clear(&self->heap);
    due_clear(self);
    Py_XDECREF(self->nodes);
    Py_XDECREF(self->meeting);
    PyMem_Free(self->heap.events);
    PyMem_Free(self->due.dated);
    PyMem_Free(self->turns[0].events);
    PyMem_Free(self->turns[1].events);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef lookahead_methods[] = {
    {"push", (PyCFunction)(void (*)(void))lookahead_push, METH_FASTCALL, "push(time, handler, argument): not before now"},
    {"next_at", (PyCFunction)lookahead_next_at, METH_NOARGS, "Time of the next event; inf when there is none."},
    {"count_if_alone", (PyCFunction)lookahead_count_if_alone, METH_O, "count_if_alone(now): True when nothing else is due"},
    {"run", (PyCFunction)lookahead_run, METH_O, "run(end): True when it was halted"},
    {"halt", (PyCFunction)lookahead_halt, METH_NOARGS, "End run() after the stretch being run."},
    {"take", (PyCFunction)lookahead_take, METH_O, "take(predicate): the arguments of events taken out, in order"},
    {"split", (PyCFunction)lookahead_split, METH_O, "split(meeting): agree with the other half before each stretch"},
    {"keep_near", (PyCFunction)(void (*)(void))queue_keep_near, METH_FASTCALL,
     "Nothing: events of no node come one by one."},
    {"note_part", (PyCFunction)(void (*)(void))lookahead_note_part, METH_FASTCALL,
     "note_part(example, name): objects of that type lead to what they have by that name"},
    {"add_node", (PyCFunction)lookahead_add_node, METH_O, "add_node(upper): events of one more node, on either side"},
    {"note_delay", (PyCFunction)lookahead_note_delay, METH_O, "note_delay(seconds): of the way between two nodes"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef lookahead_members[] = {
    {"now", T_DOUBLE, offsetof(Lookahead, now), 0, "Virtual time, seconds."},
    {"event_count", T_LONGLONG, offsetof(Lookahead, done), 0, "Events handled so far."},
    {NULL, 0, 0, 0, NULL},
};

static PySequenceMethods lookahead_as_sequence = {.sq_length = (lenfunc)lookahead_length};

static PyTypeObject LookaheadType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mrc_testbed.simulator.event_queue.LookaheadQueue",
    .tp_doc = "Events in order of time at each node; see mrc_testbed/simulator/events.py.",
    .tp_basicsize = sizeof(Lookahead),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Lookahead, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = lookahead_new,
    .tp_dealloc = (destructor)lookahead_dealloc,
    .tp_traverse = (traverseproc)lookahead_traverse,
    .tp_clear = (inquiry)lookahead_clear,
    .tp_methods = lookahead_methods,
    .tp_members = lookahead_members,
    .tp_as_sequence = &lookahead_as_sequence,
};

/* ---- module --------------------------------------------------------------------------------------------------- */

#ifdef COMPILED_HEADER
static PyObject *handled_events(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("LL", handled.hops, handled.of_hosts);
}
#endif

static PyMethodDef functions[] = {
#ifdef COMPILED_HEADER
    {"learn", learn, METH_VARARGS,
     "learn(Frame, Write, Sack, TextPart, opcodes by value, BATCH, STUCK_AFTER): an object of each class, whose copies are "
     "filled in, and constants of host.py"},
    {"unpack", unpack, METH_VARARGS,
     "unpack(bytes, begin, end, names of hosts, texts, ports): let packets arrive that the gates of the other half packed"},
    {"first_packed", first_packed, METH_O, "first_packed(bytearray): the earliest arrival of packets that gates packed"},
    {"handled_events", handled_events, METH_NOARGS,
     "handled_events(): the numbers of events handled by hops.c and by host.c since this module was loaded"},
#endif
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "event_queue", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_event_queue(void)
{
    if (PyType_Ready(&QueueType) || PyType_Ready(&NodeType) || PyType_Ready(&LookaheadType) || PyType_Ready(&ChannelType))
        return NULL;
    PyObject *made = PyModule_Create(&module);
#ifdef COMPILED_HEADER
    if (made != NULL && (PyType_Ready(&GateType) || PyModule_AddObjectRef(made, "Gate", (PyObject *)&GateType)))
        Py_CLEAR(made);
#endif
    if (made == NULL || PyModule_AddObjectRef(made, "EventQueue", (PyObject *)&QueueType)
        || PyModule_AddObjectRef(made, "LookaheadQueue", (PyObject *)&LookaheadType)
        || PyModule_AddObjectRef(made, "Channel", (PyObject *)&ChannelType))
        return Py_XDECREF(made), NULL;
    return made;
}
