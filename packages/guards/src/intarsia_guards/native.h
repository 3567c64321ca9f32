/* What the parts of the native guard check share. Read _native.c first: it has the whole picture. */
#ifndef INTARSIA_GUARDS_NATIVE_H
#define INTARSIA_GUARDS_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#if PY_VERSION_HEX < 0x030B0000
#  error "CPython 3.11 or newer is needed"
#endif
#ifdef Py_GIL_DISABLED
#  error "free-threaded builds are not supported: look-ups are remembered under the GIL"
#endif

/* Each operation works on registers: the values of the frame come first, then what operations fetch. The names are
 * those that Python uses (`_native.OPERATIONS`). */
#define OPERATIONS(X) \
    /* fetch into `out` from `in`; `object` is the name or key, or what is called (CALLED) */ \
    X(CONST) X(ATTRIBUTE) X(PLAIN_ATTRIBUTE) X(SPACE) X(ITEM) X(DICT_ITEM) X(GLOBAL) X(TYPE_OF) X(REFERENT) X(CALLED) X(MODULE_ATTRIBUTE) \
    /* check `in` against `object` and `number` (ITEM_LENGTH: the length of the item `object` of the dict `in`) */ \
    X(ITEM_LENGTH) X(TYPE) X(TYPE_WEAK) X(IS) X(IS_WEAK) X(IS_NOT) X(IS_NOT_WEAK) X(EQUAL) X(FLOAT) X(LENGTH) X(CODE) X(CODE_WEAK) \
    X(SUBCLASS) X(SUBCLASS_WEAK) X(KEYS) X(HAS) X(LACKS) X(SAME) X(TENSOR) X(VERSION) \
    /* check what isn't a value; of CLASS and NAMESPACE, `object` is (class or weak reference, or dict; the check name by name) */ \
    X(GRAD_MODE) X(INFERENCE_MODE) X(HANDLING) X(DEFAULT_DTYPE) X(DETERMINISTIC) X(CLASS) X(NAMESPACE) X(AUTOCAST) X(AUTOCAST_CACHE) X(NO_MODES) \
    /* check several values: size relations, and `object(*registers)` for all that has no operation of its own */ \
    X(SIZES) X(CALL)

typedef enum {
#define X(name) OP_##name,
    OPERATIONS(X)
#undef X
    N_OPERATIONS
} Operation;
#define LAST_FETCH OP_MODULE_ATTRIBUTE

#define MAX_DIMS 64
#define MAX_OBSERVER_KEYS 4
#define MAX_SEEN 160
#define ANY INT64_MIN

/* What a tensor must be. */
typedef struct {
    int32_t dtype, device_type, device_index;   /* index ANY_INDEX: any */
    int32_t n_dims;
    bool requires_grad, has_keys;
    uint64_t keys;
    bool has_seen;
    unsigned char seen[MAX_SEEN];               /* metadata, as bytes, of the last tensor that was as it must be */
    int64_t dims[];                             /* sizes, then strides; ANY where it doesn't matter */
} TensorWant;
#define ANY_INDEX (-2)

/* Relations over symbols. Symbols are read from values, relations are postfix code that leaves true. */
typedef struct {
    int n_values, n_symbols, n_code;
    int32_t *values;                            /* the registers that the Python function is called with */
    int32_t *reads;                             /* (value, dimension; -1 - d: stride of d; READ_INT: an int) */
    int64_t *code;                              /* (opcode, operand) pairs */
} SizeCode;
#define READ_INT INT32_MIN
#define MAX_STACK 32
#define SIZE_OPS(X) X(SYMBOL) X(NUMBER) X(ADD) X(SUB) X(MUL) X(FLOORDIV) X(MOD) X(NEG) X(MIN) X(MAX) X(ABS) \
    X(LT) X(LE) X(GT) X(GE) X(EQ) X(NE) X(AND) X(OR) X(NOT) X(REQUIRE)
typedef enum {
#define X(name) SYM_##name,
    SIZE_OPS(X)
#undef X
    N_SIZE_OPS
} SizeOp;

/* One operation, one cache line. `dict`, `version` and `found` remember a look-up: a dict that is the same object with
 * the same version tag still maps the key to the very same value, which it keeps alive. */
typedef struct {
    uint8_t op;
    bool fetches;                               /* into `out` */
    bool simple_key;                            /* `object` is a string: comparing it runs no code of the user */
    int32_t out, in, number;
    PyObject *object;
    void *more;                                 /* TensorWant, SizeCode, or the registers of CALL (count first) */
    PyObject *dict;
    uint64_t version;
    PyObject *found;
} Op;

/* ---- run.c ---- */

/* Keep the functions of lookup.py that are asked where it isn't plain that looking runs no code of the user. */
void keep_lookups(PyObject *attribute, PyObject *item);

typedef struct {
    PyObject **values;
    int32_t filled;                             /* registers from here on are empty */
    int32_t secured;                            /* registers before this one own what they hold; arguments don't count */
} Registers;

/* Run the operations `which` (NULL: the first `n`) until one doesn't hold: 1, 0, or -1 with an error set. */
int run_ops(Op *ops, const int32_t *which, int n, Registers *registers, int *stopped);

/* ---- tensors.c ---- */

int bind_torch(PyObject *addresses);
bool torch_is_bound(void);
/* Numbers of its type, device type and device index, and whether it requires grad. */
int tensor_facts(PyObject *tensor, int32_t facts[4]);
int check_tensor(PyObject *tensor, TensorWant *want);
/* Whether the tensor has this storage, and has been written so often: (weak reference, address, count,
 * what the memory must hold, or None). */
int check_version(PyObject *tensor, PyObject *want);
int check_sizes(const SizeCode *code, PyObject *const *registers);      /* -2: ask Python */
bool is_grad_enabled(void);
bool is_inference_mode(void);
int default_dtype(void);
int deterministic(void);                        /* enabled + 2 * warn only */
int autocast_state(int device_type);            /* enabled + 2 * dtype */
bool is_autocast_cache_enabled(void);
int64_t count_modes(void);       /* and of what observes the thread by a dispatch key: tracers, transforms */

#endif
