/* Hops in C: a packet that reaches a switch, and a port that is free again. Part of event_queue.c.
 *
 * ports.py and switches.py say what a switch and a port do. mypyc makes machine code of them, and its header tells where
 * each object keeps each attribute. The functions here do to the same objects what the methods of the same names do, where
 * nothing rare comes in: no observer, fault, jitter, PFC, trim or drop, and forwarding by SRv6. For all else they
 * answer NOT_HERE before they changed anything, and the method itself is called. So a port may change from one to the
 * other at any packet, and both forms give the same trace (tests/native_build/test_modules_both_forms.py).
 *
 * Why: 9 of the 12 events of a data packet are hops, and from C a method costs more by its call, its float and the lookup of
 * the next queue than by what it does.
 */

typedef mrc_testbed___simulator___ports___EgressPortObject Port;
typedef mrc_testbed___simulator___ports___NicPortObject NicPort;
typedef mrc_testbed___simulator___frames___FrameObject Frame;
typedef mrc_testbed___simulator___frames___FrameQueueObject FrameQueue;
typedef mrc_testbed___simulator___switches___VirtualT0Object T0;
typedef mrc_testbed___simulator___switches___VirtualT1Object T1;
typedef mrc_testbed___hosts___engine___paths___ev_formats___Srv6FormatObject Widths;

_Static_assert(sizeof(Port) == sizeof(NicPort) && offsetof(Port, _line) == offsetof(NicPort, _line),
               "a host's port keeps its attributes where a switch's port does");

/* The handler of a port that is free again. */
#define DRAIN CPyStatic_ports____DRAIN

static inline void store(PyObject **attribute, PyObject *owned)
{
    PyObject *former = *attribute;
    *attribute = owned;
    Py_DECREF(former);
}

/* mypyc keeps a number doubled, where the lowest bit is 0; else it is a reference to an object. */
static inline int is_short(CPyTagged number) { return !(number & 1); }
static inline Py_ssize_t value_of(CPyTagged number) { return (Py_ssize_t)number >> 1; }
static inline CPyTagged tagged(Py_ssize_t value) { return (CPyTagged)value << 1; }

/* ---- FrameQueue ----------------------------------------------------------------------------------------------- */

static inline void frames_put(FrameQueue *queue, Frame *frame)
{
    Frame *last = (Frame *)queue->__last;
    store((PyObject *)last == Py_None ? &queue->__first : &last->_next_frame, Py_NewRef(frame));
    store(&queue->__last, Py_NewRef(frame));
    queue->_count += tagged(1);
}

/* The first frame, whose reference is the caller's. */
static inline Frame *frames_take(FrameQueue *queue)
{
    Frame *frame = (Frame *)queue->__first;
    queue->__first = frame->_next_frame; /* with its reference */
    frame->_next_frame = Py_NewRef(Py_None);
    if (queue->__first == Py_None)
        store(&queue->__last, Py_NewRef(Py_None));
    queue->_count -= tagged(1);
    return frame;
}

/* ---- EgressPort ----------------------------------------------------------------------------------------------- */

static inline int is_port(PyObject *object)
{
    return Py_TYPE(object) == CPyType_ports___EgressPort || Py_TYPE(object) == CPyType_ports___NicPort;
}

/* Whether a port sends packets as launch() does. */
static inline int launches_here(const Port *port) { return port->_observer == Py_None && !port->__impaired && port->__jitter == 0; }

static int launch(Port *port, Frame *frame, double now)
{
    Py_ssize_t size = value_of(frame->_size);
    double end = port->_busy_until = now + (double)size * port->__byte_s, arrival = end + port->__delay;
    port->_forwarded += tagged(1);
    port->_forwarded_bytes += tagged(size);
    if (port->__fifo) {
        if (arrival < port->__last_at)
            arrival = port->__last_at;
        port->__last_at = arrival;
    }
    frame->_port = port->_number;
    return add_event(port->__neighbour_events, arrival, port->_arrive, (PyObject *)frame);
}

enum { NOT_HERE, LAUNCHED, AS_DATA, AS_CONTROL };

/* What send_frame(), the method send(), will do with a packet. */
static inline int way_through(const PyObject *object, const Frame *frame, double now)
{
    const Port *port = (const Port *)object;
    if (!is_port((PyObject *)object) || !port->_is_up)
        return NOT_HERE;
    if (port->_busy_until <= now && !port->__draining)
        return launches_here(port) ? LAUNCHED : NOT_HERE;
    if (port->__data == port->__control || port->__medium != Py_None) /* without queues of its own, or with a third */
        return NOT_HERE;
    Py_ssize_t size = value_of(frame->_size);
    if (frame->_control) {
        double depth = (double)(value_of(port->_control_bytes) + size);
        double count = (double)value_of(((FrameQueue *)port->__control)->_count);
        return depth > port->__limits.f2 || count >= port->__limits.f3 ? NOT_HERE : AS_CONTROL;
    }
    double depth = (double)(value_of(port->_data_bytes) + size);
    double count = (double)value_of(((FrameQueue *)port->__data)->_count);
    return depth > port->__trim_at || depth > port->__limits.f0 || count >= port->__limits.f1 ? NOT_HERE : AS_DATA;
}

static int send_frame(Port *port, Frame *frame, double now, int way)
{
    if (way == LAUNCHED)
        return launch(port, frame, now);
    if (way == AS_DATA) {
        frames_put((FrameQueue *)port->__data, frame);
        port->_data_bytes += frame->_size;
        if (value_of(port->_data_bytes) > value_of(port->_peak_bytes))
            port->_peak_bytes = port->_data_bytes;
    } else {
        frames_put((FrameQueue *)port->__control, frame);
        port->_control_bytes += frame->_size;
    }
    port->_waiting++;
    if (port->__draining)
        return 0;
    port->__draining = 1;
    return add_event(port->__node_events, port->_busy_until, DRAIN, (PyObject *)port);
}

/* Whether a data packet is to be marked that leaves so many bytes behind; -1 with an exception. */
static __attribute__((noinline)) int draws_mark(const Port *port, double depth)
{
    double low = port->__ecn_min, high = port->__ecn_max;
    if (depth >= high)
        return 1;
    PyObject *drawn = PyObject_CallMethod(port->__rng, "random", NULL);
    if (drawn == NULL)
        return -1;
    double share = PyFloat_AsDouble(drawn);
    Py_DECREF(drawn);
    return share * (high - low) < depth - low;
}

/* Lets the host of a port send: there is room again. Returns 0, or -1 with an exception. */
static int tell_room(Port *port, double now);

/* Marks a packet. Returns 0, or -1 with an exception. */
static __attribute__((noinline)) int mark(Port *port, Frame *frame)
{
    PyObject *done = PyObject_CallMethod((PyObject *)frame, "mark", NULL);
    if (done == NULL)
        return -1;
    Py_DECREF(done);
    port->_marked += tagged(1);
    return 0;
}

/* drain(): returns NOT_HERE, 1 when done, or -1 with an exception. */
static int on_free(PyObject *argument, double now)
{
    Port *port = (Port *)argument;
    if (!is_port(argument) || !launches_here(port) || port->__medium != Py_None)
        return NOT_HERE;
    int failed = 0;
    if (!port->_control_bytes && !port->_data_bytes) {
        port->__draining = 0;
    } else {
        FrameQueue *queue = (FrameQueue *)(port->_control_bytes ? port->__control : port->__data);
        Frame *frame = (Frame *)queue->__first;
        if ((PyObject *)frame == Py_None) /* an assertion fails there */
            return NOT_HERE;
        if (port->_control_bytes) {
            frames_take(queue);
            port->_control_bytes -= frame->_size;
        } else {
            CPyTagged left = port->_data_bytes - frame->_size;
            int is_deep = frame->_ect && (double)value_of(left) > port->__ecn_min;
            if (is_deep && port->__rng == Py_None) /* the property makes it */
                return NOT_HERE;
            frames_take(queue);
            port->_data_bytes = left;
            int marked = is_deep ? draws_mark(port, (double)value_of(left)) : 0;
            failed = marked < 0 || (marked && mark(port, frame));
        }
        port->_waiting--;
        failed = failed || launch(port, frame, now);
        Py_DECREF(frame);
        if (port->_waiting)
            failed = failed || add_event(port->__node_events, port->_busy_until, DRAIN, argument);
        else
            port->__draining = 0;
    }
    if (!failed && port->_starved && Py_TYPE(port) == CPyType_ports___NicPort && port->_waiting <= value_of(port->__low_water))
        failed = tell_room(port, now);
    return failed ? -1 : 1;
}

/* ---- VirtualT0, VirtualT1 ------------------------------------------------------------------------------------- */

/* Sends a packet by a port of a list; returns as on_free() does. */
static int send_by(PyObject *ports, Py_ssize_t number, Frame *frame, double now)
{
    if (!PyList_CheckExact(ports) || number < 0 || number >= PyList_GET_SIZE(ports))
        return NOT_HERE;
    PyObject *port = PyList_GET_ITEM(ports, number);
    int way = way_through(port, frame, now);
    if (way == NOT_HERE)
        return NOT_HERE;
    return send_frame((Port *)port, frame, now, way) ? -1 : 1;
}

static int at_t0(PyObject *self, PyObject *argument, double now)
{
    T0 *t0 = (T0 *)self;
    Frame *frame = (Frame *)argument;
    if (Py_TYPE(self) != CPyType_switches___VirtualT0 || Py_TYPE(argument) != CPyType_frames___Frame || t0->_is_idle
        || !t0->__by_srv6 || !is_short(frame->_ev))
        return NOT_HERE;
    const Widths *widths = (const Widths *)t0->_widths;
    Py_ssize_t ev = value_of(frame->_ev), uplink_bits = value_of(widths->_uplink_bits);
    Py_ssize_t plane = ev >> uplink_bits & (((Py_ssize_t)1 << value_of(widths->_plane_bits)) - 1);
    int is_fresh = frame->_is_fresh, is_own = frame->_rack == value_of(t0->_rack);
    if (plane != value_of(t0->_plane) && (!is_own || is_fresh))
        return NOT_HERE;
    frame->_is_fresh = 0;
    int sent = is_own ? send_by(t0->_downlinks, frame->_downlink, frame, now)
                      : send_by(t0->_uplinks, ev & (((Py_ssize_t)1 << uplink_bits) - 1), frame, now);
    if (sent == NOT_HERE)
        frame->_is_fresh = (char)is_fresh;
    return sent;
}

static int at_t1(PyObject *self, PyObject *argument, double now)
{
    T1 *t1 = (T1 *)self;
    if (Py_TYPE(self) != CPyType_switches___VirtualT1 || Py_TYPE(argument) != CPyType_frames___Frame || t1->_is_idle)
        return NOT_HERE;
    return send_by(t1->_racks, ((Frame *)argument)->_rack, (Frame *)argument, now);
}

/* Handles an event that is a hop, whose handler is a function of machine code; returns as on_free() does. */
static inline int hop(KeywordFunction function, PyObject *self, PyObject *argument, double now)
{
    if (function == CPyPy_ports___drain)
        return on_free(argument, now);
    if (function == CPyPy_switches___VirtualT0___receive)
        return at_t0(self, argument, now);
    return function == CPyPy_switches___VirtualT1___receive ? at_t1(self, argument, now) : NOT_HERE;
}
