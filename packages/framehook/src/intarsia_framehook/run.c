/* Running a replacement in a pristine frame, giving a frame up, and going back to the original.
 *
 * When the hook is called the frame is pristine: arguments are the only values set, no instruction has run, it is on
 * top of the thread's data stack, and it isn't linked into the chain of frames, so nobody can see it. A replacement
 * with the same parameters and free variables can therefore run in that very frame: swap the code, resize the frame
 * at the top of the data stack, evaluate. Tracebacks, frame depth, super(), settrace, and frames that outlive their
 * call are then as for a plain call, and no argument is copied.
 */
#include "hook.h"

bool replace_by_call;
PyObject *bailout_type;

static PyObject *run_in_place(PyThreadState *ts, Frame *f, PyCodeObject *code);
static PyObject *call_with(PyCodeObject *code, PyFunctionObject *function, PyObject *const *values);
static PyObject *run_original(HookThread *me, PyCodeObject *original, PyCodeObject *code, PyFunctionObject *function);

PyObject *run_replacement(HookThread *me, PyThreadState *ts, Frame *f, PyCodeObject *code)
{
    PyCodeObject *original = (PyCodeObject *)Py_NewRef(FRAME_CODE(f));
    PyFunctionObject *function = (PyFunctionObject *)Py_NewRef(FRAME_FUNC(f));
    Py_ssize_t growth = FRAME_SIZE(code) - FRAME_SIZE(original);
    bool on_top = (PyObject **)f + FRAME_SIZE(original) == ts->datastack_top;
    bool in_place = on_top && growth < ts->datastack_limit - ts->datastack_top && !replace_by_call;

    me->replaced++;
    /* A frame can't grow at the end of a 16 kB chunk of the data stack (growth/2048 of all depths): call instead. */
    PyObject *result = in_place ? run_in_place(ts, f, code) : call_with(code, function, f->localsplus);
    me->replaced--;
    if (result == NULL && PyErr_ExceptionMatches(bailout_type)) {
        result = run_original(me, original, code, function);
    }
    if (!in_place) {
        result = give_up_frame(ts, f, result);
    }
    Py_DECREF(code);
    Py_DECREF(original);
    Py_DECREF(function);
    return result;
}

/* The evaluator clears the frame, or on 3.11 whoever called the hook does. A hook beneath ours doesn't see it: that may
 * be another compiler, and this frame is taken. */
static PyObject *run_in_place(PyThreadState *ts, Frame *f, PyCodeObject *code)
{
    PyCodeObject *original = FRAME_CODE(f);
    ts->datastack_top += FRAME_SIZE(code) - FRAME_SIZE(original);
    for (int i = original->co_nlocalsplus; i < code->co_nlocalsplus; i++) {
        f->localsplus[i] = NULL;
    }
    f->stacktop = code->co_nlocalsplus;
    Py_INCREF(code);
    FRAME_SET_CODE(f, code);
    FRAME_GOTO(f, _PyCode_CODE(code));
    Py_DECREF(original);
    return _PyEval_EvalFrameDefault(ts, f, 0);
}

int count_arguments(PyCodeObject *co)
{
    return co->co_argcount + co->co_kwonlyargcount + !!(co->co_flags & CO_VARARGS)
        + !!(co->co_flags & CO_VARKEYWORDS);
}

/* Call a function made of `code`, with the globals and closure of `function`. `values` holds one value for each
 * parameter, in the order of the code's variables. */
static PyObject *call_with(PyCodeObject *code, PyFunctionObject *function, PyObject *const *values)
{
    PyObject *result = NULL;
    PyObject *made = PyFunction_NewWithQualName((PyObject *)code, function->func_globals, function->func_qualname);
    PyObject *args = PyTuple_New(code->co_argcount), *kwargs = PyDict_New();
    if (!made || !args || !kwargs
            || (function->func_closure && PyFunction_SetClosure(made, function->func_closure) < 0)) {
        goto done;
    }
    int i = 0;
    for (; i < code->co_argcount; i++) {
        PyTuple_SET_ITEM(args, i, Py_NewRef(values[i]));
    }
    for (; i < code->co_argcount + code->co_kwonlyargcount; i++) {
        if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(code->co_localsplusnames, i), values[i]) < 0) {
            goto done;
        }
    }
    if (code->co_flags & CO_VARARGS) {
        Py_SETREF(args, PySequence_Concat(args, values[i++]));
    }
    if (args && (!(code->co_flags & CO_VARKEYWORDS) || PyDict_Update(kwargs, values[i]) == 0)) {
        result = PyObject_Call(made, args, kwargs);
    }
done:
    Py_XDECREF(made);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return result;
}

/* End a frame that hasn't run, with `result`, or with the error that is set when it is NULL.
 *
 * From 3.12 on the evaluator clears a frame when it returns, so have it run one RETURN_VALUE in it. (The stack slot
 * that needs exists even when co_stacksize is 0: a chunk of the data stack is never full.) An error is put aside
 * meanwhile: with the throw flag instead, 3.12 and 3.13 report bogus events to a trace function. */
PyObject *give_up_frame(PyThreadState *ts, Frame *f, PyObject *result)
{
#if EVALUATOR_CLEARS_FRAME
    static _Py_CODEUNIT stub[2] = {{.op = {NOP, 0}}, {.op = {RETURN_VALUE, 0}}};
    PyObject *error = result ? NULL : PyErr_GetRaisedException();
    _PyFrame_StackPush(f, result ? result : Py_NewRef(Py_None));
    FRAME_GOTO(f, &stub[1]);
    result = _PyEval_EvalFrameDefault(ts, f, 0);
    if (error) {
        Py_XDECREF(result);
        PyErr_SetRaisedException(error);
        return NULL;
    }
#else
    (void)ts;
    (void)f;
#endif
    return result;
}

/* A replacement gave itself up by `Bailout(code, arguments)`, before any of its effects became visible: run what it
 * stood in for, natively, with the arguments that it was called with. A third item of the args is called when that
 * returned: the error was then not the program's own. */
static PyObject *run_original(HookThread *me, PyCodeObject *original, PyCodeObject *code, PyFunctionObject *function)
{
    PyObject *bailout = take_exception();
    PyObject *args = PyObject_GetAttrString(bailout, "args"), *result = NULL;
    if (args == NULL) {
        Py_DECREF(bailout);
        return NULL;
    }
    Py_ssize_t size = PyTuple_CheckExact(args) ? PyTuple_GET_SIZE(args) : 0;
    bool ours = (size == 2 || size == 3) && PyTuple_GET_ITEM(args, 0) == (PyObject *)code
        && PyTuple_CheckExact(PyTuple_GET_ITEM(args, 1))
        && PyTuple_GET_SIZE(PyTuple_GET_ITEM(args, 1)) == count_arguments(original);
    if (!ours) {
        Py_DECREF(args);
        raise_exception(bailout);       /* of another frame, or raised by hand */
        return NULL;
    }
    PyObject *values = Py_NewRef(PyTuple_GET_ITEM(args, 1));
    PyObject *returned = size == 3 ? Py_NewRef(PyTuple_GET_ITEM(args, 2)) : NULL;
    Py_DECREF(args);
    Py_DECREF(bailout);                 /* and with it the traceback that keeps the failed frame */
    me->paused++;
    result = call_with(original, function, &PyTuple_GET_ITEM(values, 0));
    if (result && returned) {
        PyObject *answer = PyObject_CallNoArgs(returned);
        if (answer == NULL) {
            Py_CLEAR(result);
        }
        Py_XDECREF(answer);
    }
    me->paused--;
    Py_XDECREF(returned);
    Py_DECREF(values);
    return result;
}

int init_run(PyObject *module)
{
    bailout_type = PyErr_NewExceptionWithDoc(
        "intarsia_framehook.Bailout",
        "Raised through a replacement to have the original run instead; args are (replacement, its arguments),\n"
        "and what to call when the original has returned, if anything.\n\n"
        "Not an `Exception`, so that no handler of the replaced frame catches it.",
        PyExc_BaseException, NULL);
    return bailout_type ? PyModule_AddObjectRef(module, "Bailout", bailout_type) : -1;
}
