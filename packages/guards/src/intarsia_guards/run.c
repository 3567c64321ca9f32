/* Running one operation: fetching a value into a register, or checking one. */
#include "native.h"

#if PY_VERSION_HEX < 0x030E0000
/* Every change of a dict gives it a version that no dict had before. (Deprecated since 3.12 without a successor, and
 * gone in 3.14, where look-ups aren't remembered.) */
#  pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#  define VERSION_OF(dict) (((PyDictObject *)(dict))->ma_version_tag)
#else
#  define VERSION_OF(dict) ((uint64_t)0)
#endif

static inline bool is_remembered(const Op *op, PyObject *dict)
{
    return op->dict == dict && op->version == VERSION_OF(dict) && op->version != 0;
}

static inline void remember(Op *op, PyObject *dict, PyObject *found)
{
    op->dict = dict;
    op->version = VERSION_OF(dict);
    op->found = found;
}

static inline int put(PyObject **slot, PyObject *value)        /* consumes value */
{
    PyObject *old = *slot;      /* set when operations run again, after those that failed last */
    *slot = value;
    Py_XDECREF(old);
    return value ? 1 : -1;
}

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

static int fetch_from_dict(Op *op, PyObject *dict, PyObject **slot)
{
    if (is_remembered(op, dict)) {
        return put(slot, Py_NewRef(op->found));
    }
    PyObject *value = PyDict_GetItemWithError(dict, op->object);
    if (value == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_KeyError, op->object);
        }
        return -1;
    }
    if (PyUnicode_CheckExact(op->object)) {     /* other keys may run code of their own */
        remember(op, dict, value);
    }
    return put(slot, Py_NewRef(value));
}

static int fetch_item(Op *op, PyObject *from, PyObject **slot)
{
    if (PyDict_CheckExact(from)) {
        return fetch_from_dict(op, from, slot);
    }
    if (op->number >= 0 && PyList_CheckExact(from) && op->number < PyList_GET_SIZE(from)) {
        return put(slot, Py_NewRef(PyList_GET_ITEM(from, op->number)));
    }
    if (op->number >= 0 && PyTuple_CheckExact(from) && op->number < PyTuple_GET_SIZE(from)) {
        return put(slot, Py_NewRef(PyTuple_GET_ITEM(from, op->number)));
    }
    return put(slot, PyObject_GetItem(from, op->object));
}

/* `more` holds the dict of builtins as its only register. */
static int fetch_global(Op *op, PyObject *globals, PyObject *builtins, PyObject **slot)
{
    if (!PyDict_CheckExact(globals)) {
        int has = PySequence_Contains(globals, op->object);
        return has < 0 ? -1 : put(slot, PyObject_GetItem(has ? globals : builtins, op->object));
    }
    if (is_remembered(op, globals)) {
        return put(slot, Py_NewRef(op->found));
    }
    PyObject *value = PyDict_GetItemWithError(globals, op->object);
    if (value) {
        remember(op, globals, value);
        return put(slot, Py_NewRef(value));
    }
    return PyErr_Occurred() ? -1 : put(slot, PyObject_GetItem(builtins, op->object));
}

/* `in` is the instance dictionary of a module; what it lacks is in one of three dicts in it. */
static int fetch_module_attribute(Op *op, PyObject *space, PyObject **slot)
{
    static const char *names[] = {"_parameters", "_buffers", "_modules"};
    static PyObject *interned[3];
    if (!PyDict_CheckExact(space)) {
        PyErr_SetString(PyExc_TypeError, "the instance dictionary is no plain dict");
        return -1;
    }
    PyObject *value = PyDict_GetItemWithError(space, op->object);
    for (int i = 0; i < 3 && value == NULL && !PyErr_Occurred(); i++) {
        if (interned[i] == NULL && (interned[i] = PyUnicode_InternFromString(names[i])) == NULL) {
            return -1;
        }
        PyObject *inner = PyDict_GetItemWithError(space, interned[i]);
        if (inner && PyDict_Check(inner)) {
            value = PyDict_GetItemWithError(inner, op->object);
        }
    }
    if (value == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_AttributeError, op->object);
        }
        return -1;
    }
    return put(slot, Py_NewRef(value));
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* Borrowed: what a weak reference leads to; NULL when it is gone. */
static inline PyObject *target_of(PyObject *reference)
{
    PyObject *target = PyWeakref_GET_OBJECT(reference);
    return target == Py_None ? NULL : target;
}

static int check_float(PyObject *value, PyObject *expected)
{
    if (!PyFloat_CheckExact(value)) {
        return 0;
    }
    double a = PyFloat_AS_DOUBLE(value), b = PyFloat_AS_DOUBLE(expected);
    return (a == b && __builtin_signbit(a) == __builtin_signbit(b)) || (a != a && b != b);
}

/* Of one exact type, which is a builtin with a comparison that runs no code of the user. */
static int check_equal(PyObject *value, PyObject *expected)
{
    return value == expected || (Py_TYPE(value) == Py_TYPE(expected) ? PyObject_RichCompareBool(value, expected, Py_EQ) : 0);
}

static int check_length(PyObject *value, int32_t number)
{
    PyMappingMethods *mapping = Py_TYPE(value)->tp_as_mapping;
    if (PyDict_Check(value) && mapping && mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length) {
        return PyDict_GET_SIZE(value) == number;
    }
    Py_ssize_t n = PyObject_Size(value);
    return n < 0 ? -1 : n == number;
}

static int check_code(PyObject *value, PyObject *code)
{
    if (code == NULL) {
        return 0;
    }
    if (PyFunction_Check(value)) {
        return PyFunction_GET_CODE(value) == code;
    }
    PyObject *found = PyObject_GetAttrString(value, "__code__");
    Py_XDECREF(found);
    return found ? found == code : -1;
}

static int is_key(PyObject *key, PyObject *name)
{
    return key == name || (PyUnicode_CheckExact(key) && PyUnicode_Compare(key, name) == 0);
}

/* The keys of a plain dict are these strings, in this order; of anything else, what iterating gives. */
static int check_keys(Op *op, PyObject *value)
{
    PyObject *names = op->object;
    Py_ssize_t n = PyTuple_GET_SIZE(names), position = 0, i = 0;
    PyObject *key;
    if (!PyDict_CheckExact(value)) {
        PyObject *keys = PySequence_Tuple(value);
        if (keys == NULL) {
            return -1;
        }
        int same = PyTuple_GET_SIZE(keys) == n;
        for (; same && i < n; i++) {
            same = is_key(PyTuple_GET_ITEM(keys, i), PyTuple_GET_ITEM(names, i));
        }
        Py_DECREF(keys);
        return same;
    }
    if (is_remembered(op, value)) {
        return 1;
    }
    if (PyDict_GET_SIZE(value) != n) {
        return 0;
    }
    while (PyDict_Next(value, &position, &key, NULL)) {
        if (!is_key(key, PyTuple_GET_ITEM(names, i++))) {
            return 0;
        }
    }
    remember(op, value, NULL);
    return 1;
}

static int check_has(PyObject *value, PyObject *name, int32_t wanted)
{
    PyObject *found = PyObject_GetAttr(value, name);
    if (found == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
    }
    Py_XDECREF(found);
    return (found != NULL) == wanted;
}

static int truth(PyObject *result)             /* consumes result */
{
    int holds = result ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    return holds;
}

/* `object` is (key, the check for what isn't a plain dict). */
static int check_lacks(Op *op, PyObject *value)
{
    PyObject *key = PyTuple_GET_ITEM(op->object, 0);
    if (!PyDict_CheckExact(value)) {
        return truth(PyObject_CallOneArg(PyTuple_GET_ITEM(op->object, 1), value));
    }
    if (is_remembered(op, value)) {
        return 1;
    }
    int has = PyDict_Contains(value, key);
    if (has == 0 && PyUnicode_CheckExact(key)) {
        remember(op, value, NULL);
    }
    return has < 0 ? -1 : !has;
}

static int check_by_call(Op *op, PyObject **registers)
{
    const int32_t *which = op->more;
    PyObject *args[which[0] + 1];
    for (int32_t i = 0; i < which[0]; i++) {
        args[i] = registers[which[i + 1]];
    }
    return truth(PyObject_Vectorcall(op->object, args, which[0], NULL));
}

static int check_size_code(Op *op, PyObject **registers)
{
    SizeCode *code = op->more;
    int holds = check_sizes(code, registers);
    if (holds != -2) {
        return holds;
    }
    PyObject *args[code->n_values + 1];
    for (int i = 0; i < code->n_values; i++) {
        args[i] = registers[code->values[i]];
    }
    return truth(PyObject_Vectorcall(op->object, args, code->n_values, NULL));
}

int run_op(Op *op, PyObject **registers)
{
    PyObject *value = op->in >= 0 ? registers[op->in] : NULL, **slot = op->out >= 0 ? &registers[op->out] : NULL;
    PyObject *object = op->object, *target;
    switch ((Operation)op->op) {
    case OP_CONST: return put(slot, Py_NewRef(object));
    case OP_ATTRIBUTE: return put(slot, PyObject_GetAttr(value, object));
    case OP_SPACE: return put(slot, PyObject_GenericGetDict(value, NULL));
    case OP_ITEM: return fetch_item(op, value, slot);
    case OP_DICT_ITEM:
        if (!PyDict_Check(value)) {
            return 0;
        }
        return fetch_from_dict(op, value, slot);
    case OP_GLOBAL: return fetch_global(op, value, registers[op->number], slot);
    case OP_TYPE_OF: return put(slot, Py_NewRef((PyObject *)Py_TYPE(value)));
    case OP_MODULE_ATTRIBUTE: return fetch_module_attribute(op, value, slot);
    case OP_TYPE: return (PyObject *)Py_TYPE(value) == object;
    case OP_TYPE_WEAK: return (PyObject *)Py_TYPE(value) == target_of(object);
    case OP_IS: return value == object;
    case OP_IS_WEAK: return value == target_of(object);
    case OP_IS_NOT: return value != object;
    case OP_IS_NOT_WEAK: return (target = target_of(object)) == NULL || value != target;
    case OP_EQUAL: return check_equal(value, object);
    case OP_FLOAT: return check_float(value, object);
    case OP_LENGTH: return check_length(value, op->number);
    case OP_CODE: return check_code(value, object);
    case OP_CODE_WEAK: return check_code(value, target_of(object));
    case OP_KEYS: return check_keys(op, value);
    case OP_HAS: return check_has(value, object, op->number);
    case OP_LACKS: return check_lacks(op, value);
    case OP_SAME: return (value == registers[op->out]) == op->number;
    case OP_TENSOR: return (PyObject *)Py_TYPE(value) == object && check_tensor(value, op->more);
    case OP_GRAD_MODE: return is_grad_enabled() == op->number;
    case OP_INFERENCE_MODE: return is_inference_mode() == op->number;
    case OP_DEFAULT_DTYPE: return default_dtype() == op->number;
    case OP_DETERMINISTIC: return deterministic() == op->number;
    case OP_AUTOCAST: return autocast_state(op->out) == op->number;
    case OP_AUTOCAST_CACHE: return is_autocast_cache_enabled() == op->number;
    case OP_NO_MODES: return count_modes() == 0;
    case OP_SIZES: return check_size_code(op, registers);
    case OP_CALL: return check_by_call(op, registers);
    case N_OPERATIONS: break;
    }
    PyErr_SetString(PyExc_SystemError, "unknown operation");
    return -1;
}
