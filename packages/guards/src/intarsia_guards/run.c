/* Running operations: fetching values into registers, and checking them.
 *
 * Registers are borrowed as long as nothing runs that could drop what they hold: what comes out of a dict or an object
 * stays there meanwhile. Before an operation that may run code of the user, all registers filled so far are secured
 * (they own what they hold). Operations fill registers in rising order, so one mark tells which ones are owned.
 */
#include "native.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"       /* what has no successor in all versions */

#if PY_VERSION_HEX < 0x030D0000
/* Every change of a dict gives it a version that no dict had before. Not so in 3.13, where storing an attribute into
 * the values inside an object leaves the version of its dictionary alone; there look-ups aren't remembered. */
#  define VERSION_OF(dict) (((PyDictObject *)(dict))->ma_version_tag)
#else
#  define VERSION_OF(dict) ((uint64_t)0)
#endif

/* `dict` is one: at its address there may have been another object before. */
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

static inline int put(PyObject **slot, PyObject *borrowed)
{
    *slot = borrowed;
    return borrowed ? 1 : -1;
}

/* Own every register that is filled, up to `out`. */
static void secure(Registers *r, int32_t out)
{
    for (; r->secured < out; r->secured++) {
        Py_XINCREF(r->values[r->secured]);
    }
}

/* What a register is given by code that may do anything: it owns it, and so do those before it. Consumes `value`. */
static int put_owned(Registers *r, int32_t out, PyObject *value)
{
    secure(r, out);             /* already done, but for registers that no operation filled */
    r->values[out] = value;
    r->secured = out + 1;
    return value ? 1 : -1;
}

/* ---- looking without running code of the user ------------------------------------------------------------------- */

static PyObject *slow_attribute, *slow_item;    /* of lookup.py; they also say what the functions here mean */

void keep_lookups(PyObject *attribute, PyObject *item)
{
    Py_XSETREF(slow_attribute, Py_NewRef(attribute));
    Py_XSETREF(slow_item, Py_NewRef(item));
}

/* Borrowed, or NULL without an error: what a class or a base defines. */
static inline PyObject *in_class(PyTypeObject *type, const char *name, PyObject **interned)
{
    if (*interned == NULL && (*interned = PyUnicode_InternFromString(name)) == NULL) {
        PyErr_Clear();
        return NULL;
    }
    return _PyType_Lookup(type, *interned);
}

/* Whether reading what a class defines runs no code of the user; `raw` may be NULL. */
static inline bool is_read_by_us(PyObject *raw)
{
    PyTypeObject *type = raw ? Py_TYPE(raw) : NULL;
    return type == NULL || type->tp_descr_get == NULL || type == &PyFunction_Type || type == &PyMethodDescr_Type
        || type == &PyWrapperDescr_Type || type == &PyGetSetDescr_Type || type == &PyMemberDescr_Type
        || type == &PyStaticMethod_Type;
}

/* Whether an object finds attributes as `object` says. */
static inline bool is_usual(PyTypeObject *type)
{
    static PyObject *interned;
    if (type->tp_getattro == PyObject_GenericGetAttr || type == &PyModule_Type) {
        return true;
    }
    PyObject *getter = in_class(type, "__getattribute__", &interned);
    return getter && getter == in_class(&PyBaseObject_Type, "__getattribute__", &interned);
}

static PyObject *attribute_of(PyObject *from, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(from);
    if (PyType_Check(from) && type->tp_getattro == PyType_Type.tp_getattro) {
        if (is_read_by_us(_PyType_Lookup(type, name)) && is_read_by_us(_PyType_Lookup((PyTypeObject *)from, name))) {
            return PyObject_GetAttr(from, name);
        }
    }
    else if (is_usual(type) && is_read_by_us(_PyType_Lookup(type, name))) {
        PyObject *value = PyObject_GenericGetAttr(from, name);
        if (value || !PyErr_ExceptionMatches(PyExc_AttributeError) || type->tp_getattro == PyObject_GenericGetAttr) {
            return value;
        }
        PyErr_Clear();          /* there may be a `__getattr__` */
    }
    return PyObject_CallFunctionObjArgs(slow_attribute, from, name, NULL);
}

/* Whether a class has a special method that is written in C. */
static inline bool is_in_c(PyObject *method)
{
    return method && (Py_TYPE(method) == &PyWrapperDescr_Type || Py_TYPE(method) == &PyMethodDescr_Type);
}

typedef struct {
    PyObject_HEAD
    PyObject *shown;            /* as CPython has it, in all versions */
} Proxy;

static PyObject *entry_of(PyObject *dict, PyObject *key)
{
    PyObject *value = Py_XNewRef(PyDict_GetItemWithError(dict, key));
    if (value == NULL && !PyErr_Occurred()) {
        PyErr_SetObject(PyExc_KeyError, key);
    }
    return value;
}

static PyObject *item_of(PyObject *from, PyObject *key)
{
    static PyObject *interned;
    if (Py_TYPE(from) == &PyDictProxy_Type && PyDict_CheckExact(((Proxy *)from)->shown)) {
        return entry_of(((Proxy *)from)->shown, key);
    }
    if (Py_TYPE(from) != &PyDictProxy_Type && is_in_c(in_class(Py_TYPE(from), "__getitem__", &interned))) {
        return PyDict_Check(from) ? entry_of(from, key) : PyObject_GetItem(from, key);
    }
    return PyObject_CallFunctionObjArgs(slow_item, from, key, NULL);
}

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

/* The first look-up, and that after any change. It compares keys, and the dict may have some with code of the user. */
static Py_NO_INLINE int look_up(Op *op, Registers *r, PyObject *dict)
{
    secure(r, op->out);
    PyObject *value = PyDict_GetItemWithError(dict, op->object);
    if (value == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_KeyError, op->object);
        }
        return -1;
    }
    remember(op, dict, value);
    return put(&r->values[op->out], value);
}

static inline int fetch_from_dict(Op *op, Registers *r, PyObject *dict)
{
    return is_remembered(op, dict) ? put(&r->values[op->out], op->found) : look_up(op, r, dict);
}

static Py_NO_INLINE int fetch_slowly(Op *op, Registers *r, PyObject *from, bool past_subclass)
{
    secure(r, op->out);
    return put_owned(r, op->out, past_subclass ? entry_of(from, op->object) : item_of(from, op->object));
}

static inline int fetch_item(Op *op, Registers *r, PyObject *from)
{
    PyObject **slot = &r->values[op->out];
    if (op->simple_key && PyDict_CheckExact(from)) {
        return fetch_from_dict(op, r, from);
    }
    if (op->number >= 0 && PyList_CheckExact(from) && op->number < PyList_GET_SIZE(from)) {
        return put(slot, PyList_GET_ITEM(from, op->number));
    }
    if (op->number >= 0 && PyTuple_CheckExact(from) && op->number < PyTuple_GET_SIZE(from)) {
        return put(slot, PyTuple_GET_ITEM(from, op->number));
    }
    return fetch_slowly(op, r, from, false);
}

static int fetch_dict_item(Op *op, Registers *r, PyObject *from)
{
    if (!PyDict_Check(from)) {
        return 0;
    }
    return op->simple_key ? fetch_from_dict(op, r, from) : fetch_slowly(op, r, from, true);
}

static int fetch_attribute(Op *op, Registers *r, PyObject *from)
{
    secure(r, op->out);
    return put_owned(r, op->out, attribute_of(from, op->object));
}

/* As `object` finds it, past the class's own look-up. */
static int fetch_plain_attribute(Op *op, Registers *r, PyObject *from)
{
    secure(r, op->out);
    if (!is_read_by_us(_PyType_Lookup(Py_TYPE(from), op->object))) {
        return 0;
    }
    return put_owned(r, op->out, PyObject_GenericGetAttr(from, op->object));
}

/* An object keeps its dictionary, once it has one. */
static inline int fetch_space(Op *op, Registers *r, PyObject *from)
{
    PyObject *space = PyObject_GenericGetDict(from, NULL);
    Py_XDECREF(space);
    return put(&r->values[op->out], space);
}

/* `number` is the register of the builtins. */
static int fetch_global(Op *op, Registers *r, PyObject *globals)
{
    PyObject **slot = &r->values[op->out], *builtins = r->values[op->number];
    if (PyDict_CheckExact(globals) && is_remembered(op, globals)) {
        return put(slot, op->found);
    }
    secure(r, op->out);
    int has = PySequence_Contains(globals, op->object);
    PyObject *value = has < 0 ? NULL : item_of(has ? globals : builtins, op->object);
    if (value && has && PyDict_CheckExact(globals)) {
        remember(op, globals, value);
    }
    return put_owned(r, op->out, value);
}

/* `in` is the instance dictionary of a module; what it lacks is in one of three dicts in it. */
static int fetch_module_attribute(Op *op, Registers *r, PyObject *space)
{
    static const char *names[] = {"_parameters", "_buffers", "_modules"};
    static PyObject *interned[3];
    if (!PyDict_CheckExact(space)) {
        PyErr_SetString(PyExc_TypeError, "the instance dictionary is no plain dict");
        return -1;
    }
    secure(r, op->out);
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
    return put(&r->values[op->out], value);
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* Borrowed: what a weak reference leads to; NULL when it is gone. */
static inline PyObject *target_of(PyObject *reference)
{
    PyObject *target = PyWeakref_GET_OBJECT(reference);
    return target == Py_None ? NULL : target;
}

/* What a weak reference refers to: owned, as nothing that is guarded need hold it. */
static int fetch_referent(const Op *op, Registers *r, PyObject *value)
{
    if (!PyWeakref_CheckRefExact(value)) {
        return 0;
    }
    PyObject *target = target_of(value);
    if (target == NULL) {
        return 0;
    }
    Py_INCREF(target);
    return put_owned(r, op->out, target);
}

/* What `object` makes of it. */
static int fetch_called(const Op *op, Registers *r, PyObject *value)
{
    secure(r, op->out);
    return put_owned(r, op->out, PyObject_CallOneArg(op->object, value));
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

/* A dict, or of a subclass (such as OrderedDict) that leaves its length alone. */
static inline bool has_dict_length(PyObject *value)
{
    return PyDict_Check(value) && Py_TYPE(value)->tp_as_mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length;
}

static int check_length(PyObject *value, int32_t number)
{
    static PyObject *interned;
    if (!is_in_c(in_class(Py_TYPE(value), "__len__", &interned))) {
        return 0;
    }
    Py_ssize_t n = PyObject_Size(value);
    return n < 0 ? -1 : n == number;
}

/* The length of an item of a dict; what isn't a plain dict is asked for the item first. */
static int check_item_length(Op *op, Registers *r, PyObject *from)
{
    PyObject *item;
    secure(r, r->filled);
    if (PyDict_CheckExact(from)) {
        item = entry_of(from, op->object);
        if (item) {
            remember(op, from, item);
        }
    }
    else {
        item = item_of(from, op->object);
    }
    int holds = item ? check_length(item, op->number) : -1;
    Py_XDECREF(item);
    return holds;
}

static int check_code(PyObject *value, PyObject *code)
{
    if (code == NULL) {
        return 0;
    }
    while (PyMethod_Check(value)) {
        value = PyMethod_GET_FUNCTION(value);
    }
    return PyFunction_Check(value) && PyFunction_GET_CODE(value) == code;
}

static int is_key(PyObject *key, PyObject *name)
{
    return key == name || (PyUnicode_CheckExact(key) && PyUnicode_Compare(key, name) == 0);
}

static int truth(PyObject *result);

/* The keys of a plain dict are these strings, in this order. `object` is (names, the check for anything else). */
static int check_keys(Op *op, PyObject *value)
{
    PyObject *names = PyTuple_GET_ITEM(op->object, 0);
    Py_ssize_t n = PyTuple_GET_SIZE(names), position = 0, i = 0;
    PyObject *key;
    if (!PyDict_CheckExact(value)) {
        return truth(PyObject_CallOneArg(PyTuple_GET_ITEM(op->object, 1), value));
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
    PyObject *found = attribute_of(value, name);
    if (found == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
    }
    Py_XDECREF(found);
    return (found != NULL) == wanted;
}

/* Whether a class is, or isn't, one of a known class by its bases: no code of the user runs. */
static int check_subclass(PyObject *value, PyObject *cls, int wanted)
{
    return cls != NULL && PyType_Check(value)
        && PyType_IsSubtype((PyTypeObject *)value, (PyTypeObject *)cls) == wanted;
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

/* The number that says which state a class is in: another one after any change of it or of a base; 0: none. */
static inline uint64_t state_of(PyTypeObject *cls)
{
#if PY_VERSION_HEX < 0x030C0000
    return PyType_HasFeature(cls, Py_TPFLAGS_VALID_VERSION_TAG) ? cls->tp_version_tag : 0;
#else
    return cls->tp_version_tag;
#endif
}

/* A class, held as it is or weakly; NULL when it is gone. */
static inline PyTypeObject *class_of(const Op *op)
{
    PyObject *held = PyTuple_GET_ITEM(op->object, 0);
    return (PyTypeObject *)(PyType_Check(held) ? held : target_of(held));
}

static inline bool is_same_state(const Op *op)
{
    PyTypeObject *cls = class_of(op);
    return cls == NULL || (op->version != 0 && state_of(cls) == op->version);
}

/* Looking a name up gives the class a number, where it may have one. */
static int check_class(Op *op, Registers *r)
{
    static PyObject *interned;
    secure(r, r->filled);
    PyTypeObject *cls = class_of(op);
    if (cls == NULL) {
        return 1;
    }
    in_class(cls, "__class__", &interned);
    uint64_t state = state_of(cls);
    int holds = truth(PyObject_CallNoArgs(PyTuple_GET_ITEM(op->object, 1)));
    op->version = holds > 0 ? state : 0;
    return holds;
}

/* Of the dictionary of a module, in all versions: none of its entries is stored without a new one. */
static inline bool is_same_namespace(const Op *op)
{
    PyDictObject *names = (PyDictObject *)PyTuple_GET_ITEM(op->object, 0);
    return op->version != 0 && op->version == names->ma_version_tag;
}

static int check_namespace(Op *op, Registers *r)
{
    secure(r, r->filled);
    uint64_t version = ((PyDictObject *)PyTuple_GET_ITEM(op->object, 0))->ma_version_tag;
    int holds = truth(PyObject_CallNoArgs(PyTuple_GET_ITEM(op->object, 1)));
    op->version = holds > 0 ? version : 0;
    return holds;
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

static bool is_handling(void)
{
    PyObject *handled = PyErr_GetHandledException();
    Py_XDECREF(handled);
    return handled != NULL;
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

/* Whether an operation may run code of the user, beyond those that secure registers themselves. */
static inline bool is_loud(const Op *op, PyObject *value)
{
    switch (op->op) {
    case OP_LENGTH: case OP_KEYS: return !PyDict_CheckExact(value);
    case OP_LACKS: case OP_HAS: case OP_CALL: case OP_SIZES: return true;
    default: return false;
    }
}

/* Operations that are rare or may run code of the user. */
static Py_NO_INLINE int run_other(Op *op, Registers *r, PyObject *value)
{
    PyObject *object = op->object, *target;
    if (is_loud(op, value)) {
        secure(r, r->filled);
    }
    switch ((Operation)op->op) {
    case OP_ATTRIBUTE: return fetch_attribute(op, r, value);
    case OP_PLAIN_ATTRIBUTE: return fetch_plain_attribute(op, r, value);
    case OP_DICT_ITEM: return fetch_dict_item(op, r, value);
    case OP_GLOBAL: return fetch_global(op, r, value);
    case OP_CALLED: return fetch_called(op, r, value);
    case OP_REFERENT: return fetch_referent(op, r, value);
    case OP_MODULE_ATTRIBUTE: return fetch_module_attribute(op, r, value);
    case OP_TYPE_WEAK: return (PyObject *)Py_TYPE(value) == target_of(object);
    case OP_IS_WEAK: return value == target_of(object);
    case OP_IS_NOT: return value != object;
    case OP_IS_NOT_WEAK: return (target = target_of(object)) == NULL || value != target;
    case OP_EQUAL: return check_equal(value, object);
    case OP_FLOAT: return check_float(value, object);
    case OP_LENGTH: return check_length(value, op->number);
    case OP_ITEM_LENGTH: return check_item_length(op, r, value);
    case OP_CODE: return check_code(value, object);
    case OP_CODE_WEAK: return check_code(value, target_of(object));
    case OP_SUBCLASS: return check_subclass(value, object, op->number);
    case OP_SUBCLASS_WEAK: return check_subclass(value, target_of(object), op->number);
    case OP_KEYS: return check_keys(op, value);
    case OP_HAS: return check_has(value, object, op->number);
    case OP_LACKS: return check_lacks(op, value);
    case OP_VERSION: return value == target_of(PyTuple_GET_ITEM(object, 0)) && check_version(value, object);
    case OP_SAME: return (value == r->values[op->out]) == op->number;
    case OP_GRAD_MODE: return is_grad_enabled() == op->number;
    case OP_INFERENCE_MODE: return is_inference_mode() == op->number;
    case OP_HANDLING: return is_handling() == op->number;
    case OP_DEFAULT_DTYPE: return default_dtype() == op->number;
    case OP_DETERMINISTIC: return deterministic() == op->number;
    case OP_AUTOCAST: return autocast_state(op->out) == op->number;
    case OP_AUTOCAST_CACHE: return is_autocast_cache_enabled() == op->number;
    case OP_NO_MODES: return count_modes() == 0;
    case OP_CLASS: return check_class(op, r);
    case OP_NAMESPACE: return check_namespace(op, r);
    case OP_SIZES: return check_size_code(op, r->values);
    case OP_CALL: return check_by_call(op, r->values);
    default: break;
    }
    PyErr_SetString(PyExc_SystemError, "unknown operation");
    return -1;
}

static inline int run_op(Op *op, Registers *r)
{
    PyObject *value = op->in >= 0 ? r->values[op->in] : NULL;
    int holds;
    switch (op->op) {
    case OP_ITEM: holds = fetch_item(op, r, value); break;
    case OP_SPACE: holds = fetch_space(op, r, value); break;
    case OP_CONST: holds = put(&r->values[op->out], op->object); break;
    case OP_TYPE_OF: holds = put(&r->values[op->out], (PyObject *)Py_TYPE(value)); break;
    case OP_TYPE: return (PyObject *)Py_TYPE(value) == op->object;
    case OP_IS: return value == op->object;
    case OP_TENSOR: return (PyObject *)Py_TYPE(value) == op->object && check_tensor(value, op->more);
    case OP_LENGTH:
        if (has_dict_length(value)) {
            return PyDict_GET_SIZE(value) == op->number;
        }
        return run_other(op, r, value);
    case OP_ITEM_LENGTH:
        if (PyDict_CheckExact(value) && is_remembered(op, value) && has_dict_length(op->found)) {
            return PyDict_GET_SIZE(op->found) == op->number;
        }
        return run_other(op, r, value);
    case OP_CLASS: return is_same_state(op) ? 1 : run_other(op, r, value);
    case OP_NAMESPACE: return is_same_namespace(op) ? 1 : run_other(op, r, value);
    case OP_LACKS: return PyDict_CheckExact(value) && is_remembered(op, value) ? 1 : run_other(op, r, value);
    default: holds = run_other(op, r, value);
    }
    if (op->fetches) {
        r->filled = op->out + 1;
    }
    return holds;
}

int run_ops(Op *ops, const int32_t *which, int n, Registers *r, int *stopped)
{
    for (int i = 0; i < n; i++) {
        Op *op = &ops[which ? which[i] : i];
        int holds = run_op(op, r);
        if (holds <= 0) {
            *stopped = (int)(op - ops);
            return holds;
        }
    }
    return 1;
}
