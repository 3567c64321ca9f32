/* Asking torch without its headers: C entries of libtorch, by addresses that Python looked up and verified.
 *
 * `bind_torch` gets a dict name -> address (or offset), see abi.py. A tensor's implementation lies at a fixed offset of
 * its Python object, and what torch's C interface calls a handle is the address of a pointer to the implementation.
 */
#include "native.h"

typedef int32_t (*HandleToInt)(void *handle, int32_t *out);
typedef int32_t (*HandleToLong)(void *handle, int64_t *out);
typedef int32_t (*HandleToDims)(void *handle, int64_t **out);

static struct {
    bool bound;
    int64_t payload, key_set;       /* offsets: implementation in the Python object, key set in the implementation */
    int64_t metadata, n_metadata;   /* offset and bytes of all metadata in the implementation; 0 bytes: not known */
    int64_t storage, counter, count; /* offsets: storage and counter of writes in the implementation, count in the counter */
    int64_t inline_dims;            /* the most dimensions that lie there, and not somewhere else */
    HandleToInt dtype, device_type, device_index;
    HandleToLong n_dims, storage_bytes;
    HandleToDims sizes, strides;
    int32_t (*data)(void *handle, void **out);
    bool (*requires_grad)(void *impl);
    bool (*grad_mode)(void), (*inference_mode)(void), (*autocast_cache)(void);
    uint16_t (*default_dtype)(void);
    void *(*context)(void);
    bool (*deterministic)(void *context), (*warn_only)(void *context);
    bool (*autocast)(int8_t device_type);
    int8_t (*autocast_dtype)(int8_t device_type);
    int64_t (*modes)(void), (*dispatch_modes)(void);
    bool (*key_included)(uint16_t);
    int64_t observer_keys[MAX_OBSERVER_KEYS];
} torch;

bool torch_is_bound(void)
{
    return torch.bound;
}

static int take_address(PyObject *addresses, const char *name, void *out)
{
    PyObject *value = PyDict_GetItemString(addresses, name);
    if (value == NULL) {
        PyErr_Format(PyExc_KeyError, "no address of %s", name);
        return -1;
    }
    void *address = PyLong_AsVoidPtr(value);
    if (address == NULL && PyErr_Occurred()) {
        return -1;
    }
    *(void **)out = address;
    return 0;
}

int bind_torch(PyObject *addresses)
{
    struct {const char *name; void *to;} rows[] = {
        {"payload", &torch.payload}, {"key_set", &torch.key_set},
        {"storage", &torch.storage}, {"counter", &torch.counter}, {"count", &torch.count},
        {"metadata", &torch.metadata}, {"n_metadata", &torch.n_metadata}, {"inline_dims", &torch.inline_dims}, {"dtype", &torch.dtype},
        {"device_type", &torch.device_type}, {"device_index", &torch.device_index}, {"n_dims", &torch.n_dims},
        {"sizes", &torch.sizes}, {"data", &torch.data}, {"storage_bytes", &torch.storage_bytes}, {"strides", &torch.strides}, {"requires_grad", &torch.requires_grad},
        {"grad_mode", &torch.grad_mode}, {"inference_mode", &torch.inference_mode},
        {"autocast_cache", &torch.autocast_cache}, {"default_dtype", &torch.default_dtype},
        {"context", &torch.context}, {"deterministic", &torch.deterministic}, {"warn_only", &torch.warn_only},
        {"autocast", &torch.autocast}, {"autocast_dtype", &torch.autocast_dtype}, {"modes", &torch.modes},
        {"dispatch_modes", &torch.dispatch_modes}, {"key_included", &torch.key_included},
        {"observer_key0", &torch.observer_keys[0]}, {"observer_key1", &torch.observer_keys[1]},
        {"observer_key2", &torch.observer_keys[2]}, {"observer_key3", &torch.observer_keys[3]}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (take_address(addresses, rows[i].name, rows[i].to) < 0) {
            return -1;
        }
    }
    torch.bound = torch.n_metadata <= MAX_SEEN;
    return 0;
}

static inline void *implementation(PyObject *tensor)
{
    return *(void **)((char *)tensor + torch.payload);
}

int tensor_facts(PyObject *tensor, int32_t facts[4])
{
    void *impl = implementation(tensor);
    if (torch.dtype(&impl, &facts[0]) || torch.device_type(&impl, &facts[1]) || torch.device_index(&impl, &facts[2])) {
        return -1;
    }
    facts[3] = torch.requires_grad(impl);
    return 0;
}

/* The long way: one question after the other. An entry that reports an error (a tensor without strides) is a guard that
 * fails. */
static Py_NO_INLINE int check_metadata(void *impl, const TensorWant *want)
{
    int32_t dtype, device_type, device_index;
    int64_t n_dims, *sizes, *strides;
    if (want->has_keys && *(uint64_t *)((char *)impl + torch.key_set) != want->keys) {
        return 0;
    }
    if (torch.dtype(&impl, &dtype) || dtype != want->dtype || torch.device_type(&impl, &device_type)
            || device_type != want->device_type || torch.n_dims(&impl, &n_dims) || n_dims != want->n_dims
            || torch.sizes(&impl, &sizes) || torch.strides(&impl, &strides)) {
        return 0;
    }
    if (want->device_index != ANY_INDEX
            && (torch.device_index(&impl, &device_index) || device_index != want->device_index)) {
        return 0;
    }
    const int64_t *size = want->dims, *stride = want->dims + n_dims;
    for (int64_t i = 0; i < n_dims; i++) {
        if ((size[i] != sizes[i] && size[i] != ANY) || (stride[i] != strides[i] && stride[i] != ANY)) {
            return 0;
        }
    }
    return 1;
}

/* The exact class was checked: it is one whose objects have a tensor's layout. A tensor whose metadata are, byte for
 * byte, those of one that was as it must be is so too: for few dimensions all metadata lie in the implementation, but
 * for whether it requires grad. */
int check_tensor(PyObject *tensor, TensorWant *want)
{
    void *impl = implementation(tensor);
    if (impl == NULL || torch.requires_grad(impl) != want->requires_grad) {
        return 0;
    }
    const char *metadata = (const char *)impl + torch.metadata;
    if (want->has_seen && memcmp(metadata, want->seen, torch.n_metadata) == 0) {
        return 1;
    }
    int holds = check_metadata(impl, want);
    if (holds && torch.n_metadata && want->n_dims <= torch.inline_dims) {
        memcpy(want->seen, metadata, torch.n_metadata);
        want->has_seen = true;
    }
    return holds;
}

/* A storage can be made smaller without a write that is counted; one of no bytes has no address. */
static bool has_contents(void *impl, PyObject *contents)
{
    void *data;
    int64_t n = PyBytes_GET_SIZE(contents), n_stored;
    if (n == 0) {
        return true;
    }
    return torch.storage_bytes(&impl, &n_stored) == 0 && n_stored >= n && torch.data(&impl, &data) == 0 && data != NULL
        && memcmp(data, PyBytes_AS_STRING(contents), n) == 0;
}

/* Python adds this operation only where the offsets are known. */
int check_version(PyObject *tensor, PyObject *want)
{
    void *impl = implementation(tensor);
    if (impl == NULL) {
        return 0;
    }
    const void *storage = *(void **)((char *)impl + torch.storage);
    const char *counter = *(char **)((char *)impl + torch.counter);     /* NULL: writes aren't counted */
    PyObject *contents = PyTuple_GET_ITEM(want, 3);
    if (counter == NULL || storage != PyLong_AsVoidPtr(PyTuple_GET_ITEM(want, 1))
            || *(const uint32_t *)(counter + torch.count) != PyLong_AsUnsignedLong(PyTuple_GET_ITEM(want, 2))) {
        return 0;
    }
    return contents == Py_None || has_contents(impl, contents);
}

/* ---- state that isn't a value ------------------------------------------------------------------------------------ */

bool is_grad_enabled(void)
{
    return torch.grad_mode();
}

bool is_inference_mode(void)
{
    return torch.inference_mode();
}

int default_dtype(void)
{
    return torch.default_dtype();
}

int deterministic(void)
{
    void *context = torch.context();
    return torch.deterministic(context) + 2 * torch.warn_only(context);
}

int autocast_state(int device_type)
{
    return torch.autocast((int8_t)device_type) + 2 * torch.autocast_dtype((int8_t)device_type);
}

bool is_autocast_cache_enabled(void)
{
    return torch.autocast_cache();
}

int64_t count_modes(void)
{
    int64_t n = torch.modes() + torch.dispatch_modes();
    for (int i = 0; i < MAX_OBSERVER_KEYS; i++) {
        n += torch.key_included((uint16_t)torch.observer_keys[i]);
    }
    return n;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static int read_symbol(PyObject *value, int32_t how, int64_t *out)
{
    if (how == READ_INT) {
        int overflow;
        if (!PyLong_CheckExact(value)) {
            return -1;
        }
        *out = PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow ? -1 : 0;
    }
    void *impl = implementation(value);
    int64_t n_dims, *dims, d = how >= 0 ? how : -1 - (int64_t)how;
    if (impl == NULL || torch.n_dims(&impl, &n_dims) || d >= n_dims
            || (how >= 0 ? torch.sizes : torch.strides)(&impl, &dims)) {
        return -1;
    }
    *out = dims[d];
    return 0;
}

static inline bool floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    if (b == 0 || (a == INT64_MIN && b == -1)) {
        return true;
    }
    *quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        *rest += b;
        *quotient -= 1;
    }
    return false;
}

/* One operation on the top of the stack; true: Python has to say (overflow, division by zero). */
static bool apply(int64_t op, int64_t *s)
{
    int64_t a = s[-2], b = s[-1], other;
    switch (op) {
    case SYM_ADD: return __builtin_add_overflow(a, b, &s[-2]);
    case SYM_SUB: return __builtin_sub_overflow(a, b, &s[-2]);
    case SYM_MUL: return __builtin_mul_overflow(a, b, &s[-2]);
    case SYM_FLOORDIV: return floor_divide(a, b, &s[-2], &other);
    case SYM_MOD: return floor_divide(a, b, &other, &s[-2]);
    case SYM_MIN: s[-2] = a < b ? a : b; return false;
    case SYM_MAX: s[-2] = a > b ? a : b; return false;
    case SYM_LT: s[-2] = a < b; return false;
    case SYM_LE: s[-2] = a <= b; return false;
    case SYM_GT: s[-2] = a > b; return false;
    case SYM_GE: s[-2] = a >= b; return false;
    case SYM_EQ: s[-2] = a == b; return false;
    case SYM_NE: s[-2] = a != b; return false;
    case SYM_AND: s[-2] = a && b; return false;
    case SYM_OR: s[-2] = a || b; return false;
    default: return true;
    }
}

int check_sizes(const SizeCode *code, PyObject *const *registers)
{
    int64_t symbols[code->n_symbols + 1], stack[MAX_STACK + 2];
    int top = 2;                                /* two unused slots below, for `apply` to look at */
    stack[0] = stack[1] = 0;
    for (int i = 0; i < code->n_symbols; i++) {
        if (read_symbol(registers[code->values[code->reads[2 * i]]], code->reads[2 * i + 1], &symbols[i]) < 0) {
            return -2;
        }
    }
    for (int i = 0; i < code->n_code; i++) {
        int64_t op = code->code[2 * i], operand = code->code[2 * i + 1], *s = &stack[top];
        switch (op) {
        case SYM_SYMBOL: *s = symbols[operand]; top++; break;
        case SYM_NUMBER: *s = operand; top++; break;
        case SYM_NOT: s[-1] = !s[-1]; break;
        case SYM_NEG: if (s[-1] == INT64_MIN) return -2; s[-1] = -s[-1]; break;
        case SYM_ABS: if (s[-1] == INT64_MIN) return -2; s[-1] = s[-1] < 0 ? -s[-1] : s[-1]; break;
        case SYM_REQUIRE: if (!s[-1]) return 0; top--; break;
        default: if (apply(op, s)) return -2; top--; break;
        }
    }
    return 1;
}
