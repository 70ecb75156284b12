/* Hosts in C: a packet that reaches a host, and a host that lets its engine send. Part of event_queue.c.
 *
 * host.py says what a host does, and has its state. As in hops.c, the functions here do to the same objects what the
 * methods of the same names do. They call the engine's functions as machine code, without objects for numbers. A host
 * that is stalled, has a codec or has somebody in its engine's place is left to the method: NOT_HERE.
 */

typedef mrc_testbed___simulator___host___VirtualHostObject Host;
typedef mrc_testbed___hosts___engine___endpoint___EndpointObject Endpoint;
typedef mrc_testbed___hosts___engine___connection___TxCreditObject TxCredit;
typedef mrc_testbed___hosts___engine___connection___PortRoomObject PortRoom;
typedef mrc_testbed___hosts___engine___wire___packets___PacketRecordObject PacketRecord;
typedef mrc_testbed___hosts___engine___wire___packets___WriteObject Write;
typedef mrc_testbed___hosts___engine___wire___packets___SackObject Sack;
typedef mrc_testbed___hosts___engine___wire___payload___TextPartObject TextPart;

enum { RAISED = 2 };    /* what a function of mypyc returns for a bool or None when it raised */
enum { OPCODES = 256 }; /* values of an opcode */
enum { NOT_ITS = -1 };  /* the object is none of this module */

/* What learn() was given; all 0 before. Copies of the objects are filled in. */
static struct {
    Frame *frame;
    Write *write;
    Sack *sack;
    TextPart *part;
    PyObject *opcodes; /* by value */
    long batch, stuck_after; /* host.BATCH, host.STUCK_AFTER */
} learned;

/* Counts an event when the node has no other one at `now`. Returns whether it has none, or NOT_ITS. */
static int counts_alone(PyObject *events, double now);

/* A new object of the type of `model`, with its numbers and borrowed references: all of these are to be replaced. */
static void *copy_of(const void *model)
{
    PyTypeObject *type = Py_TYPE(model);
    size_t size = (size_t)type->tp_basicsize;
    PyObject *copy = PyObject_Malloc(size);
    if (copy == NULL)
        return PyErr_NoMemory();
    memcpy(copy, model, size);
    return PyObject_Init(copy, type);
}

/* Whether the host's own engine acts for it here. */
static inline int acts_here(const Host *host, double now)
{
    return host->_engine == host->_endpoint && Py_TYPE(host->_endpoint) == CPyType_endpoint___Endpoint
        && host->__wires == Py_None && now >= host->__stalled_until;
}

/* Host of that name, as the target of the newest packet; NULL with an exception. */
static const Host *target_of(Host *host, PyObject *name)
{
    const Host *target = (const Host *)host->__target;
    if ((PyObject *)target != Py_None && target->_name == name)
        return target;
    PyObject *found = PyDict_GetItemWithError(host->__hosts, name);
    if (found == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, name);
        return NULL;
    }
    store(&host->__target, Py_NewRef(found));
    return (const Host *)found;
}

static Frame *frame_of(Host *host, PyObject *packet, CPyTagged plane, PyObject *peer)
{
    const PacketRecord *record = (const PacketRecord *)packet;
    int is_write = Py_TYPE(packet) == CPyType_packets___Write, is_sack = Py_TYPE(packet) == CPyType_packets___Sack;
    CPyTagged size = is_write ? ((Write *)packet)->_size : CPyStatic_host____SACK_BYTES;
    if ((!is_write && !is_sack) || !is_short(size) || !is_short(record->_ev))
        return (Frame *)CPyDef_host___VirtualHost____frame((PyObject *)host, packet, plane, peer);
    const Host *target = target_of(host, peer);
    if (target == NULL)
        return NULL;
    Frame *frame = copy_of(learned.frame);
    if (frame == NULL)
        return NULL;
    CPyTagged dscp = record->_dscp;
    frame->_ev = record->_ev, frame->_size = size + host->__overhead;
    frame->_rack = (int16_t)value_of(target->_rack), frame->_downlink = (int16_t)value_of(target->_downlink);
    frame->_plane = (int16_t)value_of(plane);
    frame->_control = dscp == host->__dscp_control;
    frame->_trimmable = is_write && (dscp == host->__trimmable.f0 || dscp == host->__trimmable.f1);
    frame->_ect = record->_ecn != tagged(0); /* Not-ECT (RFC 3168) */
    frame->_is_data = (char)is_write;
    frame->_next_frame = Py_NewRef(Py_None), frame->_packet = Py_NewRef(packet);
    frame->_source = Py_NewRef(host->_name), frame->_target = Py_NewRef(peer);
    return frame;
}

/* Hands a packet to its port. Returns 0, or -1 with an exception. */
static int send_packet(Host *host, NicPort *port, PyObject *packet, CPyTagged plane, PyObject *peer, double now)
{
    Frame *frame = frame_of(host, packet, plane, peer);
    if (frame == NULL)
        return -1;
    int way = way_through((PyObject *)port, frame, now);
    int failed = way == NOT_HERE ? CPyDef_ports___EgressPort___send((PyObject *)port, (PyObject *)frame, now) == RAISED
                                 : send_frame((Port *)port, frame, now, way);
    Py_DECREF(frame);
    return failed ? -1 : 0;
}

/* Notes how many packets each port can take. Returns whether that was done here. */
static int offer_room(const Host *host, TxCredit *credit)
{
    Py_ssize_t planes = PyList_GET_SIZE(host->_ports), ring = value_of(host->__ring);
    if (planes > PyList_GET_SIZE(credit->__rooms) || !is_short(credit->_free_ports))
        return 0;
    for (Py_ssize_t plane = 0; plane < planes; plane++)
        if (Py_TYPE(PyList_GET_ITEM(host->_ports, plane)) != CPyType_ports___NicPort)
            return 0;
    credit->__has_limits = 1, credit->_free_ports = 0;
    for (Py_ssize_t plane = 0; plane < planes; plane++) {
        NicPort *port = (NicPort *)PyList_GET_ITEM(host->_ports, plane);
        Py_ssize_t room = ring - port->_waiting;
        port->_starved = room <= 0;
        if (room > 0) {
            ((PortRoom *)PyList_GET_ITEM(credit->__rooms, plane))->_packets = tagged(room);
            credit->_free_ports |= tagged((Py_ssize_t)1 << plane);
        }
    }
    return 1;
}

/* _transmit(): returns whether there may be more to send, or RAISED. */
static int transmit(Host *host, double now)
{
    if (!acts_here(host, now))
        return CPyDef_host___VirtualHost____transmit((PyObject *)host, now);
    int can_send = CPyDef_endpoint___Endpoint___can_send(host->_endpoint);
    if (can_send != 1)
        return can_send;
    TxCredit *credit = (TxCredit *)host->__credit;
    if (!offer_room(host, credit))
        return CPyDef_host___VirtualHost____transmit((PyObject *)host, now);
    if (!credit->_free_ports)
        return 0;
    PyObject *sent = CPyDef_endpoint___Endpoint___transmit_ready(host->_endpoint, now, tagged(learned.batch), (PyObject *)credit,
                                                                 Py_None);
    if (sent == NULL)
        return RAISED;
    int has_more = PyList_GET_SIZE(sent) >= learned.batch, failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(sent); i++) {
        PyObject *entry = PyList_GET_ITEM(sent, i); /* (plane, peer, packet) */
        Py_ssize_t plane = PyLong_AsSsize_t(PyTuple_GET_ITEM(entry, 0));
        NicPort *port = (NicPort *)PyList_GET_ITEM(host->_ports, plane);
        failed = send_packet(host, port, PyTuple_GET_ITEM(entry, 2), tagged(plane), PyTuple_GET_ITEM(entry, 1), now);
        if (port->_waiting >= value_of(host->__ring))
            port->_starved = 1;
        else if (!(credit->_free_ports >> plane & tagged(1)))
            has_more = 1;
    }
    Py_DECREF(sent);
    return failed ? RAISED : has_more;
}

/* Passes the engine's events on. Returns whether there were any, or RAISED. */
static int notify(Host *host, Endpoint *endpoint)
{
    if (!PyList_GET_SIZE(endpoint->__events))
        return 0;
    PyObject *events = CPyDef_endpoint___Endpoint___events((PyObject *)endpoint);
    if (events == NULL)
        return RAISED;
    int notified = CPyDef_host___VirtualHost____notify((PyObject *)host, events);
    Py_DECREF(events);
    return notified;
}

/* _wake_at(): returns 0, or -1 with an exception. */
static int wake_at(Host *host, double due)
{
    if (due >= host->__timer)
        return 0;
    host->__timer = due;
    return add_event(host->_node_events, due, host->__on_timer_event, Py_None);
}

/* The calls of the engine in _pump(). Returns 0, or -1 with an exception. */
static int run_engine(Host *host, PyObject *endpoint, double now)
{
    if (host->__wake <= now && CPyDef_endpoint___Endpoint___on_timer(endpoint, now) == RAISED)
        return -1;
    for (long calls = 0; calls < learned.stuck_after; calls++) {
        int has_more = transmit(host, now), notified = has_more == RAISED ? RAISED : notify(host, (Endpoint *)endpoint);
        if (notified == RAISED)
            return -1;
        if (has_more || notified)
            continue;
        double due = host->__wake = CPyDef_endpoint___Endpoint___next_deadline(endpoint, now);
        if (PyErr_Occurred())
            return -1;
        if (due > now)
            return wake_at(host, due);
        if (CPyDef_endpoint___Endpoint___on_timer(endpoint, now) == RAISED)
            return -1;
    }
    return CPyDef_host___VirtualHost____pump((PyObject *)host, Py_None, now) == RAISED ? -1 : 0; /* which says what is stuck */
}

/* _pump(): returns 0, or -1 with an exception. */
static int pump(Host *host, double now)
{
    if (!acts_here(host, now))
        return CPyDef_host___VirtualHost____pump((PyObject *)host, Py_None, now) == RAISED ? -1 : 0;
    host->__due = 0;
    PyObject *endpoint = Py_NewRef(host->_endpoint); /* a listener may begin another process */
    int failed = run_engine(host, endpoint, now);
    Py_DECREF(endpoint);
    return failed;
}

/* _request(): returns 0, or -1 with an exception. */
static int request(Host *host, double now)
{
    if (host->__due)
        return 0;
    host->__due = 1;
    return add_event(host->_node_events, now, host->__on_pump, Py_None);
}

/* _pump_soon(): returns 0, or -1 with an exception. */
static int pump_soon(Host *host, double now)
{
    int alone = host->__due ? 0 : counts_alone(host->_node_events, now);
    if (alone == NOT_ITS)
        return CPyDef_host___VirtualHost____pump_soon((PyObject *)host, now) == RAISED ? -1 : 0;
    return alone ? pump(host, now) : request(host, now);
}

/* When an engine that is settled is due; -infinite: it is not, or there is an exception. */
static double due_when_settled(const Host *host, PyObject *endpoint, double now)
{
    int has_room = 0;
    for (Py_ssize_t plane = 0; !has_room && plane < PyList_GET_SIZE(host->_ports); plane++)
        has_room = ((Port *)PyList_GET_ITEM(host->_ports, plane))->_waiting < value_of(host->__ring);
    if (CPyDef_endpoint___Endpoint___is_settled(endpoint, (char)has_room) != 1)
        return -INFINITY;
    double due = CPyDef_endpoint___Endpoint___next_deadline(endpoint, now);
    return due == CPY_FLOAT_ERROR && PyErr_Occurred() ? -INFINITY : due;
}

/* receive(): returns as on_free() does. */
static int at_host(PyObject *self, PyObject *argument, double now)
{
    Host *host = (Host *)self;
    Frame *frame = (Frame *)argument;
    if (Py_TYPE(self) != CPyType_host___VirtualHost || Py_TYPE(argument) != CPyType_frames___Frame || frame->_corrupt
        || !acts_here(host, now))
        return NOT_HERE;
    host->_received += tagged(1);
    PyObject *endpoint = Py_NewRef(host->_endpoint);
    char received = CPyDef_endpoint___Endpoint___receive(endpoint, frame->_packet, tagged(frame->_plane), frame->_source, now);
    double due = received == RAISED || now >= host->__wake ? -INFINITY : due_when_settled(host, endpoint, now);
    Py_DECREF(endpoint);
    if (received == RAISED || (due == -INFINITY && PyErr_Occurred()))
        return -1;
    return due < host->__wake && pump_soon(host, now) ? -1 : 1;
}

/* _on_timer(): returns as on_free() does. */
static int on_timer(PyObject *self, double now)
{
    Host *host = (Host *)self;
    if (Py_TYPE(self) != CPyType_host___VirtualHost || !acts_here(host, now))
        return NOT_HERE;
    if (host->__timer <= now)
        host->__timer = INFINITY;
    double due = !host->__due ? due_when_settled(host, host->_endpoint, now) : -INFINITY;
    if (due > now)
        return host->__wake = due, wake_at(host, due) ? -1 : 1;
    return PyErr_Occurred() || request(host, now) ? -1 : 1;
}

/* Handles an event of a host whose handler is a function of machine code; returns as on_free() does. */
static int host_event(KeywordFunction function, PyObject *self, PyObject *argument, double now)
{
    if (function == CPyPy_host___VirtualHost___receive)
        return at_host(self, argument, now);
    if (function == CPyPy_host___VirtualHost____pump && Py_TYPE(self) == CPyType_host___VirtualHost)
        return pump((Host *)self, now) ? -1 : 1;
    return function == CPyPy_host___VirtualHost____on_timer ? on_timer(self, now) : NOT_HERE;
}

/* Calls on_room() of a port. Returns 0, or -1 with an exception. */
static int tell_room(Port *port, double now)
{
    PyObject *on_room = port->_on_room;
    port->_starved = 0;
    if (PyCFunction_CheckExact(on_room)
        && (KeywordFunction)(void (*)(void))PyCFunction_GET_FUNCTION(on_room) == CPyPy_host___VirtualHost___on_room
        && Py_TYPE(PyCFunction_GET_SELF(on_room)) == CPyType_host___VirtualHost)
        return pump_soon((Host *)PyCFunction_GET_SELF(on_room), now);
    PyObject *at = time_object(now), *done = at == NULL ? NULL : PyObject_CallOneArg(on_room, at);
    Py_XDECREF(at);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* ---- learn() ---------------------------------------------------------------------------------------------------- */

static PyObject *learn(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *frame, *write, *sack, *part, *opcodes;
    long batch, stuck_after;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!ll", CPyType_frames___Frame, &frame, CPyType_packets___Write, &write,
                          CPyType_packets___Sack, &sack, CPyType_payload___TextPart, &part, &PyTuple_Type, &opcodes, &batch,
                          &stuck_after))
        return NULL;
    if (PyTuple_GET_SIZE(opcodes) != OPCODES)
        return PyErr_SetString(PyExc_ValueError, "learn() takes one opcode for each value"), NULL;
    Py_XSETREF(learned.frame, (Frame *)Py_NewRef(frame));
    Py_XSETREF(learned.write, (Write *)Py_NewRef(write));
    Py_XSETREF(learned.sack, (Sack *)Py_NewRef(sack));
    Py_XSETREF(learned.part, (TextPart *)Py_NewRef(part));
    Py_XSETREF(learned.opcodes, Py_NewRef(opcodes));
    learned.batch = batch, learned.stuck_after = stuck_after;
    Py_RETURN_NONE;
}
