/* The event queue of simulator/events.py: a heap of four children a node, times and serial numbers in one array.
 *
 * An event is a handler and its argument; the handler is called as handler(argument, time). Events come in order of time,
 * those of one instant in the order in which they were pushed.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <math.h>

enum { CHILDREN = 4 };

typedef struct {
    double at;
    long long serial;
    PyObject *handler, *argument;
} Event;

typedef struct {
    PyObject_HEAD
    Event *events;
    Py_ssize_t count, room;
    long long serial, done;
    double now;
    char halted;
} Queue;

static inline int before(const Event *a, const Event *b)
{
    return a->at < b->at || (a->at == b->at && a->serial < b->serial);
}

static void sift_up(Event *events, Py_ssize_t at)
{
    Event moved = events[at];
    while (at > 0) {
        Py_ssize_t parent = (at - 1) / CHILDREN;
        if (!before(&moved, &events[parent]))
            break;
        events[at] = events[parent];
        at = parent;
    }
    events[at] = moved;
}

static void sift_down(Event *events, Py_ssize_t count, Py_ssize_t at)
{
    Event moved = events[at];
    for (;;) {
        Py_ssize_t first = at * CHILDREN + 1, last = first + CHILDREN, best = first;
        if (first >= count)
            break;
        if (last > count)
            last = count;
        for (Py_ssize_t child = first + 1; child < last; child++)
            if (before(&events[child], &events[best]))
                best = child;
        if (!before(&events[best], &moved))
            break;
        events[at] = events[best];
        at = best;
    }
    events[at] = moved;
}

static int add_event(Queue *self, double at, PyObject *handler, PyObject *argument)
{
    if (self->count == self->room) {
        Py_ssize_t room = self->room ? 2 * self->room : 1024;
        Event *events = PyMem_Realloc(self->events, (size_t)room * sizeof(Event));
        if (events == NULL)
            return PyErr_NoMemory(), -1;
        self->events = events, self->room = room;
    }
    self->events[self->count] = (Event){at, ++self->serial, Py_NewRef(handler), Py_NewRef(argument)};
    sift_up(self->events, self->count++);
    return 0;
}

/* The first event, taken out; its references are the caller's. */
static Event pop_event(Queue *self)
{
    Event first = self->events[0];
    self->events[0] = self->events[--self->count];
    if (self->count > 1)
        sift_down(self->events, self->count, 0);
    return first;
}

static PyObject *push_from(Queue *self, PyObject *const *args, Py_ssize_t count, int clamp)
{
    if (count != 3)
        return PyErr_SetString(PyExc_TypeError, "three arguments are needed: a time, a handler and its argument"), NULL;
    double at = PyFloat_AsDouble(args[0]);
    if (at == -1.0 && PyErr_Occurred())
        return NULL;
    if (isnan(at))
        return PyErr_SetString(PyExc_ValueError, "the time of an event is not a number"), NULL;
    if (clamp && at < self->now)
        at = self->now;
    if (add_event(self, at, args[1], args[2]))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *queue_add(Queue *self, PyObject *const *args, Py_ssize_t count) { return push_from(self, args, count, 0); }

static PyObject *queue_push(Queue *self, PyObject *const *args, Py_ssize_t count) { return push_from(self, args, count, 1); }

static PyObject *queue_next_at(Queue *self, PyObject *Py_UNUSED(none))
{
    return PyFloat_FromDouble(self->count ? self->events[0].at : INFINITY);
}

static PyObject *queue_run(Queue *self, PyObject *until)
{
    double end = PyFloat_AsDouble(until);
    if (end == -1.0 && PyErr_Occurred())
        return NULL;
    self->halted = 0;
    while (self->count && self->events[0].at <= end) {
        Event event = pop_event(self);
        self->now = event.at;
        self->done++;
        PyObject *at = PyFloat_FromDouble(event.at), *result = NULL;
        if (at != NULL) {
            PyObject *args[3] = {NULL, event.argument, at};
            result = PyObject_Vectorcall(event.handler, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
            Py_DECREF(at);
        }
        Py_DECREF(event.handler);
        Py_DECREF(event.argument);
        if (result == NULL)
            return NULL;
        Py_DECREF(result);
        if (self->halted)
            Py_RETURN_TRUE;
        if ((self->done & 0xFFF) == 0 && PyErr_CheckSignals())
            return NULL;
    }
    Py_RETURN_FALSE;
}

static PyObject *queue_halt(Queue *self, PyObject *Py_UNUSED(none))
{
    self->halted = 1;
    Py_RETURN_NONE;
}

static int by_time(const void *a, const void *b) { return before(a, b) ? -1 : 1; }

static PyObject *queue_take(Queue *self, PyObject *wanted)
{
    /* In order of time; a sorted array is a heap, and stays one without some of its events. */
    qsort(self->events, (size_t)self->count, sizeof(Event), by_time);
    PyObject *found = PyList_New(0);
    Py_ssize_t kept = 0, count = self->count;
    int failed = found == NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Event event = self->events[i];
        int take = 0;
        if (!failed) {
            PyObject *args[2] = {event.handler, event.argument};
            PyObject *answer = PyObject_Vectorcall(wanted, args, 2, NULL);
            take = answer == NULL ? -1 : PyObject_IsTrue(answer);
            Py_XDECREF(answer);
            if (self->count != count) {
                PyErr_SetString(PyExc_RuntimeError, "an event was pushed while events are taken out");
                return Py_XDECREF(found), NULL;
            }
            failed = take < 0 || (take && PyList_Append(found, event.argument));
        }
        if (!failed && take) {
            Py_DECREF(event.handler);
            Py_DECREF(event.argument);
        } else {
            self->events[kept++] = event;
        }
    }
    self->count = kept;
    if (failed)
        Py_CLEAR(found);
    return found;
}

static Py_ssize_t queue_length(Queue *self) { return self->count; }

static int queue_traverse(Queue *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT(self->events[i].handler);
        Py_VISIT(self->events[i].argument);
    }
    return 0;
}

static int queue_clear(Queue *self)
{
    while (self->count) {
        Event event = self->events[--self->count];
        Py_DECREF(event.handler);
        Py_DECREF(event.argument);
    }
    return 0;
}

static void queue_dealloc(Queue *self)
{
    PyObject_GC_UnTrack(self);
    queue_clear(self);
    PyMem_Free(self->events);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef queue_methods[] = {
    {"add", (PyCFunction)(void (*)(void))queue_add, METH_FASTCALL, "add(at, handler, argument)"},
    {"push", (PyCFunction)(void (*)(void))queue_push, METH_FASTCALL, "push(at, handler, argument): not before now"},
    {"next_at", (PyCFunction)queue_next_at, METH_NOARGS, "Time of the next event; inf when there is none."},
    {"run", (PyCFunction)queue_run, METH_O, "run(end): True when it was halted"},
    {"halt", (PyCFunction)queue_halt, METH_NOARGS, "End run() after the event being handled."},
    {"take", (PyCFunction)queue_take, METH_O, "take(wanted): the arguments of events taken out, in order"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef queue_members[] = {
    {"now", T_DOUBLE, offsetof(Queue, now), 0, "Virtual time, seconds."},
    {"done", T_LONGLONG, offsetof(Queue, done), 0, "Events handled so far."},
    {NULL, 0, 0, 0, NULL},
};

static PySequenceMethods queue_as_sequence = {.sq_length = (lenfunc)queue_length};

static PyTypeObject QueueType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "simulator.event_queue.EventQueue",
    .tp_doc = "Events in order of time; see simulator/events.py.",
    .tp_basicsize = sizeof(Queue),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)queue_dealloc,
    .tp_traverse = (traverseproc)queue_traverse,
    .tp_clear = (inquiry)queue_clear,
    .tp_methods = queue_methods,
    .tp_members = queue_members,
    .tp_as_sequence = &queue_as_sequence,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "event_queue", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_event_queue(void)
{
    if (PyType_Ready(&QueueType))
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || PyModule_AddObjectRef(made, "EventQueue", (PyObject *)&QueueType))
        return Py_XDECREF(made), NULL;
    return made;
}
