/* What is known of a code object: its slot, the entries in it, their guards, and asking the callback.
 *
 * The slot of a code object (its "extra") holds one of
 *     NULL          never seen
 *     SKIPPED       always run natively
 *     QUIET         the same, with all it calls
 *     REPLACEMENT   stands in for another code; always run natively
 *     a list        entries, the one that held last first
 *
 * An entry doesn't own the globals it was made for, only their address: they own the function, it the code, it the
 * entries, and no collector sees that cycle, for code extras are invisible to it. Guards have to take the same care
 * with all that leads back to the code.
 */
#include "hook.h"

#define STARS (CO_VARARGS | CO_VARKEYWORDS)

typedef struct {
    PyObject_HEAD
    PyObject *owner;
    PyObject *guard;            /* NULL: nothing more is asked about this code for this owner */
    PyCodeObject *code;         /* NULL: while the guard holds, the frame runs natively */
    void *globals;              /* an address, never followed */
    bool wants_globals;         /* the guard takes them as its last argument */
} Entry;

static Py_ssize_t extra_index = -1;
static PyTypeObject *info_type;
static PyObject *unbound;       /* what a guard gets for a free variable without a value */

static PyCodeObject *find_entry(HookThread *me, Frame *f, PyCodeObject *co, PyObject *entries, bool *closed,
                                PyObject **error);
static PyCodeObject *ask_callback(HookThread *me, Frame *f, PyCodeObject *co, PyObject *error);

/* A guard that raises an Exception doesn't hold, and the callback is asked, with the exception in its info, even
 * about a closed code; what isn't an Exception (an interrupt) goes to the caller of the frame. */
PyCodeObject *choose_code(HookThread *me, Frame *f, PyCodeObject *co, PyObject *slot)
{
    bool closed = false;
    PyObject *error = NULL;
    PyCodeObject *code = NULL;
    me->paused++;
    if (is_bypassed(PyThreadState_Get(), me->hooking.bypass)) {     /* or an error is set */
        me->paused--;
        return NULL;
    }
    if (slot) {
        Py_INCREF(slot);                            /* a guard may reset the code */
        code = find_entry(me, f, co, slot, &closed, &error);
        Py_DECREF(slot);
    }
    if (!code && (!closed || error) && !PyErr_Occurred()) {
        if (me->hooking.callback) {
            code = ask_callback(me, f, co, error);
        }
        else if (error) {
            raise_exception(Py_NewRef(error));
        }
    }
    Py_XDECREF(error);
    me->paused--;
    return code;
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

static void entry_dealloc(PyObject *object)
{
    Entry *entry = (Entry *)object;
    Py_XDECREF(entry->owner);
    Py_XDECREF(entry->guard);
    Py_XDECREF((PyObject *)entry->code);
    PyObject_Free(object);
}

static PyTypeObject entry_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "intarsia_framehook._Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = entry_dealloc,
};

static Entry *new_entry(PyObject *owner, PyObject *guard, PyObject *code, void *globals, bool wants_globals)
{
    Entry *entry = PyObject_New(Entry, &entry_type);
    if (entry) {
        entry->owner = Py_NewRef(owner);
        entry->guard = Py_XNewRef(guard);
        entry->code = (PyCodeObject *)Py_XNewRef(code);
        entry->globals = globals;
        entry->wants_globals = wants_globals;
    }
    return entry;
}

/* Add an entry to the slot as it is now: guards and callbacks may have changed it. Consumes the entry. */
static int append_entry(PyCodeObject *co, Entry *entry)
{
    PyObject *slot = get_slot(co);
    PyObject *list = slot && PyList_CheckExact(slot) ? Py_NewRef(slot) : slot ? NULL : PyList_New(0);
    int rc = -1;
    if (slot == SKIPPED || slot == QUIET || slot == REPLACEMENT) {
        rc = 0;                                     /* marked meanwhile: it will not be asked for again */
    }
    else if (entry && list && PyList_Append(list, (PyObject *)entry) == 0) {
        rc = slot ? 0 : set_slot(co, list);
    }
    Py_XDECREF(list);
    Py_XDECREF((PyObject *)entry);
    return rc;
}

static bool is_closed(PyObject *slot, PyObject *owner)
{
    for (Py_ssize_t i = 0; slot && PyList_CheckExact(slot) && i < PyList_GET_SIZE(slot); i++) {
        Entry *entry = (Entry *)PyList_GET_ITEM(slot, i);
        if (entry->owner == owner && entry->guard == NULL) {
            return true;
        }
    }
    return slot && !PyList_CheckExact(slot);
}

/* The entry that held goes to the front, if it still is where it was. */
static void move_to_front(PyObject *entries, Py_ssize_t i, PyObject *entry)
{
    if (i == 0 || i >= PyList_GET_SIZE(entries) || PyList_GET_ITEM(entries, i) != entry) {
        return;
    }
    for (; i > 0; i--) {
        PyList_SET_ITEM(entries, i, PyList_GET_ITEM(entries, i - 1));
    }
    PyList_SET_ITEM(entries, 0, entry);
}

/* ---- guards ------------------------------------------------------------------------------------------------------ */

/* The i-th of the arguments and, after them, free variables. Arguments that will be cells are still plain; free
 * variables still are in the function. Borrowed; NULL for a free variable without a value. */
static inline PyObject *frame_value(Frame *f, int nargs, int i)
{
    return i < nargs ? f->localsplus[i] : PyCell_GET(PyTuple_GET_ITEM(FRAME_FUNC(f)->func_closure, i - nargs));
}

/* guard(arguments..., free variables..., globals if wanted): 1, 0, or -1 with an error set. */
static int check_guard(Frame *f, PyCodeObject *co, Entry *entry)
{
    int nargs = count_arguments(co), nfree = co->co_nfreevars, n = nargs + nfree;
    PyObject *result;
    if (nfree == 0 && !entry->wants_globals) {
        result = PyObject_Vectorcall(entry->guard, f->localsplus, n, NULL);     /* no copy */
    }
    else {
        PyObject *args[n + 1];
        for (int i = 0; i < n; i++) {               /* owned: the guard may change what a cell holds */
            PyObject *value = frame_value(f, nargs, i);
            args[i] = Py_NewRef(value ? value : unbound);
        }
        args[n] = f->f_globals;
        result = PyObject_Vectorcall(entry->guard, args, n + entry->wants_globals, NULL);
        for (int i = 0; i < n; i++) {
            Py_DECREF(args[i]);
        }
    }
    int holds = result == Py_True ? 1 : result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    return holds;
}

/* New reference to the code of the first entry whose guard holds. NULL when there is none or it has no code; then
 * *closed tells that the callback is not to be asked, *error what a guard raised. */
static PyCodeObject *find_entry(HookThread *me, Frame *f, PyCodeObject *co, PyObject *entries, bool *closed,
                                PyObject **error)
{
    PyObject *owner = me->hooking.owner;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(entries); i++) {
        Entry *entry = (Entry *)PyList_GET_ITEM(entries, i);
        if (entry->owner != owner) {
            continue;
        }
        if (entry->guard == NULL) {
            *closed = true;
            continue;
        }
        if (entry->globals != (void *)f->f_globals) {
            continue;
        }
        Py_INCREF(entry);                           /* the guard may drop it */
        int holds = check_guard(f, co, entry);
        PyObject *code = holds > 0 ? Py_XNewRef((PyObject *)entry->code) : NULL;
        if (holds > 0) {
            *closed = *closed || code == NULL;
            move_to_front(entries, i, (PyObject *)entry);
        }
        Py_DECREF(entry);
        if (holds > 0) {
            return (PyCodeObject *)code;
        }
        if (holds < 0) {
            if (PyErr_ExceptionMatches(PyExc_Exception)) {
                *error = take_exception();
            }
            return NULL;
        }
    }
    return NULL;
}

/* ---- the callback ------------------------------------------------------------------------------------------------ */

static PyObject *make_info(Frame *f, PyCodeObject *co, PyObject *error)
{
    int nargs = count_arguments(co), nfree = co->co_nfreevars;
    PyObject *locals = PyDict_New();
    for (int i = 0; locals && i < nargs + nfree; i++) {
        int slot = i < nargs ? i : co->co_nlocalsplus - nfree + i - nargs;
        PyObject *value = frame_value(f, nargs, i);
        if (value && PyDict_SetItem(locals, PyTuple_GET_ITEM(co->co_localsplusnames, slot), value) < 0) {
            Py_CLEAR(locals);
        }
    }
    PyObject *closure = FRAME_FUNC(f)->func_closure;
    return locals ? PyObject_CallFunction((PyObject *)info_type, "((OONOO))", f->f_globals,
                                          closure ? closure : Py_None, locals, FRAME_FUNC(f), error ? error : Py_None)
                  : NULL;
}

bool fits(PyCodeObject *old, PyObject *object)
{
    PyCodeObject *new = (PyCodeObject *)object;
    if (!PyCode_Check(object) || new == old || (new->co_flags & (PLAIN | NOT_PLAIN)) != PLAIN
            || (new->co_flags & STARS) != (old->co_flags & STARS) || new->co_argcount != old->co_argcount
            || new->co_kwonlyargcount != old->co_kwonlyargcount || new->co_nfreevars != old->co_nfreevars) {
        return false;
    }
    for (int i = count_arguments(old); i-- > 0; ) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(old->co_localsplusnames, i),
                              PyTuple_GET_ITEM(new->co_localsplusnames, i))) {
            return false;
        }
    }
    return true;
}

/* New reference to the code that an answer names, with its entry added; NULL to run natively, or on error. */
static PyCodeObject *take_answer(HookThread *me, Frame *f, PyCodeObject *co, PyObject *owner, PyObject *answer)
{
    PyObject *guard = NULL, *code = answer;
    int wants_globals = 0;
    if (answer == Py_False || answer == Py_Ellipsis) {
        me->quiet_once = answer == Py_Ellipsis;
        return NULL;
    }
    if (answer == Py_None) {
        if (!is_closed(get_slot(co), owner)) {
            append_entry(co, new_entry(owner, NULL, NULL, NULL, false));
        }
        return NULL;
    }
    if (PyTuple_Check(answer) && (PyTuple_GET_SIZE(answer) == 2 || PyTuple_GET_SIZE(answer) == 3)) {
        guard = PyTuple_GET_ITEM(answer, 0);
        code = PyTuple_GET_ITEM(answer, 1);
        wants_globals = PyTuple_GET_SIZE(answer) == 3 && PyObject_IsTrue(PyTuple_GET_ITEM(answer, 2)) == 1;
    }
    bool native = guard && code == Py_None;
    if ((guard && !PyCallable_Check(guard)) || !(native || fits(co, code))) {
        PyErr_SetString(PyExc_TypeError,
                        "the callback must return None, False, ..., a code, or (guard, code or None[, wants globals]); the "
                        "code with the parameters and number of free variables of the one that it replaces");
        return NULL;
    }
    if (native) {
        append_entry(co, new_entry(owner, guard, NULL, f->f_globals, wants_globals));
        return NULL;
    }
    if ((guard && append_entry(co, new_entry(owner, guard, code, f->f_globals, wants_globals)) < 0)
            || set_slot((PyCodeObject *)code, REPLACEMENT) < 0) {
        return NULL;
    }
    return (PyCodeObject *)Py_NewRef(code);
}

static PyCodeObject *ask_callback(HookThread *me, Frame *f, PyCodeObject *co, PyObject *error)
{
    PyObject *callback = Py_NewRef(me->hooking.callback), *owner = Py_NewRef(me->hooking.owner), *answer = NULL;
    PyObject *info = make_info(f, co, error);
    PyCodeObject *code = NULL;
    if (info) {
        PyObject *args[2] = {(PyObject *)co, info};
        PyInterpreterState *interp = PyInterpreterState_Get();
        _PyFrameEvalFunction top = _PyInterpreterState_GetEvalFrameFunc(interp);
        answer = PyObject_Vectorcall(callback, args, 2, NULL);
        if (_PyInterpreterState_GetEvalFrameFunc(interp) != top) {      /* another hook was switched off and on in it */
            _PyInterpreterState_SetEvalFrameFunc(interp, top);
        }
        Py_DECREF(info);
    }
    if (answer) {
        code = take_answer(me, f, co, owner, answer);
        Py_DECREF(answer);
    }
    Py_DECREF(callback);
    Py_DECREF(owner);
    return code;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

PyObject *get_slot(PyCodeObject *co)
{
    void *value = NULL;
    PyUnstable_Code_GetExtra((PyObject *)co, extra_index, &value);
    return value;
}

/* SetExtra frees the old value before it stores the new one, and a finalizer that calls the same code would read a
 * freed list: hold the old value across it. */
int set_slot(PyCodeObject *co, PyObject *value)
{
    PyObject *old = Py_XNewRef(get_slot(co));
    int rc = PyUnstable_Code_SetExtra((PyObject *)co, extra_index, value);
    if (rc == 0) {
        Py_XINCREF(value);
    }
    Py_XDECREF(old);
    return rc;
}

/* A list of (guard, code, id(globals)) in the order they are tried, then None when nothing more is asked; None itself
 * when it isn't and there are no entries. */
PyObject *list_entries(PyCodeObject *co, PyObject *owner)
{
    PyObject *slot = get_slot(co), *result = PyList_New(0);
    bool closed = is_closed(slot, owner);
    for (Py_ssize_t i = 0; result && slot && PyList_CheckExact(slot) && i < PyList_GET_SIZE(slot); i++) {
        Entry *entry = (Entry *)PyList_GET_ITEM(slot, i);
        if (entry->owner != owner || entry->guard == NULL) {
            continue;
        }
        PyObject *code = entry->code ? (PyObject *)entry->code : Py_None;
        PyObject *item = Py_BuildValue("(OON)", entry->guard, code, PyLong_FromVoidPtr(entry->globals));
        if (item == NULL || PyList_Append(result, item) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(item);
    }
    if (result && closed) {
        if (PyList_GET_SIZE(result) == 0) {
            Py_SETREF(result, Py_NewRef(Py_None));
        }
        else if (PyList_Append(result, Py_None) < 0) {
            Py_CLEAR(result);
        }
    }
    return result;
}

int reset_entries(PyCodeObject *co, PyObject *owner)
{
    PyObject *slot = get_slot(co);
    if (owner == NULL || slot == NULL || !PyList_CheckExact(slot)) {
        return owner ? 0 : set_slot(co, NULL);
    }
    PyObject *kept = PyList_New(0);                 /* a new list: others may be walking the old one */
    for (Py_ssize_t i = 0; kept && i < PyList_GET_SIZE(slot); i++) {
        PyObject *entry = PyList_GET_ITEM(slot, i);
        if (((Entry *)entry)->owner != owner && PyList_Append(kept, entry) < 0) {
            Py_CLEAR(kept);
        }
    }
    int rc = kept ? set_slot(co, PyList_GET_SIZE(kept) ? kept : NULL) : -1;
    Py_XDECREF(kept);
    return rc;
}

int init_entries(PyObject *module)
{
    static PyStructSequence_Field fields[] = {
        {"globals", "globals of the frame"},
        {"closure", "cells of the function, or None"},
        {"locals", "new dict: arguments and bound free variables by name"},
        {"function", "the function object that runs"},
        {"error", "what a guard raised, or None"},
        {NULL, NULL}};
    static PyStructSequence_Desc description = {
        "intarsia_framehook.FrameInfo", "A frame that is about to run.", fields, 5};
    extra_index = PyUnstable_Eval_RequestCodeExtraIndex((freefunc)Py_DecRef);
    info_type = PyStructSequence_NewType(&description);
    unbound = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (extra_index < 0 || !info_type || !unbound || PyType_Ready(&entry_type) < 0
            || PyModule_AddObjectRef(module, "FrameInfo", (PyObject *)info_type) < 0) {
        return -1;
    }
    return PyModule_AddObjectRef(module, "UNBOUND", unbound);
}
