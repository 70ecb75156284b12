/* Gates to the border between halves, and packets that cross it, as bytes and back. Part of event_queue.c.
 *
 * border.py says what crosses and how. The functions here do the same for nearly all packets, writes of a text's part and
 * SACKs, on the objects of mypyc. Any other waits as it is, and border.py packs it.
 *
 * Why: from Python a crossing takes 33,000 instructions, more than all else that a packet takes.
 */

#define WRITE_NUMBERS(X) \
    X(dest_qp) X(ev) X(plane) X(dscp) X(ecn) X(psn) X(msn) X(va) X(rkey) X(dma_length) X(size) X(rqmsn) X(imm) X(tsr)
#define WRITE_FLAGS(X) X(ack_request) X(rtx) X(solicited)
#define SACK_NUMBERS(X) \
    X(dest_qp) X(ev) X(plane) X(dscp) X(ecn) X(cack_psn) X(sack_offset) X(bitmap) X(ack_psn_offset) X(entropy) X(verdict) \
    X(timestamp) X(rcvd_units) X(ooo_count) X(mpr) X(penalty) X(spdcid) X(dpdcid) X(cc_type)
#define SACK_FLAGS(X) X(restore_cwnd) X(rtx)
#define FRAME_FLAGS(X) X(control) X(trimmable) X(ect) X(corrupt) X(marked) X(trimmed)

#define ONE_MORE(name) +1
enum { NUMBERS_MAX = 0 SACK_NUMBERS(ONE_MORE), FLAGS_MAX = 0 WRITE_FLAGS(ONE_MORE), NO_NUMBER = -1 };

/* A packet between the processes of one run, which have the same code: no layout for anybody else. */
typedef struct {
    double at;
    CPyTagged size, ev, numbers[NUMBERS_MAX];
    int64_t begin, length, optional; /* of the part; `optional`: timestamp of a write, probe_id of a SACK, or NO_NUMBER */
    int32_t port, source, target, text;
    int16_t rack, downlink, plane;
    uint8_t is_sack, opcode, frame_flags, flags[FLAGS_MAX];
} Packed;

/* A number or None as a number; 0 when it is neither, or negative. */
static int optional_number(PyObject *value, int64_t *number)
{
    *number = value == Py_None ? NO_NUMBER : PyLong_CheckExact(value) ? PyLong_AsLongLong(value) : NO_NUMBER - 1;
    return *number >= NO_NUMBER && !PyErr_Occurred();
}

static PyObject *optional_object(int64_t number) { return number == NO_NUMBER ? Py_NewRef(Py_None) : PyLong_FromLongLong(number); }

/* Index of an object in a list, or NO_NUMBER. */
static int index_of(PyObject *list, const PyObject *object)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
        if (PyList_GET_ITEM(list, i) == object)
            return (int)i;
    return NO_NUMBER;
}

/* Number of a host by its name, or NO_NUMBER. */
static int number_of(PyObject *numbers, PyObject *name)
{
    PyObject *number = PyDict_GetItemWithError(numbers, name);
    return number == NULL ? NO_NUMBER : (int)PyLong_AsLong(number);
}

#define PACK_NUMBER(name) are_short &= is_short(packet->_##name), packed->numbers[n++] = packet->_##name;
#define PACK_FLAG(name) packed->flags[f++] = (uint8_t)packet->_##name;
#define TAKE_NUMBER(name) packet->_##name = packed->numbers[n++];
#define TAKE_FLAG(name) packet->_##name = (char)packed->flags[f++];

/* Returns whether a write can be packed here, and is. */
static int pack_write(Packed *packed, const Write *packet, PyObject *texts)
{
    int n = 0, f = 0, are_short = 1;
    const TextPart *part = (const TextPart *)packet->_payload;
    if (Py_TYPE(part) != CPyType_payload___TextPart || packet->_trimmed != Py_None || !is_short(part->_begin)
        || !is_short(part->_length))
        return 0;
    WRITE_NUMBERS(PACK_NUMBER)
    WRITE_FLAGS(PACK_FLAG)
    packed->begin = value_of(part->_begin), packed->length = value_of(part->_length);
    packed->text = index_of(texts, part->_text);
    packed->opcode = (uint8_t)PyLong_AsLong(packet->_opcode);
    return are_short && packed->text != NO_NUMBER && optional_number(packet->_timestamp, &packed->optional);
}

static int pack_sack(Packed *packed, const Sack *packet)
{
    int n = 0, f = 0, are_short = 1;
    packed->is_sack = 1;
    SACK_NUMBERS(PACK_NUMBER)
    SACK_FLAGS(PACK_FLAG)
    return are_short && optional_number(packet->_probe_id, &packed->optional);
}

/* Returns whether a packet can be packed here, and is; -1 with an exception. */
static int pack(Packed *packed, const Frame *frame, double at, PyObject *numbers, PyObject *texts)
{
    PyObject *packet = frame->_packet;
    int is_packed = Py_TYPE(packet) == CPyType_packets___Write  ? pack_write(packed, (Write *)packet, texts)
                    : Py_TYPE(packet) == CPyType_packets___Sack ? pack_sack(packed, (Sack *)packet)
                                                                : 0;
    packed->source = number_of(numbers, frame->_source), packed->target = number_of(numbers, frame->_target);
    if (PyErr_Occurred())
        return -1;
    if (!is_packed || packed->source == NO_NUMBER || packed->target == NO_NUMBER || !is_short(frame->_size)
        || !is_short(frame->_ev))
        return 0;
    packed->at = at, packed->size = frame->_size, packed->ev = frame->_ev, packed->port = frame->_port;
    packed->rack = frame->_rack, packed->downlink = frame->_downlink, packed->plane = frame->_plane;
    int bit = 0;
#define PACK_FRAME_FLAG(name) packed->frame_flags |= (uint8_t)(frame->_##name << bit++);
    FRAME_FLAGS(PACK_FRAME_FLAG)
    return 1;
}

/* A write without its payload yet, which the caller fills in; NULL with an exception. */
static PyObject *take_write(const Packed *packed, PyObject *texts)
{
    int n = 0, f = 0;
    PyObject *opcode = PyTuple_GET_ITEM(learned.opcodes, packed->opcode), *timestamp = optional_object(packed->optional);
    TextPart *part = timestamp == NULL ? NULL : copy_of(learned.part);
    Write *packet = part == NULL ? NULL : copy_of(learned.write);
    if (packet == NULL) {
        if (part != NULL)
            part->_text = Py_NewRef(Py_None);
        return Py_XDECREF(timestamp), Py_XDECREF(part), NULL;
    }
    part->_text = Py_NewRef(PyList_GET_ITEM(texts, packed->text));
    part->_begin = tagged(packed->begin), part->_length = tagged(packed->length);
    packet->_payload = (PyObject *)part, packet->_timestamp = timestamp;
    packet->_opcode = Py_NewRef(opcode), packet->_trimmed = Py_NewRef(Py_None);
    WRITE_NUMBERS(TAKE_NUMBER)
    WRITE_FLAGS(TAKE_FLAG)
    return (PyObject *)packet;
}

static PyObject *take_sack(const Packed *packed)
{
    int n = 0, f = 0;
    PyObject *probe_id = optional_object(packed->optional);
    Sack *packet = probe_id == NULL ? NULL : copy_of(learned.sack);
    if (packet == NULL)
        return Py_XDECREF(probe_id), NULL;
    packet->_probe_id = probe_id;
    SACK_NUMBERS(TAKE_NUMBER)
    SACK_FLAGS(TAKE_FLAG)
    return (PyObject *)packet;
}

/* Lets a packet arrive. Returns 0, or -1 with an exception. */
static int let_arrive(const Packed *packed, PyObject *names, PyObject *texts, PyObject *ports)
{
    Py_ssize_t hosts = PyList_GET_SIZE(names);
    if (packed->source >= hosts || packed->target >= hosts || (!packed->is_sack && packed->text >= PyList_GET_SIZE(texts))
        || packed->port >= PyList_GET_SIZE(ports) || !is_port(PyList_GET_ITEM(ports, packed->port)))
        return PyErr_SetString(PyExc_ValueError, "the halves have other hosts, texts or ports"), -1;
    PyObject *packet = packed->is_sack ? take_sack(packed) : take_write(packed, texts);
    Frame *frame = packet == NULL ? NULL : copy_of(learned.frame);
    if (frame == NULL)
        return Py_XDECREF(packet), -1;
    frame->_packet = packet, frame->_next_frame = Py_NewRef(Py_None);
    frame->_source = Py_NewRef(PyList_GET_ITEM(names, packed->source));
    frame->_target = Py_NewRef(PyList_GET_ITEM(names, packed->target));
    frame->_size = packed->size, frame->_ev = packed->ev, frame->_port = packed->port;
    frame->_rack = packed->rack, frame->_downlink = packed->downlink, frame->_plane = packed->plane;
    frame->_is_fresh = 0, frame->_is_data = (char)!packed->is_sack;
    int bit = 0;
#define TAKE_FRAME_FLAG(name) frame->_##name = (char)(packed->frame_flags >> bit++ & 1);
    FRAME_FLAGS(TAKE_FRAME_FLAG)
    const Port *port = (const Port *)PyList_GET_ITEM(ports, packed->port);
    int failed = add_event(port->__neighbour_events, packed->at, port->_arrive, (PyObject *)frame);
    Py_DECREF(frame);
    return failed;
}

static PyObject *unpack(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *packed, *names, *texts, *ports;
    Py_ssize_t begin, end, size = (Py_ssize_t)sizeof(Packed);
    if (!PyArg_ParseTuple(args, "O!nnO!O!O!", &PyBytes_Type, &packed, &begin, &end, &PyList_Type, &names, &PyList_Type, &texts,
                          &PyList_Type, &ports))
        return NULL;
    if (learned.frame == NULL || begin < 0 || begin % size || end % size || end > PyBytes_GET_SIZE(packed))
        return PyErr_SetString(PyExc_ValueError, "unpack() takes packets that gates packed"), NULL;
    for (Py_ssize_t at = begin; at < end; at += size) {
        Packed packet;
        memcpy(&packet, PyBytes_AS_STRING(packed) + at, sizeof packet);
        if (let_arrive(&packet, names, texts, ports))
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *first_packed(PyObject *Py_UNUSED(module), PyObject *packed)
{
    if (!PyByteArray_CheckExact(packed))
        return PyErr_SetString(PyExc_TypeError, "first_packed() takes a bytearray that gates have filled"), NULL;
    double first = INFINITY, at;
    for (Py_ssize_t i = 0; i + (Py_ssize_t)sizeof(Packed) <= PyByteArray_GET_SIZE(packed); i += (Py_ssize_t)sizeof(Packed)) {
        memcpy(&at, PyByteArray_AS_STRING(packed) + i + offsetof(Packed, at), sizeof at);
        first = fmin(first, at);
    }
    return PyFloat_FromDouble(first);
}

/* ---- Gate ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call; /* what a port calls to add an event */
    PyObject *events, *waiting, *packed; /* of the T1 in this half; packets that wait at the border, as objects and as bytes */
    PyObject *numbers, *texts; /* by which hosts and payloads are packed */
    int first_rack, end_rack;
} Gate;

static PyTypeObject GateType;

/* Adds the event of a packet here, or lets the packet wait at the border. Returns 0, or -1 with an exception. */
static int pass_gate(Gate *gate, double at, PyObject *handler, PyObject *argument)
{
    if (Py_TYPE(argument) != CPyType_frames___Frame)
        return PyErr_SetString(PyExc_TypeError, "only frames pass a gate"), -1;
    int rack = ((const Frame *)argument)->_rack;
    if (rack < 0 || (gate->first_rack <= rack && rack < gate->end_rack))
        return add_event(gate->events, at, handler, argument);
    Packed packed = {0};
    int is_packed = pack(&packed, (const Frame *)argument, at, gate->numbers, gate->texts);
    if (is_packed) {
        Py_ssize_t size = PyByteArray_GET_SIZE(gate->packed);
        if (is_packed < 0 || PyByteArray_Resize(gate->packed, size + (Py_ssize_t)sizeof packed))
            return -1;
        memcpy(PyByteArray_AS_STRING(gate->packed) + size, &packed, sizeof packed);
        return 0;
    }
    PyObject *waiting = Py_BuildValue("dOn", at, argument, PyByteArray_GET_SIZE(gate->packed));
    int failed = waiting == NULL || PyList_Append(gate->waiting, waiting);
    Py_XDECREF(waiting);
    return -failed;
}

static PyObject *gate_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    double at;
    if ((names != NULL && PyTuple_GET_SIZE(names)) || time_of(args, PyVectorcall_NARGS(count), &at)
        || pass_gate((Gate *)self, at, args[1], args[2]))
        return PyErr_Occurred() ? NULL : (PyErr_SetString(PyExc_TypeError, "a gate takes no arguments by name"), NULL);
    Py_RETURN_NONE;
}

#define GATE_OBJECTS(X) X(events) X(waiting) X(packed) X(numbers) X(texts)

static PyObject *gate_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *waiting, *events, *packed, *numbers, *texts;
    int first_rack, end_rack;
    if (!PyArg_ParseTuple(args, "O!OiiO!O!O!", &PyList_Type, &waiting, &events, &first_rack, &end_rack, &PyByteArray_Type, &packed,
                          &PyDict_Type, &numbers, &PyList_Type, &texts))
        return NULL;
    Gate *gate = (Gate *)type->tp_alloc(type, 0);
    if (gate != NULL) {
        gate->call = gate_call;
#define KEEP(name) gate->name = Py_NewRef(name);
        GATE_OBJECTS(KEEP)
        gate->first_rack = first_rack, gate->end_rack = end_rack;
    }
    return (PyObject *)gate;
}

static int gate_traverse(Gate *self, visitproc visit, void *arg)
{
#define VISIT(name) Py_VISIT(self->name);
    GATE_OBJECTS(VISIT)
    return 0;
}

static int gate_clear(Gate *self)
{
#define CLEAR(name) Py_CLEAR(self->name);
    GATE_OBJECTS(CLEAR)
    return 0;
}

static void gate_dealloc(Gate *self)
{
    PyObject_GC_UnTrack(self);
    gate_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject GateType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mrc_testbed.simulator.event_queue.Gate",
    .tp_doc = "Gate(waiting, events, first_rack, end_rack, packed, numbers by host, texts): see mrc_testbed/simulator/border.py.",
    .tp_basicsize = sizeof(Gate),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Gate, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = gate_new,
    .tp_dealloc = (destructor)gate_dealloc,
    .tp_traverse = (traverseproc)gate_traverse,
    .tp_clear = (inquiry)gate_clear,
};
