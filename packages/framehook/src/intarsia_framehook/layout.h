/* Frame and code layouts: all that differs between CPython 3.11, 3.12 and 3.13.
 *
 * The rest of the extension is written in the words defined here. Same in all three: `localsplus`, `stacktop`,
 * `f_globals`, the data stack's `datastack_top` and `datastack_limit`, and that arguments come first in `localsplus`
 * and free variables last. 3.14 changes `stacktop` and the type of stack slots.
 */
#ifndef INTARSIA_FRAMEHOOK_LAYOUT_H
#define INTARSIA_FRAMEHOOK_LAYOUT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#  error "the frame layout is known for CPython 3.11, 3.12 and 3.13 only"
#endif
#ifdef Py_GIL_DISABLED
#  error "free-threaded builds are not supported: entries are changed under the GIL"
#endif

/* Defined around this one header: before Python.h it would bring in internals that clash. */
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#include <opcode.h>

typedef struct _PyInterpreterFrame Frame;

#if PY_VERSION_HEX >= 0x030D0000
#  define FRAME_CODE(f) ((PyCodeObject *)(f)->f_executable)
#  define FRAME_SET_CODE(f, co) ((f)->f_executable = (PyObject *)(co))
#  define FRAME_GOTO(f, next) ((f)->instr_ptr = (next))
#else
#  define FRAME_CODE(f) ((f)->f_code)
#  define FRAME_SET_CODE(f, co) ((f)->f_code = (co))
#  define FRAME_GOTO(f, next) ((f)->prev_instr = (next) - 1)
#endif

/* From 3.12 on the evaluator itself clears a finished frame; on 3.11 whoever called it does. */
#if PY_VERSION_HEX >= 0x030C0000
#  define EVALUATOR_CLEARS_FRAME 1
#  define FRAME_FUNC(f) ((PyFunctionObject *)(f)->f_funcobj)
#  define FRAME_SIZE(co) ((co)->co_framesize)
#  define CREDIT_C_RECURSION(ts, n) ((ts)->c_recursion_remaining += (n))
#else
#  define EVALUATOR_CLEARS_FRAME 0
#  define FRAME_FUNC(f) ((f)->f_func)
#  define FRAME_SIZE(co) ((co)->co_nlocalsplus + (co)->co_stacksize + (int)FRAME_SPECIALS_SIZE)
#  define CREDIT_C_RECURSION(ts, n) ((void)(ts), (void)(n))
#  define PyUnstable_Code_GetExtra _PyCode_GetExtra
#  define PyUnstable_Code_SetExtra _PyCode_SetExtra
#  define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

/* Return the exception that is set, as one object, and clear it; NULL when none is. */
static inline PyObject *take_exception(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL) {
        return NULL;
    }
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback) {
        PyException_SetTraceback(value, traceback);
    }
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

/* Set an exception again, with the traceback it has. Consumes it. */
static inline void raise_exception(PyObject *exception)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(exception);
#else
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exception)), exception, PyException_GetTraceback(exception));
#endif
}

#endif
