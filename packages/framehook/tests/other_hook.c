/* Another user of PEP 523, for the tests: as careless as real ones.
 *
 * enable() puts its function on top and remembers what was there; disable() puts that back, whatever is there now.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct _PyInterpreterFrame;
typedef PyObject *(*evaluate)(PyThreadState *, struct _PyInterpreterFrame *, int);
extern evaluate _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState *);
extern void _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState *, evaluate);
extern PyObject *_PyEval_EvalFrameDefault(PyThreadState *, struct _PyInterpreterFrame *, int);

static evaluate previous;
static long frames;

static PyObject *evaluate_counted(PyThreadState *ts, struct _PyInterpreterFrame *frame, int throwflag)
{
    frames++;
    return (previous ? previous : _PyEval_EvalFrameDefault)(ts, frame, throwflag);
}

static PyObject *enable(PyObject *module, PyObject *unused)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    (void)module;
    (void)unused;
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate_counted) {
        previous = _PyInterpreterState_GetEvalFrameFunc(interpreter);
        _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate_counted);
    }
    Py_RETURN_NONE;
}

static PyObject *disable(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (previous) {
        _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), previous);
        previous = NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *count(PyObject *module, PyObject *unused)
{
    long seen = frames;
    (void)module;
    (void)unused;
    frames = 0;
    return PyLong_FromLong(seen);
}

static PyMethodDef methods[] = {
    {"enable", enable, METH_NOARGS, NULL},
    {"disable", disable, METH_NOARGS, NULL},
    {"count", count, METH_NOARGS, "Frames seen since the last call."},
    {NULL, NULL, 0, NULL}};

PyMODINIT_FUNC PyInit_other_hook(void)
{
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "other_hook", NULL, -1, methods,
                                            NULL, NULL, NULL, NULL};
    return PyModule_Create(&definition);
}
