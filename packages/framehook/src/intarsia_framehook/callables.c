/* Callables that switch the hook around a call: Hooked turns it on for what it runs, Unhooked off. */
#include "hook.h"
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;
    PyObject *callback;         /* NULL: none */
    PyObject *owner;
    PyObject *bypass;           /* NULL: never */
    PyObject *dict;
    PyObject *weakrefs;
} Hooked;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;
    PyObject *bail_out;         /* NULL: never */
    PyObject *weakrefs;
} Unhooked;

/* Call with another callback (NULL: none). The caller holds its own references to all of it for the whole call. */
static PyObject *call_under(PyObject *callback, PyObject *owner, PyObject *bypass, PyObject *function,
                            PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    HookThread *me = &hook_thread;
    Hooking hooking = {Py_XNewRef(callback), Py_NewRef(owner), Py_XNewRef(bypass)};
    PyObject *result = NULL;
    PyThreadState *ts = PyThreadState_Get();
    Chain found = chain_as_found(ts);
    if (exchange_hooking(me, &hooking, true) == 0) {
        result = PyObject_Vectorcall(function, args, nargsf, kwnames);
        exchange_hooking(me, &hooking, false);
        put_back(ts, found);
    }
    drop_hooking(&hooking);
    return result;
}

/* ---- Hooked ------------------------------------------------------------------------------------------------------ */

static PyObject *hooked_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Hooked *self = (Hooked *)object;
    return call_under(self->callback, self->owner, self->bypass, self->function, args, nargsf, kwnames);
}

static PyObject *hooked_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "callback", "owner", "bypass", NULL};
    PyObject *function, *callback, *owner = Py_None, *bypass = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:Hooked", names, &function, &callback, &owner, &bypass)) {
        return NULL;
    }
    if (!PyCallable_Check(function) || (callback != Py_None && !PyCallable_Check(callback))
            || (bypass != Py_None && !PyCallable_Check(bypass))) {
        return PyErr_Format(PyExc_TypeError,
                            "Hooked needs a callable, and a callable or None as callback and bypass, not %R, %R, %R",
                            function, callback, bypass);
    }
    Hooked *self = (Hooked *)type->tp_alloc(type, 0);
    if (self) {
        self->vectorcall = hooked_call;
        self->function = Py_NewRef(function);
        self->callback = callback == Py_None ? NULL : Py_NewRef(callback);
        self->owner = Py_NewRef(owner);
        self->bypass = bypass == Py_None ? NULL : Py_NewRef(bypass);
    }
    return (PyObject *)self;
}

static int hooked_traverse(Hooked *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->function);
    Py_VISIT(self->callback);
    Py_VISIT(self->owner);
    Py_VISIT(self->bypass);
    Py_VISIT(self->dict);
    return 0;
}

/* `function` and `owner` stay: a call from a finalizer in the same garbage needs them. They can't be part of a cycle
 * that `dict` or `callback` doesn't break, or that the function itself doesn't. */
static int hooked_clear(Hooked *self)
{
    Py_CLEAR(self->callback);
    Py_CLEAR(self->bypass);
    Py_CLEAR(self->dict);
    return 0;
}

static void hooked_dealloc(Hooked *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    hooked_clear(self);
    Py_XDECREF(self->function);
    Py_XDECREF(self->owner);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *hooked_bind(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyObject *hooked_repr(Hooked *self)
{
    return PyUnicode_FromFormat("<hooked %R>", self->function);
}

/* By name, as a function is: pickle and copy give back the very object. */
static PyObject *hooked_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyObject_GetAttrString(self, "__qualname__");
}

/* A hooked function is a function to whoever asks by `isinstance`, such as `inspect` and tracers: it has all that they
 * read. `type` tells the truth. */
static PyObject *hooked_class(PyObject *self, void *unused)
{
    (void)unused;
    PyObject *function = ((Hooked *)self)->function;
    return Py_NewRef((PyObject *)(PyFunction_Check(function) ? Py_TYPE(function) : Py_TYPE(self)));
}

/* What only a function has: `__code__`, `__globals__`, `__closure__`, `__defaults__`, `__kwdefaults__`. */
static PyObject *hooked_forward(PyObject *self, void *name)
{
    return PyObject_GetAttrString(((Hooked *)self)->function, (const char *)name);
}

static PyMemberDef hooked_members[] = {
    {"function", T_OBJECT_EX, offsetof(Hooked, function), READONLY, "what is called"},
    {"callback", T_OBJECT, offsetof(Hooked, callback), READONLY, "asked about the frames of the call, or None"},
    {"owner", T_OBJECT_EX, offsetof(Hooked, owner), READONLY, "whose entries are used"},
    {"bypass", T_OBJECT, offsetof(Hooked, bypass), READONLY, "asked, under a trace function, whether to run natively"},
    {"__dictoffset__", T_PYSSIZET, offsetof(Hooked, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Hooked, weakrefs), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Hooked, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef hooked_methods[] = {
    {"__reduce__", hooked_reduce, METH_NOARGS, "Pickle by name, as functions are."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef hooked_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"__class__", hooked_class, NULL, "The function's class, or Hooked.", NULL},
    {"__code__", hooked_forward, NULL, "The function's own.", "__code__"},
    {"__globals__", hooked_forward, NULL, "The function's own.", "__globals__"},
    {"__closure__", hooked_forward, NULL, "The function's own.", "__closure__"},
    {"__defaults__", hooked_forward, NULL, "The function's own.", "__defaults__"},
    {"__kwdefaults__", hooked_forward, NULL, "The function's own.", "__kwdefaults__"},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot hooked_slots[] = {
    {Py_tp_doc, "Hooked(function, callback, owner=None, bypass=None)\n--\n\n"
                "Calls `function` with `callback` as this thread's callback, and the previous one put back after.\n\n"
                "`bypass()` is asked about frames while a trace function is set: true runs them as they are written."},
    {Py_tp_new, hooked_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_dealloc, hooked_dealloc},
    {Py_tp_traverse, hooked_traverse},
    {Py_tp_clear, hooked_clear},
    {Py_tp_descr_get, hooked_bind},
    {Py_tp_repr, hooked_repr},
    {Py_tp_members, hooked_members},
    {Py_tp_methods, hooked_methods},
    {Py_tp_getset, hooked_getset},
    {0, NULL}};
static PyType_Spec hooked_spec = {
    .name = "intarsia_framehook.Hooked",
    .basicsize = sizeof(Hooked),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR
        | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hooked_slots,
};

/* ---- Unhooked ---------------------------------------------------------------------------------------------------- */

/* The arguments of a running frame, from its variables; NULL with an error set when one was deleted. */
static PyObject *frame_arguments(PyFrameObject *frame, PyCodeObject *code)
{
    int n = count_arguments(code);
    PyObject *locals = PyFrame_GetLocals(frame), *values = locals ? PyTuple_New(n) : NULL;
    for (int i = 0; values && i < n; i++) {
        PyObject *value = PyObject_GetItem(locals, PyTuple_GET_ITEM(code->co_localsplusnames, i));
        if (value == NULL) {
            Py_CLEAR(values);
            break;
        }
        PyTuple_SET_ITEM(values, i, value);
    }
    Py_XDECREF(locals);
    return values;
}

/* Turn the error of an Unhooked call into a Bailout of the replacement that made the call, caused by that error, if
 * `bail_out` says so. Otherwise the error stays. */
static void handle_error(HookThread *me, PyObject *bail_out)
{
    PyObject *error = take_exception(), *values = NULL, *bailout = NULL;
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    PyCodeObject *code = frame ? PyFrame_GetCode(frame) : NULL;
    bool replaced = me->replaced > 0 && code && get_slot(code) == REPLACEMENT;
    me->paused++;
    PyObject *answer = PyObject_CallFunctionObjArgs(bail_out, error, replaced ? Py_True : Py_False, NULL);
    me->paused--;
    int yes = answer && replaced ? PyObject_IsTrue(answer) : 0;
    if (yes > 0 && (values = frame_arguments(frame, code)) != NULL
            && (bailout = PyObject_CallFunctionObjArgs(bailout_type, code, values,
                                                       PyCallable_Check(answer) ? answer : NULL, NULL)) != NULL) {
        PyException_SetCause(bailout, Py_NewRef(error));
        raise_exception(Py_NewRef(bailout));
    }
    else if (!PyErr_Occurred()) {
        raise_exception(Py_NewRef(error));
    }
    Py_XDECREF(answer);
    Py_XDECREF(values);
    Py_XDECREF(bailout);
    Py_XDECREF((PyObject *)code);
    Py_XDECREF((PyObject *)frame);
    Py_XDECREF(error);
}

static PyObject *unhooked_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Unhooked *self = (Unhooked *)object;
    HookThread *me = &hook_thread;
    bool alone = is_only_hook();    /* else stay in the chain, and keep these frames from the hook beneath */
    me->paused += !alone;
    PyObject *result = alone ? call_under(NULL, Py_None, NULL, self->function, args, nargsf, kwnames)
                             : PyObject_Vectorcall(self->function, args, nargsf, kwnames);
    me->paused -= !alone;
    if (result == NULL && self->bail_out && PyErr_ExceptionMatches(PyExc_Exception)) {
        handle_error(me, self->bail_out);
    }
    return result;
}

static PyObject *unhooked_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "bail_out", NULL};
    PyObject *function, *bail_out = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Unhooked", names, &function, &bail_out)) {
        return NULL;
    }
    if (!PyCallable_Check(function) || (bail_out != Py_None && !PyCallable_Check(bail_out))) {
        return PyErr_Format(PyExc_TypeError, "Unhooked needs a callable and a callable or None, not %R and %R",
                            function, bail_out);
    }
    Unhooked *self = (Unhooked *)type->tp_alloc(type, 0);
    if (self) {
        self->vectorcall = unhooked_call;
        self->function = Py_NewRef(function);
        self->bail_out = bail_out == Py_None ? NULL : Py_NewRef(bail_out);
    }
    return (PyObject *)self;
}

static int unhooked_traverse(Unhooked *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->function);
    Py_VISIT(self->bail_out);
    return 0;
}

static int unhooked_clear(Unhooked *self)
{
    Py_CLEAR(self->bail_out);
    return 0;
}

static void unhooked_dealloc(Unhooked *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    unhooked_clear(self);
    Py_XDECREF(self->function);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *unhooked_repr(Unhooked *self)
{
    return PyUnicode_FromFormat("<unhooked %R>", self->function);
}

static PyMemberDef unhooked_members[] = {
    {"function", T_OBJECT_EX, offsetof(Unhooked, function), READONLY, "what is called"},
    {"bail_out", T_OBJECT, offsetof(Unhooked, bail_out), READONLY, "asked about an error of the call, or None"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Unhooked, weakrefs), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Unhooked, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot unhooked_slots[] = {
    {Py_tp_doc, "Unhooked(function, bail_out=None)\n--\n\n"
                "Calls `function` without a callback in this thread, and the previous one put back after.\n\n"
                "`bail_out(error, replaced)` is asked about an `Exception` of the call: true gives up the replacement\n"
                "that made the call (when `replaced`), and the original runs instead. If the answer is callable, it is\n"
                "called when the original has returned and not raised; what it raises takes the place of the result."},
    {Py_tp_new, unhooked_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_dealloc, unhooked_dealloc},
    {Py_tp_traverse, unhooked_traverse},
    {Py_tp_clear, unhooked_clear},
    {Py_tp_repr, unhooked_repr},
    {Py_tp_members, unhooked_members},
    {0, NULL}};
static PyType_Spec unhooked_spec = {
    .name = "intarsia_framehook.Unhooked",
    .basicsize = sizeof(Unhooked),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = unhooked_slots,
};

int init_callables(PyObject *module)
{
    PyObject *hooked = PyType_FromSpec(&hooked_spec), *unhooked = PyType_FromSpec(&unhooked_spec);
    int rc = hooked && unhooked && PyModule_AddObjectRef(module, "Hooked", hooked) == 0
        ? PyModule_AddObjectRef(module, "Unhooked", unhooked) : -1;
    Py_XDECREF(hooked);
    Py_XDECREF(unhooked);
    return rc;
}
