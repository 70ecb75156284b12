/* Channel between the processes of a run (halves.py): a wire in memory that both have mapped. Part of event_queue.c.
 *
 * A message goes as frames of one slot each (shared_wire.h), and each begins with the length of the message. Who waits
 * looks at the memory for a while before it sleeps, so halves that keep pace need no system call.
 *
 * Why: a meeting by a socket took 110 us of the 960 of a stretch with 64 hosts, most of it until the other process woke up.
 */

enum {
    CHANNEL_SLOT = 16384,
    CHANNEL_SLOTS = 32,
    LOOKS = 100,         /* at the memory, between two at the clock */
    SLEEP_MS = 100,      /* until a signal's handler has its turn */
    SLEEP_FOR_ROOM_MS = 1 /* nobody wakes a sender that waits for room */
};

typedef struct {
    PyObject_HEAD
    Py_buffer memory;
    struct shared_side out, in;
    int fd; /* socket that wakes this half, and ends with the other */
    double spin_s;
} Channel;

static PyTypeObject ChannelType;

/* A message on its way; `moved`: bytes put so far, or taken. */
typedef struct {
    uint64_t size, moved;
    char *bytes;
} Message;

enum { FRAME_BYTES = CHANNEL_SLOT - sizeof(struct shared_slot) - sizeof(uint64_t) };

/* Puts all frames that find room; returns their number. */
static int put_frames(Channel *channel, Message *message)
{
    int count = 0;
    for (struct shared_slot *slot; message->moved < message->size && (slot = shared_room(&channel->out, 0)) != NULL; count++) {
        uint64_t left = message->size - message->moved;
        slot->len = left < FRAME_BYTES ? (uint32_t)left : FRAME_BYTES;
        memcpy(slot->frame, &message->size, sizeof message->size);
        memcpy(slot->frame + sizeof message->size, message->bytes + message->moved, slot->len);
        message->moved += slot->len;
        shared_put(&channel->out);
    }
    if (count)
        shared_wake(&channel->out, channel->fd);
    return count;
}

/* Takes all frames that wait of one message, into an object made at the first. Returns their number, or -1 with an exception. */
static int take_frames(Channel *channel, Message *message, PyObject **object)
{
    int count = 0;
    for (; (*object == NULL || message->moved < message->size) && shared_waiting(&channel->in); count++) {
        uint32_t len;
        const struct shared_slot *slot = shared_next(&channel->in, &len);
        if (*object == NULL) {
            memcpy(&message->size, slot->frame, sizeof message->size);
            if ((*object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)message->size)) == NULL)
                return -1;
            message->bytes = PyBytes_AS_STRING(*object);
        }
        memcpy(message->bytes + message->moved, slot->frame + sizeof message->size, len);
        message->moved += len;
        shared_took(&channel->in);
    }
    return count;
}

static double clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void relax_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Waits for a frame, or for room where a message still `needs_room`, or for a while. Returns whether the other half is there. */
static int wait_for_other(Channel *channel, int needs_room)
{
    double end = clock_s() + channel->spin_s;
    do {
        for (int look = 0; look < LOOKS; look++, relax_cpu())
            if (shared_waiting(&channel->in) || (needs_room && shared_room(&channel->out, 0) != NULL))
                return 1;
        sched_yield(); /* to whoever waits for this CPU, as the other half may */
    } while (clock_s() < end);
    if (shared_sleep(&channel->in))
        return 1;
    struct pollfd socket_event = {channel->fd, POLLIN, 0};
    char wakes[64];
    if (poll(&socket_event, 1, needs_room ? SLEEP_FOR_ROOM_MS : SLEEP_MS) <= 0)
        return 1;
    ssize_t count = recv(channel->fd, wakes, sizeof wakes, MSG_DONTWAIT);
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Puts one message and takes another, in pieces as there is room. Returns 0, or -1 with an exception. */
static int exchange_frames(Channel *channel, Message *sent, Message *received, PyObject **object)
{
    for (int is_there = 1;;) {
        int moved = put_frames(channel, sent), taken = take_frames(channel, received, object);
        if (taken < 0)
            return -1;
        int needs_room = sent->moved < sent->size;
        if (!needs_room && *object != NULL && received->moved == received->size)
            return 0;
        if (moved + taken)
            continue;
        if (!is_there) // looked once more, for its last message
            return PyErr_SetString(PyExc_EOFError, "the other half has ended"), -1;
        Py_BEGIN_ALLOW_THREADS
        is_there = wait_for_other(channel, needs_room);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals())
            return -1;
    }
}

static PyObject *exchange(Channel *self, PyObject *message)
{
    if (!PyBytes_CheckExact(message) || PyBytes_GET_SIZE(message) == 0)
        return PyErr_SetString(PyExc_TypeError, "a channel takes bytes, one at least"), NULL;
    Message sent = {(uint64_t)PyBytes_GET_SIZE(message), 0, PyBytes_AS_STRING(message)}, received = {0};
    PyObject *answer = NULL;
    if (exchange_frames(self, &sent, &received, &answer))
        Py_CLEAR(answer);
    return answer;
}

static PyObject *channel_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    static const uint32_t slots[2] = {CHANNEL_SLOTS, CHANNEL_SLOTS};
    Py_buffer memory;
    int number, fd;
    double spin_s;
    if (!PyArg_ParseTuple(args, "w*pid", &memory, &number, &fd, &spin_s))
        return NULL;
    Channel *channel = NULL;
    if (memory.len < (Py_ssize_t)shared_bytes(CHANNEL_SLOT, CHANNEL_SLOTS, CHANNEL_SLOTS))
        PyErr_Format(PyExc_ValueError, "a channel needs %zu bytes", shared_bytes(CHANNEL_SLOT, CHANNEL_SLOTS, CHANNEL_SLOTS));
    else
        channel = (Channel *)type->tp_alloc(type, 0);
    if (channel == NULL)
        return PyBuffer_Release(&memory), NULL;
    channel->memory = memory, channel->fd = fd, channel->spin_s = spin_s;
    channel->out = shared_side(memory.buf, number, slots, CHANNEL_SLOT);
    channel->in = shared_side(memory.buf, !number, slots, CHANNEL_SLOT);
    return (PyObject *)channel;
}

static void channel_dealloc(Channel *self)
{
    PyBuffer_Release(&self->memory);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef channel_methods[] = {
    {"exchange", (PyCFunction)exchange, METH_O, "exchange(bytes): send a message, and return the one of the other half"},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject ChannelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mrc_testbed.simulator.event_queue.Channel",
    .tp_doc = "Channel(shared memory, number of the half, socket, seconds to look before it sleeps): see channel.c.",
    .tp_basicsize = sizeof(Channel),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = channel_new,
    .tp_dealloc = (destructor)channel_dealloc,
    .tp_methods = channel_methods,
};
