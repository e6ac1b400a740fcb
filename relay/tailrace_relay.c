/* The steady state of a relayed stream: an event goes from the provider's socket to the client's, and no line of Python
   runs for it.

   `Relay` knows one form of events and one client; `take` does what `_Relay.take` of Tailrace does, and Tailrace's own
   is the specification. `DirectReader` reads a provider's connection in the place of its transport, `Poller` is the
   epoll for all of them: one wake-up of the event loop serves every stream that has something.

   What is not exactly one event of the form in one HTTP chunk goes to the connection's `data_received`, with every byte
   after it. What the client's socket does not take goes to its transport. A transport's descriptor is used only while
   the transport says that it is not closing: both event loops say so before they close it. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RELAYED_BYTES (1 << 20) /* as in Tailrace: of what is kept undecoded, */
#define TOKEN_BYTES 1024        /* where an event counts for so much at least */
#define READ_BYTES 65536
#define READS 4       /* of one socket in a row: other streams have their turn */
#define EVENTS 128    /* of one turn */
#define SIZE_DIGITS 7 /* of a chunk */
#define HEAD_ROOM 18  /* for a chunk's size before its data */

#define OBJECT(pointer) ((PyObject *)(pointer))

static PyObject *diverted_name, *call_sink_name; /* interned, for as long as the process lives */
static PyTypeObject *relay_type;

/* ── objects with references, all alike ──────────────────────────────────────────────────────────────────────────── */

#define VISIT_ALL(refs) \
    for (size_t i_ = 0; i_ < sizeof(refs) / sizeof *(refs); i_++) \
        Py_VISIT((refs)[i_])
#define CLEAR_ALL(refs) \
    for (size_t i_ = 0; i_ < sizeof(refs) / sizeof *(refs); i_++) \
        Py_CLEAR((refs)[i_])

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Calls without arguments; -1 where it raises, which is reported. */
static Py_ssize_t asked(PyObject *callable) {
    PyObject *answer = PyObject_CallNoArgs(callable);
    Py_ssize_t value = !answer ? -1 : answer == Py_False ? 0 : PyLong_AsSsize_t(answer); /* True is 1 */
    Py_XDECREF(answer);
    if (value < 0 && PyErr_Occurred())
        PyErr_WriteUnraisable(callable);
    return value;
}

/* The descriptor of a transport without TLS, -1 where there is none. Never raises. */
static int descriptor_of(PyObject *transport) {
    int fd = -1;
    PyObject *tls = NULL, *socket = NULL;
    tls = PyObject_CallMethod(transport, "get_extra_info", "s", "ssl_object");
    if (tls == Py_None)
        socket = PyObject_CallMethod(transport, "get_extra_info", "s", "socket");
    if (socket && socket != Py_None)
        fd = PyObject_AsFileDescriptor(socket);
    PyErr_Clear();
    Py_XDECREF(tls);
    Py_XDECREF(socket);
    return fd;
}

static double monotonic(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ── Relay ───────────────────────────────────────────────────────────────────────────────────────────────────────── */

enum { FORM, DECODER, BODIES, TIMES, PREFIX, SUFFIX, IS_PLAIN, FINDS_KEY, WRITE, REPLY, /* the client: */ BEFORE, AFTER,
       CLIENT_IS_CLOSING, CLIENT_PENDING, CLIENT_WRITE, RELAY_REFS };

struct span { /* the bytes of a reference */
    char *data;
    Py_ssize_t length;
};

typedef struct {
    PyObject_HEAD
    PyObject *refs[RELAY_REFS];
    struct span prefix, suffix, before, after;
    double looks_at;
    Py_ssize_t room;
    int is_padded; /* something stands behind the text, and `is_plain` says of each whether it is what it may be */
    int client_fd; /* -1: events go to `write` alone */
    int is_chunked;
} Relay;

static int relay_traverse(Relay *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(OBJECT(self)));
    VISIT_ALL(self->refs);
    return 0;
}

static int relay_clear(Relay *self) {
    CLEAR_ALL(self->refs);
    return 0;
}

static void relay_dealloc(Relay *self) {
    PyObject_GC_UnTrack(self);
    relay_clear(self);
    free_object(OBJECT(self));
}

static int span_of(PyObject *bytes, struct span *span) {
    return PyBytes_AsStringAndSize(bytes, &span->data, &span->length);
}

/* Where the client is: `write` says it, or has no such attributes. */
static int find_client(Relay *self) {
    PyObject *transport = PyObject_GetAttrString(self->refs[WRITE], "transport"), *chunked = NULL;
    self->client_fd = -1;
    if (!transport) {
        PyErr_Clear();
        return 0;
    }
    int fd = transport == Py_None ? -1 : descriptor_of(transport);
    if (fd >= 0 && (chunked = PyObject_GetAttrString(self->refs[WRITE], "is_chunked")) &&
        (self->refs[BEFORE] = PyObject_GetAttrString(self->refs[WRITE], "prefix")) &&
        (self->refs[AFTER] = PyObject_GetAttrString(self->refs[WRITE], "suffix")) &&
        (self->refs[CLIENT_IS_CLOSING] = PyObject_GetAttrString(transport, "is_closing")) &&
        (self->refs[CLIENT_PENDING] = PyObject_GetAttrString(transport, "get_write_buffer_size")) &&
        (self->refs[CLIENT_WRITE] = PyObject_GetAttrString(transport, "write")) &&
        !span_of(self->refs[BEFORE], &self->before) && !span_of(self->refs[AFTER], &self->after)) {
        self->is_chunked = PyObject_IsTrue(chunked);
        self->client_fd = fd;
    }
    Py_DECREF(transport);
    Py_XDECREF(chunked);
    return PyErr_Occurred() ? -1 : 0;
}

static int relay_init(Relay *self, PyObject *args, PyObject *kwargs) {
    PyObject *template, *write, *decoder, *reply, *guard;
    if ((kwargs && PyDict_Size(kwargs)) || !PyArg_ParseTuple(args, "OOOOO:Relay", &template, &write, &decoder, &reply, &guard))
        return -1;
    relay_clear(self);
    PyObject **refs = self->refs;
    if (!(refs[FORM] = PyObject_GetAttrString(template, "form")) ||
        !(refs[PREFIX] = PyObject_GetAttrString(refs[FORM], "prefix")) ||
        !(refs[SUFFIX] = PyObject_GetAttrString(refs[FORM], "suffix")) ||
        !(refs[IS_PLAIN] = PyObject_GetAttrString(template, "is_plain")) ||
        (guard != Py_None && !(refs[FINDS_KEY] = PyObject_GetAttrString(guard, "finds_key"))) ||
        !(refs[BODIES] = PyList_New(0)) || !(refs[TIMES] = PyList_New(0)) ||
        span_of(refs[PREFIX], &self->prefix) || span_of(refs[SUFFIX], &self->suffix))
        return -1;
    refs[WRITE] = Py_NewRef(write);
    refs[DECODER] = Py_NewRef(decoder);
    refs[REPLY] = Py_NewRef(reply);
    self->looks_at = 0;
    self->room = RELAYED_BYTES;
    PyObject *plain = PyObject_CallFunction(refs[IS_PLAIN], "y", "a");
    if (!plain)
        return -1;
    self->is_padded = plain == Py_None;
    Py_DECREF(plain);
    return find_client(self);
}

static int is_plain_ascii(const unsigned char *text, Py_ssize_t length) {
    for (Py_ssize_t i = 0; i < length; i++)
        if (text[i] < 0x20 || text[i] > 0x7e || text[i] == '"' || text[i] == '\\')
            return 0;
    return length > 0;
}

/* Whether the answer of this call is None; -1 where it raises. */
static int answers_none(PyObject *callable, PyObject *argument) {
    PyObject *answer = PyObject_CallFunctionObjArgs(callable, argument, NULL);
    if (!answer)
        return -1;
    Py_DECREF(answer);
    return answer == Py_None;
}

/* What varies in an event of this form; NULL where it is none, and where something raises. */
static PyObject *body_of(Relay *self, const char *data, Py_ssize_t length) {
    struct span *prefix = &self->prefix, *suffix = &self->suffix;
    Py_ssize_t body_length = length - prefix->length - suffix->length;
    if (body_length <= 0 || memcmp(data, prefix->data, (size_t)prefix->length) ||
        memcmp(data + length - suffix->length, suffix->data, (size_t)suffix->length))
        return NULL;
    const char *at = data + prefix->length;
    PyObject *body = PyBytes_FromStringAndSize(at, body_length);
    if (!body)
        return NULL;
    if ((!self->is_padded && is_plain_ascii((const unsigned char *)at, body_length)) ||
        answers_none(self->refs[IS_PLAIN], body) == 0)
        if (!self->refs[FINDS_KEY] || answers_none(self->refs[FINDS_KEY], body) == 1)
            return body;
    Py_DECREF(body);
    return NULL;
}

/* -1 where it raises: there is no memory. */
static int note_body(Relay *self, PyObject *body, PyObject *at, Py_ssize_t length) {
    if (PyList_Append(self->refs[BODIES], body) || PyList_Append(self->refs[TIMES], at))
        return -1;
    self->room -= length > TOKEN_BYTES ? length : TOKEN_BYTES;
    return 0;
}

/* What was relayed is decoded, for the log and for metrics. */
static int call_sink(Relay *self) {
    PyObject *done = PyObject_CallMethodObjArgs(self->refs[REPLY], call_sink_name, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static PyObject *relay_take(Relay *self, PyObject *data) {
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(data, &bytes, &length))
        return NULL;
    PyObject *body = body_of(self, bytes, length), *at = NULL;
    if (!body) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_FALSE;
    }
    int failed = !(at = PyObject_CallFunctionObjArgs(self->refs[WRITE], body, NULL)) || note_body(self, body, at, length);
    if (!failed && (PyFloat_AsDouble(at) >= self->looks_at || self->room < 0))
        failed = call_sink(self);
    Py_DECREF(body);
    Py_XDECREF(at);
    if (failed || PyErr_Occurred())
        return NULL;
    Py_RETURN_TRUE;
}

static PyMemberDef relay_members[] = {
    {"form", T_OBJECT_EX, offsetof(Relay, refs) + FORM * sizeof(PyObject *), READONLY, NULL},
    {"decoder", T_OBJECT_EX, offsetof(Relay, refs) + DECODER * sizeof(PyObject *), READONLY, NULL},
    {"bodies", T_OBJECT_EX, offsetof(Relay, refs) + BODIES * sizeof(PyObject *), 0, NULL},
    {"times", T_OBJECT_EX, offsetof(Relay, refs) + TIMES * sizeof(PyObject *), 0, NULL},
    {"looks_at", T_DOUBLE, offsetof(Relay, looks_at), 0, NULL},
    {"room", T_PYSSIZET, offsetof(Relay, room), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef relay_methods[] = {
    {"take", (PyCFunction)relay_take, METH_O, "Whether these bytes were one event of this form."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot relay_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_init, relay_init},       {Py_tp_dealloc, relay_dealloc},
    {Py_tp_traverse, relay_traverse}, {Py_tp_clear, relay_clear}, {Py_tp_members, relay_members},
    {Py_tp_methods, relay_methods}, {0, NULL},
};

static PyType_Spec relay_spec = {"tailrace_relay.Relay", sizeof(Relay), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, relay_slots};

/* ── Poller and DirectReader ─────────────────────────────────────────────────────────────────────────────────────── */

enum { TRANSPORT, READER_IS_CLOSING, DATA_RECEIVED, READER_REPLY, READER_REFS };

typedef struct Poller Poller;
typedef struct {
    PyObject_HEAD
    Poller *poller;
    PyObject *refs[READER_REFS]; /* from DATA_RECEIVED on while it is attached */
    int fd;
    uint32_t slot, attachment; /* which of this slot: an event for another one is too late */
    int is_attached;
} DirectReader;

struct Poller {
    PyObject_HEAD
    PyObject *refs[1]; /* the loop, while there are readers */
    int fd; /* -1 while there are none */
    DirectReader **readers; /* by slot */
    uint32_t *free_slots;
    uint32_t room, free_count, attached, attachments;
    char *in, *out; /* one read, and what it becomes */
    size_t out_room;
};

static PyTypeObject *reader_type;

/* A chunk that is here whole, without extensions: where its data begin, and how many they are; 0 where it is none. */
static int find_chunk(const char *at, Py_ssize_t length, Py_ssize_t *start, Py_ssize_t *size) {
    Py_ssize_t found = 0, digits = 0;
    for (; digits < length && digits <= SIZE_DIGITS; digits++) {
        char c = at[digits];
        int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (value < 0)
            break;
        found = found * 16 + value;
    }
    if (digits < 1 || digits > SIZE_DIGITS || length - digits < found + 4)
        return 0;
    if (memcmp(at + digits, "\r\n", 2) || memcmp(at + digits + 2 + found, "\r\n", 2))
        return 0;
    *start = digits + 2;
    *size = found;
    return 1;
}

/* Whether these bytes are chunks, each of them whole, and none is the last one of a body. */
static int are_whole_chunks(const char *data, Py_ssize_t length) {
    Py_ssize_t start, size;
    for (Py_ssize_t at = 0; at < length; at += start + size + 2)
        if (!find_chunk(data + at, length - at, &start, &size) || !size)
            return 0;
    return 1;
}

static int poller_traverse(Poller *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(OBJECT(self)));
    VISIT_ALL(self->refs);
    for (uint32_t i = 0; i < self->room; i++)
        Py_VISIT(self->readers[i]);
    return 0;
}

static void let_go(DirectReader *self);

static int poller_clear(Poller *self) {
    for (uint32_t i = 0; i < self->room; i++)
        if (self->readers[i])
            let_go(self->readers[i]);
    CLEAR_ALL(self->refs);
    return 0;
}

static void poller_dealloc(Poller *self) {
    PyObject_GC_UnTrack(self);
    poller_clear(self);
    if (self->fd > 0)
        close(self->fd);
    PyMem_Free(self->readers);
    PyMem_Free(self->free_slots);
    PyMem_Free(self->in);
    PyMem_Free(self->out);
    free_object(OBJECT(self));
}

static int poller_init(Poller *self, PyObject *args, PyObject *kwargs) {
    if (self->in || (kwargs && PyDict_Size(kwargs)) || !PyArg_ParseTuple(args, ":Poller"))
        return PyErr_Occurred() ? -1 : 0;
    if (!(self->in = PyMem_Malloc(READ_BYTES))) {
        PyErr_NoMemory();
        return -1;
    }
    self->fd = -1;
    return 0;
}

static int more_slots(Poller *self) {
    uint32_t room = self->room ? self->room * 2 : 64;
    DirectReader **readers = PyMem_Realloc(self->readers, room * sizeof *readers);
    if (readers)
        self->readers = readers;
    uint32_t *free_slots = PyMem_Realloc(self->free_slots, room * sizeof *free_slots);
    if (free_slots)
        self->free_slots = free_slots;
    if (!readers || !free_slots) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t slot = room; slot-- > self->room;) {
        self->readers[slot] = NULL;
        self->free_slots[self->free_count++] = slot;
    }
    self->room = room;
    return 0;
}

/* The loop calls `run` from now on, in a context of nobody's. */
static int join_loop(Poller *self) {
    if ((self->fd = epoll_create1(EPOLL_CLOEXEC)) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    PyObject *asyncio = PyImport_ImportModule("asyncio"), *contexts = PyImport_ImportModule("contextvars");
    PyObject *loop = asyncio ? PyObject_CallMethod(asyncio, "get_running_loop", NULL) : NULL;
    PyObject *context = contexts ? PyObject_CallMethod(contexts, "Context", NULL) : NULL;
    PyObject *add = loop ? PyObject_GetAttrString(loop, "add_reader") : NULL;
    PyObject *run = PyObject_GetAttrString(OBJECT(self), "run"), *done = NULL;
    if (add && context && run)
        done = PyObject_CallMethod(context, "run", "OiO", add, self->fd, run);
    if (done)
        self->refs[0] = Py_NewRef(loop);
    Py_XDECREF(asyncio);
    Py_XDECREF(contexts);
    Py_XDECREF(loop);
    Py_XDECREF(context);
    Py_XDECREF(add);
    Py_XDECREF(run);
    Py_XDECREF(done);
    if (!done) {
        close(self->fd);
        self->fd = -1;
    }
    return done ? 0 : -1;
}

static void leave_loop(Poller *self) {
    PyObject *loop = self->refs[0], *done = NULL;
    self->refs[0] = NULL;
    if (loop && !(done = PyObject_CallMethod(loop, "remove_reader", "i", self->fd)))
        PyErr_WriteUnraisable(loop);
    close(self->fd);
    self->fd = -1;
    Py_XDECREF(done);
    Py_XDECREF(loop);
}

/* Its slot is free, and it knows its connection no more. */
static void let_go(DirectReader *self) {
    Poller *poller = self->poller;
    if (!self->is_attached)
        return;
    self->is_attached = 0;
    Py_CLEAR(self->refs[DATA_RECEIVED]);
    Py_CLEAR(self->refs[READER_REPLY]);
    poller->readers[self->slot] = NULL;
    poller->free_slots[poller->free_count++] = self->slot;
    poller->attached--;
    Py_DECREF(OBJECT(self));
}

/* The transport reads again, unless it is closing. */
static void detach(DirectReader *self) {
    Poller *poller = self->poller;
    if (!self->is_attached)
        return;
    Py_INCREF(OBJECT(self));
    epoll_ctl(poller->fd, EPOLL_CTL_DEL, self->fd, NULL);
    let_go(self);
    if (asked(self->refs[READER_IS_CLOSING]) == 0) {
        PyObject *done = PyObject_CallMethod(self->refs[TRANSPORT], "resume_reading", NULL);
        if (!done)
            PyErr_WriteUnraisable(self->refs[TRANSPORT]);
        Py_XDECREF(done);
    }
    if (!poller->attached)
        leave_loop(poller);
    Py_DECREF(OBJECT(self));
}

static int reader_traverse(DirectReader *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(OBJECT(self)));
    Py_VISIT(self->poller);
    VISIT_ALL(self->refs);
    return 0;
}

static int reader_clear(DirectReader *self) {
    CLEAR_ALL(self->refs);
    return 0;
}

static void reader_dealloc(DirectReader *self) { /* never while it is attached: the poller holds it */
    PyObject_GC_UnTrack(self);
    reader_clear(self);
    Py_CLEAR(self->poller);
    free_object(OBJECT(self));
}

/* reader(transport): None where the transport has no socket without TLS */
static PyObject *poller_reader(Poller *self, PyObject *transport) {
    int fd = descriptor_of(transport);
    if (fd < 0)
        Py_RETURN_NONE;
    DirectReader *reader = (DirectReader *)PyType_GenericAlloc(reader_type, 0);
    if (!reader)
        return NULL;
    reader->fd = fd;
    reader->poller = (Poller *)Py_NewRef(OBJECT(self));
    reader->refs[TRANSPORT] = Py_NewRef(transport);
    if (!(reader->refs[READER_IS_CLOSING] = PyObject_GetAttrString(transport, "is_closing"))) {
        Py_DECREF(OBJECT(reader));
        return NULL;
    }
    return (PyObject *)reader;
}

/* The relay to which the reply's reads are diverted, where it has a client's socket; a new reference, or NULL. */
static Relay *relay_of(PyObject *reply) {
    PyObject *sink = PyObject_GetAttr(reply, diverted_name), *found = NULL;
    if (!sink)
        PyErr_Clear();
    else if (PyCFunction_Check(sink) && (found = PyCFunction_GetSelf(sink)))
        found = PyObject_TypeCheck(found, relay_type) && ((Relay *)found)->client_fd >= 0 ? Py_NewRef(found) : NULL;
    Py_XDECREF(sink);
    return (Relay *)found;
}

static PyObject *reader_attach(DirectReader *self, PyObject *args) {
    PyObject *data_received, *reply;
    const char *data, *body;
    Py_ssize_t length, body_length, start, size;
    if (!PyArg_ParseTuple(args, "OOy#y#:attach", &data_received, &reply, &data, &length, &body, &body_length))
        return NULL;
    Relay *relay = self->is_attached ? NULL : relay_of(reply);
    if (!relay || !find_chunk(data, length, &start, &size) || start + size + 2 != length || size != body_length ||
        asked(self->refs[READER_IS_CLOSING]) != 0) {
        Py_XDECREF(OBJECT(relay));
        Py_RETURN_NONE;
    }
    Py_DECREF(OBJECT(relay));
    Poller *poller = self->poller;
    if ((!poller->free_count && more_slots(poller)) || (!poller->attached && join_loop(poller))) {
        PyErr_Clear(); /* no memory, or too many open files: the transport reads on */
        Py_RETURN_NONE;
    }
    uint32_t slot = poller->free_slots[poller->free_count - 1];
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
    self->attachment = ++poller->attachments;
    wanted.data.u64 = (uint64_t)self->attachment << 32 | slot;
    PyObject *done = PyObject_CallMethod(self->refs[TRANSPORT], "pause_reading", NULL);
    if (!done)
        return NULL;
    Py_DECREF(done);
    if (epoll_ctl(poller->fd, EPOLL_CTL_ADD, self->fd, &wanted) && /* it may know the number of one that was closed */
        (errno != EEXIST || epoll_ctl(poller->fd, EPOLL_CTL_MOD, self->fd, &wanted)))
    {
        if (!poller->attached)
            leave_loop(poller);
        return PyObject_CallMethod(self->refs[TRANSPORT], "resume_reading", NULL);
    }
    poller->free_count--;
    poller->attached++;
    poller->readers[slot] = (DirectReader *)Py_NewRef(OBJECT(self));
    self->slot = slot;
    self->refs[DATA_RECEIVED] = Py_NewRef(data_received);
    self->refs[READER_REPLY] = Py_NewRef(reply);
    self->is_attached = 1;
    Py_RETURN_NONE;
}

static PyObject *reader_detach(DirectReader *self, PyObject *unused) {
    (void)unused;
    detach(self);
    Py_RETURN_NONE;
}

static int append(Poller *self, size_t *length, const struct span *what) {
    size_t more = (size_t)what->length;
    if (*length + more + 2 > self->out_room) { /* and the chunk's end */
        size_t room = (*length + more + 2) * 2;
        char *out = PyMem_Realloc(self->out, room);
        if (!out) {
            PyErr_NoMemory();
            return -1;
        }
        self->out = out;
        self->out_room = room;
    }
    memcpy(self->out + *length, what->data, more);
    *length += more;
    return 0;
}

/* Sends what stands behind HEAD_ROOM in `out`; what the socket does not take is the transport's. */
static void send_out(Poller *self, Relay *relay, size_t length) {
    size_t start = HEAD_ROOM;
    if (relay->is_chunked) {
        memcpy(self->out + (start -= 2), "\r\n", 2);
        for (size_t size = length - HEAD_ROOM; size; size /= 16)
            self->out[--start] = "0123456789abcdef"[size % 16];
        memcpy(self->out + length, "\r\n", 2);
        length += 2;
    }
    ssize_t sent = send(relay->client_fd, self->out + start, length - start, MSG_DONTWAIT | MSG_NOSIGNAL);
    start += sent > 0 ? (size_t)sent : 0;
    if (start == length)
        return;
    PyObject *rest = PyBytes_FromStringAndSize(self->out + start, (Py_ssize_t)(length - start));
    PyObject *done = rest ? PyObject_CallFunctionObjArgs(relay->refs[CLIENT_WRITE], rest, NULL) : NULL;
    if (!done)
        PyErr_WriteUnraisable(relay->refs[CLIENT_WRITE]);
    Py_XDECREF(rest);
    Py_XDECREF(done);
}

/* One event: into `out`, or to `write` where that is NULL. -1 where it raises. */
static int pass_on(Poller *self, Relay *relay, PyObject *body, size_t *out, PyObject *now, Py_ssize_t length) {
    if (!out) {
        PyObject *at = PyObject_CallFunctionObjArgs(relay->refs[WRITE], body, NULL);
        Py_XDECREF(at);
        return at ? note_body(relay, body, now, length) : -1;
    }
    struct span text;
    size_t before = *out;
    if (span_of(body, &text) || append(self, out, &relay->before) || append(self, out, &text) ||
        append(self, out, &relay->after) || note_body(relay, body, now, length)) {
        *out = before;
        return -1;
    }
    return 0;
}

/* Relays the events at the beginning of a read; how many bytes those were. An event that is due to be the last one for
   now goes to `write`, which also notes when the client was sent something. */
static Py_ssize_t relay_events(Poller *self, Relay *relay, const char *data, Py_ssize_t length) {
    Py_ssize_t at = 0, start, size;
    size_t out_length = HEAD_ROOM;
    double now = monotonic();
    int is_due = now >= relay->looks_at;
    int is_direct = !is_due && !asked(relay->refs[CLIENT_IS_CLOSING]) && !asked(relay->refs[CLIENT_PENDING]);
    PyObject *time = PyFloat_FromDouble(now), *body;
    while (time && at < length && find_chunk(data + at, length - at, &start, &size) &&
           (body = body_of(relay, data + at + start, size))) {
        int failed = pass_on(self, relay, body, is_direct ? &out_length : NULL, time, size);
        Py_DECREF(body);
        if (failed)
            break;
        at += start + size + 2;
        if (is_due || relay->room < 0) {
            is_due = 1;
            break;
        }
    }
    if (PyErr_Occurred())
        PyErr_WriteUnraisable(OBJECT(relay));
    if (out_length > HEAD_ROOM)
        send_out(self, relay, out_length);
    if (at && is_due && call_sink(relay))
        PyErr_WriteUnraisable(OBJECT(relay));
    Py_XDECREF(time);
    return at;
}

/* One read: what can be relayed, and the rest for Python. */
static void take_read(Poller *self, DirectReader *reader, const char *data, Py_ssize_t length) {
    PyObject *data_received = Py_NewRef(reader->refs[DATA_RECEIVED]), *rest = NULL, *done = NULL;
    Py_ssize_t at = 0, more = 1;
    while (more && at < length && reader->is_attached) {
        Relay *relay = relay_of(reader->refs[READER_REPLY]);
        at += more = relay ? relay_events(self, relay, data + at, length - at) : 0;
        Py_XDECREF(OBJECT(relay));
    }
    if (at == length) {
        Py_DECREF(data_received);
        return;
    }
    rest = PyBytes_FromStringAndSize(data + at, length - at);
    if (!are_whole_chunks(data + at, length - at))
        detach(reader); /* where the next chunk begins, only the parser knows */
    if (!rest || !(done = PyObject_CallFunctionObjArgs(data_received, rest, NULL))) {
        PyErr_WriteUnraisable(data_received);
        if (!(done = PyObject_CallMethod(reader->refs[TRANSPORT], "abort", NULL)))
            PyErr_WriteUnraisable(data_received);
    }
    Py_XDECREF(done);
    Py_XDECREF(rest);
    Py_DECREF(data_received);
}

static void read_socket(Poller *self, DirectReader *reader, uint32_t events) {
    int ends = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    for (int reads = 0; reads < READS; reads++) {
        if (asked(reader->refs[READER_IS_CLOSING]) != 0)
            return; /* `connection_lost` detaches it */
        ssize_t got = recv(reader->fd, self->in, READ_BYTES, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) { /* the transport finds it too, and says so */
            detach(reader);
            return;
        }
        take_read(self, reader, self->in, got);
        if (!reader->is_attached || (got < READ_BYTES && !ends))
            return;
    }
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET}; /* there may be more: it is told again */
    wanted.data.u64 = (uint64_t)reader->attachment << 32 | reader->slot;
    epoll_ctl(self->fd, EPOLL_CTL_MOD, reader->fd, &wanted);
}

static PyObject *poller_run(Poller *self, PyObject *unused) {
    struct epoll_event events[EVENTS];
    (void)unused;
    Py_INCREF(OBJECT(self));
    int count = epoll_wait(self->fd, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        uint32_t slot = (uint32_t)events[i].data.u64;
        DirectReader *reader = slot < self->room ? self->readers[slot] : NULL;
        if (!reader || reader->attachment != events[i].data.u64 >> 32)
            continue;
        Py_INCREF(OBJECT(reader));
        read_socket(self, reader, events[i].events);
        Py_DECREF(OBJECT(reader));
    }
    Py_DECREF(OBJECT(self));
    Py_RETURN_NONE;
}

static PyMethodDef poller_methods[] = {
    {"reader", (PyCFunction)poller_reader, METH_O, "A reader for a transport; None where that has no plain socket."},
    {"run", (PyCFunction)poller_run, METH_NOARGS, "Serves every stream that has something. The loop calls it."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef poller_members[] = {
    {"attached", T_UINT, offsetof(Poller, attached), READONLY, "How many connections are read."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot poller_slots[] = {
    {Py_tp_new, PyType_GenericNew},   {Py_tp_init, poller_init},       {Py_tp_dealloc, poller_dealloc},
    {Py_tp_traverse, poller_traverse}, {Py_tp_clear, poller_clear},   {Py_tp_methods, poller_methods},
    {Py_tp_members, poller_members},  {0, NULL},
};

static PyType_Spec poller_spec = {"tailrace_relay.Poller", sizeof(Poller), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, poller_slots};

static PyMethodDef reader_methods[] = {
    {"attach", (PyCFunction)reader_attach, METH_VARARGS,
     "attach(data_received, reply, data, body): reads the connection from now on, where the reply's reads are diverted\n"
     "to a relay with a socket and this read was one whole chunk, whose body this is: then the parser waits for the next."},
    {"detach", (PyCFunction)reader_detach, METH_NOARGS, "The transport reads again."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef reader_members[] = {
    {"is_attached", T_INT, offsetof(DirectReader, is_attached), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_dealloc, reader_dealloc}, {Py_tp_traverse, reader_traverse}, {Py_tp_clear, reader_clear},
    {Py_tp_methods, reader_methods}, {Py_tp_members, reader_members},   {0, NULL},
};

static PyType_Spec reader_spec = {
    "tailrace_relay.DirectReader", sizeof(DirectReader), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, reader_slots};

/* ── the module ──────────────────────────────────────────────────────────────────────────────────────────────────── */

static PyTypeObject *added_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type && PyModule_AddType(module, (PyTypeObject *)type))
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "tailrace_relay", "Relays token streams from socket to socket, for Tailrace.", -1,
    NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_tailrace_relay(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    if ((diverted_name = PyUnicode_InternFromString("diverted")) && (call_sink_name = PyUnicode_InternFromString("call_sink")) &&
        (relay_type = added_type(module, &relay_spec)) && (reader_type = added_type(module, &reader_spec)) &&
        added_type(module, &poller_spec))
        return module;
    Py_DECREF(module);
    return NULL;
}
