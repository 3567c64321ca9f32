/* A PEP 523 hook for frame evaluation: which code runs for a frame, asked per thread.
 *
 * CPython calls `evaluate_hooked` for every Python frame while the hook is installed, which is only as long as some
 * thread has a callback. For a frame of a plain function in such a thread it looks at the slot of the code object
 * (entries.c): a guard that holds names the code to run in its place (run.c); otherwise the callback is asked.
 * Generators, coroutines, class bodies and modules always run natively. callables.c has the two Python callables that
 * switch the hook around a call. layout.h has all that differs between versions of CPython.
 */
#include "hook.h"
#include <pthread.h>

_Thread_local HookThread hook_thread;

static _PyFrameEvalFunction beneath = _PyEval_EvalFrameDefault;    /* what was installed before us */
static int threads_hooked;          /* threads that have a callback */
static bool installed;              /* we are in the chain of eval functions, as far as we know */

static PyObject *evaluate_beneath(HookThread *me, PyThreadState *ts, Frame *f, int throwflag);
static PyObject *evaluate_quietly(HookThread *me, PyThreadState *ts, Frame *f);
static Py_NO_INLINE void find_stack_floor(HookThread *me);
static bool on_top(PyThreadState *ts);

static PyObject *evaluate_hooked(PyThreadState *ts, Frame *f, int throwflag)
{
    PyCodeObject *co = FRAME_CODE(f);
    HookThread *me = &hook_thread;
    PyObject *result;
    if (me->passed_on == f) {       /* a later hook went round in a circle: it has both us and what we call */
        return _PyEval_EvalFrameDefault(ts, f, throwflag);
    }
    /* Under a hook a Python-to-Python call takes C stack. 3.11 has no limit for that, and 3.12 one of 750 calls
     * whatever the recursion limit is: look at the stack itself, and give back the units the evaluator will take. */
    if (me->stack_floor == NULL) {
        find_stack_floor(me);
    }
    int units = (char *)__builtin_frame_address(0) > me->stack_floor ? 2 : 0;
    bool plain = !throwflag && (co->co_flags & (PLAIN | NOT_PLAIN)) == PLAIN;
    if (plain && units == 0) {
        PyErr_SetString(PyExc_RecursionError, "three quarters of the C stack are used");
        return give_up_frame(ts, f, NULL);
    }
    CREDIT_C_RECURSION(ts, units);
    PyObject *slot = plain && me->hooking.callback && !me->paused ? get_slot(co) : SKIPPED;
    if (slot != NULL && !PyList_CheckExact(slot)) {
        result = slot == REPLACEMENT ? _PyEval_EvalFrameDefault(ts, f, 0)
            : slot == QUIET ? evaluate_quietly(me, ts, f) : evaluate_beneath(me, ts, f, throwflag);
    }
    else if (ts->tracing || !on_top(ts)) {      /* a trace function's frame; or a hook that came later owns it */
        result = evaluate_beneath(me, ts, f, 0);
    }
    else {
        PyCodeObject *code = choose_code(me, f, co, slot);
        result = code ? run_replacement(me, ts, f, code)
            : PyErr_Occurred() ? give_up_frame(ts, f, NULL)
            : get_slot(co) == QUIET || me->quiet_once ? evaluate_quietly(me, ts, f) : evaluate_beneath(me, ts, f, 0);
    }
    CREDIT_C_RECURSION(ts, -units);
    return result;
}

/* Evaluate with what was installed before the hook. */
static PyObject *evaluate_beneath(HookThread *me, PyThreadState *ts, Frame *f, int throwflag)
{
    if (beneath == _PyEval_EvalFrameDefault || me->paused) {
        return _PyEval_EvalFrameDefault(ts, f, throwflag);
    }
    Frame *outer = me->passed_on;
    me->passed_on = f;
    PyObject *result = beneath(ts, f, throwflag);
    me->passed_on = outer;
    return result;
}

/* Evaluate natively, and leave all that is called in this frame alone. */
static PyObject *evaluate_quietly(HookThread *me, PyThreadState *ts, Frame *f)
{
    me->quiet_once = false;
    me->paused++;
    PyObject *result = _PyEval_EvalFrameDefault(ts, f, 0);
    me->paused--;
    return result;
}

static void find_stack_floor(HookThread *me)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &low, &size);
        pthread_attr_destroy(&attributes);
    }
    me->stack_floor = (char *)low + size / 4 + 1;
}

/* ---- being installed --------------------------------------------------------------------------------------------- */

bool is_only_hook(void)
{
    return beneath == _PyEval_EvalFrameDefault;
}

static bool on_top(PyThreadState *ts)
{
    return _PyInterpreterState_GetEvalFrameFunc(ts->interp) == evaluate_hooked;
}

/* Get on top of the chain of eval functions. A hook that came later may call us, or may have thrown us out by putting
 * back what it found when it came: it isn't asked which, for the chain may well be a circle. */
static void join_chain(PyThreadState *ts)
{
    beneath = _PyInterpreterState_GetEvalFrameFunc(ts->interp);
    _PyInterpreterState_SetEvalFrameFunc(ts->interp, evaluate_hooked);
    installed = true;
}

void put_back(PyThreadState *ts, Chain found)
{
    bool other = found.top != evaluate_hooked && found.top != _PyEval_EvalFrameDefault;
    if (found.installed && other && on_top(ts)) {       /* the default on top means that we had been thrown out */
        _PyInterpreterState_SetEvalFrameFunc(ts->interp, found.top);
        beneath = found.beneath;
    }
}

Chain chain_as_found(PyThreadState *ts)
{
    return (Chain){_PyInterpreterState_GetEvalFrameFunc(ts->interp), beneath, installed};
}

/* A hook that came later keeps us in the chain until it goes. */
static void leave_chain(PyThreadState *ts)
{
    if (on_top(ts)) {
        _PyInterpreterState_SetEvalFrameFunc(ts->interp, beneath);
        installed = false;
    }
}

/* A thread that ends with a callback drops it with its state dictionary. */
static void thread_ended(PyObject *capsule)
{
    HookThread *me = &hook_thread;
    if (PyCapsule_GetPointer(capsule, NULL) == me) {
        Hooking nothing = {NULL, NULL, NULL};
        exchange_hooking(me, &nothing, false);
        me->watched = false;
        drop_hooking(&nothing);
    }
}

static int watch_end_of_thread(HookThread *me)
{
    PyObject *dict = PyThreadState_GetDict();
    PyObject *capsule = dict ? PyCapsule_New(me, NULL, thread_ended) : NULL;
    int rc = capsule ? PyDict_SetItemString(dict, "intarsia_framehook.thread", capsule) : dict ? -1 : 0;
    Py_XDECREF(capsule);
    me->watched = rc == 0;
    return rc;
}

/* After fork() only this thread is left. */
static void count_after_fork(void)
{
    threads_hooked = hook_thread.hooking.callback != NULL;
}

int exchange_hooking(HookThread *me, Hooking *hooking, bool entering)
{
    PyThreadState *ts = PyThreadState_Get();
    if (entering && hooking->callback && !me->watched && watch_end_of_thread(me) < 0) {
        return -1;
    }
    /* entering a region; or going back to a callback, from a call without one */
    if (hooking->callback && (entering ? !on_top(ts) : !installed)) {
        join_chain(ts);
    }
    Hooking old = me->hooking;
    threads_hooked += !!hooking->callback - !!old.callback;
    me->hooking = *hooking;
    *hooking = old;
    if (threads_hooked == 0) {
        leave_chain(ts);
    }
    return 0;
}

void drop_hooking(Hooking *hooking)
{
    Py_XDECREF(hooking->callback);
    Py_XDECREF(hooking->owner);
    Py_XDECREF(hooking->bypass);
}

int is_bypassed(PyThreadState *ts, PyObject *bypass)
{
    if (bypass == NULL || ts->c_tracefunc == NULL) {
        return 0;
    }
    PyThreadState_EnterTracing(ts);             /* nobody wants to step through it */
    PyObject *answer = PyObject_CallNoArgs(bypass);
    PyThreadState_LeaveTracing(ts);
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return yes;
}

/* ---- Python interface -------------------------------------------------------------------------------------------- */

static PyObject *hook_set_callback(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"callback", "owner", NULL};
    PyObject *callback, *owner = Py_None;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:set_callback", names, &callback, &owner)) {
        return NULL;
    }
    if (callback != Py_None && !PyCallable_Check(callback)) {
        return PyErr_Format(PyExc_TypeError, "the callback must be callable or None, not %R", callback);
    }
    Hooking hooking = {callback == Py_None ? NULL : Py_NewRef(callback), Py_NewRef(owner), NULL};
    int rc = exchange_hooking(&hook_thread, &hooking, true);
    PyObject *previous = rc < 0 ? NULL : Py_NewRef(hooking.callback ? hooking.callback : Py_None);
    drop_hooking(&hooking);
    return previous;
}

static PyCodeObject *need_code(PyObject *object)
{
    if (!PyCode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a code object is needed, not %R", object);
        return NULL;
    }
    return (PyCodeObject *)object;
}

static PyObject *hook_skip(PyObject *module, PyObject *object)
{
    PyCodeObject *code = need_code(object);
    (void)module;
    return code && set_slot(code, SKIPPED) == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *hook_quiet(PyObject *module, PyObject *object)
{
    PyCodeObject *code = need_code(object);
    (void)module;
    return code && set_slot(code, QUIET) == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *hook_alone(PyObject *module, PyObject *nothing)
{
    (void)module;
    (void)nothing;
    return PyBool_FromLong(is_only_hook());
}

static PyObject *hook_reset(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "owner", NULL};
    PyObject *object, *owner = NULL;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:reset", names, &object, &owner)) {
        return NULL;
    }
    PyCodeObject *code = need_code(object);
    owner = owner == Py_Ellipsis ? NULL : owner;    /* the default, as signatures print it */
    return code && reset_entries(code, owner) == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *hook_entries(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "owner", NULL};
    PyObject *object, *owner = Py_None;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:entries", names, &object, &owner)) {
        return NULL;
    }
    PyCodeObject *code = need_code(object);
    return code ? list_entries(code, owner) : NULL;
}

static PyObject *hook_fits(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 2) {
        return PyErr_Format(PyExc_TypeError, "fits takes a code and a replacement, not %zd arguments", nargs);
    }
    PyCodeObject *code = need_code(args[0]);
    return code ? PyBool_FromLong(fits(code, args[1])) : NULL;
}

static PyObject *hook_always(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    (void)args;
    (void)nargs;
    Py_RETURN_TRUE;
}

static PyObject *hook_replace_by_call(PyObject *module, PyObject *on)
{
    bool before = replace_by_call;
    int now = PyObject_IsTrue(on);
    (void)module;
    if (now < 0) {
        return NULL;
    }
    replace_by_call = now;
    return PyBool_FromLong(before);
}

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"set_callback", WITH_KEYWORDS(hook_set_callback), METH_VARARGS | METH_KEYWORDS,
     "set_callback(callback, owner=None)\n--\n\n"
     "Install the callback of this thread, or None; return the previous one."},
    {"skip", hook_skip, METH_O, "skip(code, /)\n--\n\nAlways run a code object natively, whoever asks."},
    {"quiet", hook_quiet, METH_O,
     "quiet(code, /)\n--\n\nAlways run a code object natively, and all that is called meanwhile, whoever asks."},
    {"alone", hook_alone, METH_NOARGS,
     "alone()\n--\n\nWhether no other frame evaluation function was installed before the hook."},
    {"reset", WITH_KEYWORDS(hook_reset), METH_VARARGS | METH_KEYWORDS,
     "reset(code, owner=...)\n--\n\n"
     "Forget the entries of one owner or, without one, all that is known of a code object."},
    {"entries", WITH_KEYWORDS(hook_entries), METH_VARARGS | METH_KEYWORDS,
     "entries(code, owner=None)\n--\n\n"
     "List (guard, replacement, id(globals)) in the order tried, then None when nothing more is asked.\n\n"
     "None instead of a list: always run natively."},
    {"fits", WITH_KEYWORDS(hook_fits), METH_FASTCALL,
     "fits(code, replacement, /)\n--\n\nWhether a code can run in place of another: the same parameters, as many free "
     "variables, a plain function."},
    {"always", WITH_KEYWORDS(hook_always), METH_FASTCALL, "always(*values)\n--\n\nA guard that always holds."},
    {"replace_by_call", hook_replace_by_call, METH_O,
     "replace_by_call(on, /)\n--\n\nFor tests: never run a replacement in place. Return what was set before."},
    {NULL, NULL, 0, NULL}};

PyMODINIT_FUNC PyInit__hook(void)
{
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "intarsia_framehook._hook", NULL, -1, methods, NULL, NULL, NULL, NULL};
    PyObject *module = PyModule_Create(&definition);
    if (module && init_entries(module) == 0 && init_run(module) == 0
            && init_callables(module) == 0 && pthread_atfork(NULL, NULL, count_after_fork) == 0) {
        return module;
    }
    Py_XDECREF(module);
    return NULL;
}
