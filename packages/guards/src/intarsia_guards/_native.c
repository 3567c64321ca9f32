/* The native guard check: a callable over the values of a frame that runs a flat list of operations.
 *
 * native.py translates guards into operations on registers; run.c runs one of them; tensors.c asks torch, without its
 * headers. Here: the callable `Check`, which owns the operations. It stops at the first that doesn't hold. An operation
 * that raises an `Exception` doesn't hold; any other exception (an interrupt) goes to the caller.
 *
 * What failed last is likely to fail again: it is tried first, with the operations that it needs.
 */
#include "native.h"
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    int n_values, n_registers, n_ops;
    Op *ops;
    int32_t *hot;               /* what failed last, after what it needs; NULL: nothing did lately */
    int n_hot;
    int calm;                   /* calls since then in which it held */
    PyObject *weakrefs;
} Check;

#define STAYS_HOT 8

/* 1, 0, or -1 with an error set; an error that is an Exception is a guard that doesn't hold. */
static int settle(int holds)
{
    if (holds < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        return 0;
    }
    return holds;
}

static void clear_registers(Registers *r, int n_values)
{
    for (int i = n_values; i < r->secured; i++) {
        Py_XDECREF(r->values[i]);
    }
}

static int run(Check *self, const int32_t *which, int n, PyObject **values, int *stopped)
{
    Registers r = {values, self->n_values, self->n_values};
    int holds = settle(run_ops(self->ops, which, n, &r, stopped));
    if (r.secured > self->n_values) {
        clear_registers(&r, self->n_values);
    }
    return holds;
}

/* ---- what failed last -------------------------------------------------------------------------------------------- */

static inline void need(bool *needed, const Op *op)
{
    const int32_t *more = op->op == OP_CALL ? op->more : NULL;
    if (op->in >= 0) {
        needed[op->in] = true;
    }
    if (op->op == OP_GLOBAL) {
        needed[op->number] = true;
    }
    if (op->op == OP_SAME) {
        needed[op->out] = true;
    }
    for (int32_t i = 0; more && i < more[0]; i++) {
        needed[more[i + 1]] = true;
    }
    for (int i = 0; op->op == OP_SIZES && i < ((SizeCode *)op->more)->n_values; i++) {
        needed[((SizeCode *)op->more)->values[i]] = true;
    }
}

/* Note what an operation needs: the fetches behind its registers, and the checks of what they fetch from, which come
 * before them. Without memory for it nothing is tried first. */
static void note_hot(Check *self, int last)
{
    bool *needed = PyMem_Calloc(2 * self->n_registers, sizeof *needed), *bases = needed + self->n_registers;
    int32_t *hot = PyMem_Malloc((last + 1) * sizeof *hot);
    PyMem_Free(self->hot);
    self->hot = NULL;
    self->calm = 0;
    if (needed && hot) {
        int n = last + 1, first = last;
        hot[last] = last;
        need(needed, &self->ops[last]);
        for (int i = last - 1; i >= 0; i--) {
            const Op *op = &self->ops[i];
            if (op->fetches ? needed[op->out] : op->in >= 0 && bases[op->in] && op->op != OP_SAME && op->op != OP_CALL) {
                hot[--first] = i;
                need(needed, op);
                if (op->fetches && op->in >= 0) {
                    bases[op->in] = true;
                }
            }
        }
        self->n_hot = n - first;
        memmove(hot, hot + first, self->n_hot * sizeof *hot);
        self->hot = hot;
        hot = NULL;
    }
    PyMem_Free(hot);
    PyMem_Free(needed);
}

static void keep_hot(Check *self, int32_t *hot, int n, int calm)
{
    if (self->hot || calm >= STAYS_HOT) {
        PyMem_Free(hot);
        return;
    }
    self->hot = hot;
    self->n_hot = n;
    self->calm = calm;
}

static int run_all(Check *self, PyObject **values)
{
    int stopped = -1, n = self->n_hot;
    int32_t *hot = self->hot;
    self->hot = NULL;           /* ours meanwhile: the guards may run code that calls this check */
    if (hot) {
        int holds = run(self, hot, n, values, &stopped);
        if (holds <= 0) {
            keep_hot(self, hot, n, 0);
            return holds;
        }
        memset(values + self->n_values, 0, (self->n_registers - self->n_values) * sizeof *values);
    }
    int holds = run(self, NULL, self->n_ops, values, &stopped);
    if (holds == 0) {
        PyMem_Free(hot);
        note_hot(self, stopped);
    }
    else if (hot) {
        keep_hot(self, hot, n, self->calm + 1);
    }
    return holds;
}

/* ---- calling ----------------------------------------------------------------------------------------------------- */

static PyObject *check_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Check *self = (Check *)object;
    if (PyVectorcall_NARGS(nargsf) != self->n_values || (kwnames && PyTuple_GET_SIZE(kwnames))) {
        return PyErr_Format(PyExc_TypeError, "this guard takes %d positional arguments", self->n_values);
    }
    PyObject *few[64], **registers = few;
    if (self->n_registers > 64 && (registers = PyMem_Malloc(self->n_registers * sizeof *registers)) == NULL) {
        return PyErr_NoMemory();
    }
    for (int i = 0; i < self->n_registers; i++) {
        registers[i] = i < self->n_values ? args[i] : NULL;
    }
    Py_INCREF(self);            /* an operation may run code that drops the entry */
    int holds = run_all(self, registers);
    if (registers != few) {
        PyMem_Free(registers);
    }
    Py_DECREF(self);
    return holds < 0 ? NULL : PyBool_FromLong(holds);
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

static void take_ints(PyObject *tuple, int32_t *to)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        to[i] = (int32_t)PyLong_AsLong(PyTuple_GET_ITEM(tuple, i));
    }
}

/* Numbers of a tuple, its length first. */
static int32_t *take_numbers(PyObject *tuple)
{
    Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    int32_t *numbers = PyMem_Malloc((n + 1) * sizeof *numbers);
    if (numbers == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    numbers[0] = (int32_t)n;
    take_ints(tuple, numbers + 1);
    return numbers;
}

static int64_t number_or(PyObject *value, int64_t otherwise)
{
    return value == Py_None ? otherwise : PyLong_AsLongLong(value);
}

static void *take_tensor(PyObject *more)
{
    int dtype, device_type, device_index, requires_grad;
    PyObject *keys, *sizes, *strides;
    if (!PyArg_ParseTuple(more, "iiipOO!O!", &dtype, &device_type, &device_index, &requires_grad, &keys,
                          &PyTuple_Type, &sizes, &PyTuple_Type, &strides)) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(sizes);
    if (n > MAX_DIMS || PyTuple_GET_SIZE(strides) != n) {
        PyErr_SetString(PyExc_ValueError, "as many strides as sizes, and at most 64");
        return NULL;
    }
    TensorWant *want = PyMem_Malloc(sizeof *want + 2 * n * sizeof(int64_t));
    if (want == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *want = (TensorWant){.dtype = dtype, .device_type = device_type, .device_index = device_index, .n_dims = (int32_t)n,
                         .requires_grad = requires_grad, .has_keys = keys != Py_None,
                         .keys = keys != Py_None ? PyLong_AsUnsignedLongLong(keys) : 0};
    for (Py_ssize_t i = 0; i < n; i++) {
        want->dims[i] = number_or(PyTuple_GET_ITEM(sizes, i), ANY);
        want->dims[n + i] = number_or(PyTuple_GET_ITEM(strides, i), ANY);
    }
    return want;
}

static void *take_size_code(PyObject *more)
{
    PyObject *values, *reads, *code;
    if (!PyArg_ParseTuple(more, "O!O!O!", &PyTuple_Type, &values, &PyTuple_Type, &reads, &PyTuple_Type, &code)) {
        return NULL;
    }
    Py_ssize_t k = PyTuple_GET_SIZE(values), n = PyTuple_GET_SIZE(reads), m = PyTuple_GET_SIZE(code);
    SizeCode *made = PyMem_Malloc(sizeof *made + m * sizeof(int64_t) + (k + n) * sizeof(int32_t));
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    made->n_values = (int)k;
    made->n_symbols = (int)n / 2;
    made->n_code = (int)m / 2;
    made->code = (int64_t *)(made + 1);
    made->values = (int32_t *)(made->code + m);
    made->reads = made->values + k;
    take_ints(values, made->values);
    take_ints(reads, made->reads);
    for (Py_ssize_t i = 0; i < m; i++) {
        made->code[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(code, i));
    }
    return made;
}

static int take_op(Op *op, PyObject *row)
{
    PyObject *object, *more;
    if (!PyArg_ParseTuple(row, "biiiOO", &op->op, &op->out, &op->in, &op->number, &object, &more)) {
        return -1;
    }
    op->fetches = op->op <= LAST_FETCH;
    op->simple_key = PyUnicode_CheckExact(object);
    op->object = Py_NewRef(object);
    if (PyUnicode_CheckExact(object)) {
        PyUnicode_InternInPlace(&op->object);
    }
    if (more != Py_None) {
        op->more = op->op == OP_TENSOR ? take_tensor(more) : op->op == OP_SIZES ? take_size_code(more)
            : take_numbers(more);
        if (op->more == NULL) {
            return -1;
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *check_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    int n_values, n_registers;
    PyObject *rows;
    static char *names[] = {"n_values", "n_registers", "operations", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiO!:Check", names, &n_values, &n_registers, &PyList_Type, &rows)) {
        return NULL;
    }
    Check *self = (Check *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = check_call;
    self->n_values = n_values;
    self->n_registers = n_registers;
    Py_ssize_t n = PyList_GET_SIZE(rows);
    if ((self->ops = PyMem_Calloc(n + 1, sizeof *self->ops)) == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        self->n_ops = (int)i + 1;
        if (take_op(&self->ops[i], PyList_GET_ITEM(rows, i)) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static int check_traverse(Check *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < self->n_ops; i++) {
        Py_VISIT(self->ops[i].object);
    }
    return 0;
}

static int check_clear(Check *self)
{
    int n = self->n_ops;
    self->n_ops = 0;            /* a call from a finalizer finds nothing to check; its entry is gone anyway */
    PyMem_Free(self->hot);
    self->hot = NULL;
    for (int i = 0; i < n; i++) {
        Py_CLEAR(self->ops[i].object);
        PyMem_Free(self->ops[i].more);
    }
    return 0;
}

static void check_dealloc(Check *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    if (self->ops) {
        check_clear(self);
        PyMem_Free(self->ops);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef check_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Check, weakrefs), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Check, vectorcall), READONLY, NULL},
    {"n_operations", T_INT, offsetof(Check, n_ops), READONLY, "how many operations a call runs when all hold"},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot check_slots[] = {
    {Py_tp_doc, "Check(n_values, n_registers, operations)\n--\n\n"
                "Calls with `n_values` values tell whether all operations hold. Made by intarsia_guards.native."},
    {Py_tp_new, check_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_dealloc, check_dealloc},
    {Py_tp_traverse, check_traverse},
    {Py_tp_clear, check_clear},
    {Py_tp_members, check_members},
    {0, NULL}};
static PyType_Spec check_spec = {
    .name = "intarsia_guards._native.Check",
    .basicsize = sizeof(Check),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = check_slots,
};

/* ---- the module -------------------------------------------------------------------------------------------------- */

static PyObject *native_bind(PyObject *module, PyObject *addresses)
{
    (void)module;
    if (!PyDict_Check(addresses)) {
        return PyErr_Format(PyExc_TypeError, "a dict of addresses is needed");
    }
    return bind_torch(addresses) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *native_look_up(PyObject *module, PyObject *args)
{
    PyObject *attribute, *item;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO:look_up", &attribute, &item)) {
        return NULL;
    }
    keep_lookups(attribute, item);
    Py_RETURN_NONE;
}

static PyObject *native_tensor_facts(PyObject *module, PyObject *tensor)
{
    int32_t facts[4];
    (void)module;
    if (!torch_is_bound() || tensor_facts(tensor, facts) < 0) {
        return PyErr_Format(PyExc_RuntimeError, "torch isn't bound, or has no answer for this tensor");
    }
    return Py_BuildValue("(iiiN)", facts[0], facts[1], facts[2], PyBool_FromLong(facts[3]));
}

static PyObject *native_state(PyObject *module, PyObject *device_type)
{
    int device = (int)PyLong_AsLong(device_type);
    (void)module;
    if (PyErr_Occurred() || !torch_is_bound()) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_RuntimeError, "torch isn't bound");
    }
    return Py_BuildValue("(NNiiiNL)", PyBool_FromLong(is_grad_enabled()), PyBool_FromLong(is_inference_mode()),
                         default_dtype(), deterministic(), autocast_state(device),
                         PyBool_FromLong(is_autocast_cache_enabled()), (long long)count_modes());
}

static PyMethodDef methods[] = {
    {"bind", native_bind, METH_O, "bind(addresses, /)\n--\n\nTell where torch's entries are; see abi.py for the names."},
    {"look_up", native_look_up, METH_VARARGS,
     "look_up(attribute, item, /)\n--\n\nTell which functions look where it isn't plain that no code of the user runs."},
    {"tensor_facts", native_tensor_facts, METH_O,
     "tensor_facts(tensor, /)\n--\n\nReturn torch's numbers of the tensor's type, device type and device index, and requires_grad."},
    {"state", native_state, METH_O,
     "state(device_type, /)\n--\n\nReturn (grad mode, inference mode, default dtype, deterministic, autocast state, "
     "autocast cache, number of torch function and dispatch modes and of observers), as the operations of these names see them."},
    {NULL, NULL, 0, NULL}};

static int add_numbers(PyObject *module, const char *name, const char *const *names, int n)
{
    PyObject *numbers = PyDict_New();
    for (int i = 0; numbers && i < n; i++) {
        PyObject *number = PyLong_FromLong(i);
        if (number == NULL || PyDict_SetItemString(numbers, names[i], number) < 0) {
            Py_CLEAR(numbers);
        }
        Py_XDECREF(number);
    }
    int rc = numbers ? PyModule_AddObjectRef(module, name, numbers) : -1;
    Py_XDECREF(numbers);
    return rc;
}

PyMODINIT_FUNC PyInit__native(void)
{
#define X(name) #name,
    static const char *const operations[] = {OPERATIONS(X)}, *const size_ops[] = {SIZE_OPS(X)};
#undef X
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "intarsia_guards._native", NULL, -1, methods, NULL, NULL, NULL, NULL};
    PyObject *module = PyModule_Create(&definition), *type = PyType_FromSpec(&check_spec);
    if (module && type && PyModule_AddObjectRef(module, "Check", type) == 0
            && add_numbers(module, "OPERATIONS", operations, N_OPERATIONS) == 0
            && add_numbers(module, "SIZE_OPERATIONS", size_ops, N_SIZE_OPS) == 0
            && PyModule_AddIntConstant(module, "READ_INT", READ_INT) == 0) {
        Py_DECREF(type);
        return module;
    }
    Py_XDECREF(module);
    Py_XDECREF(type);
    return NULL;
}
