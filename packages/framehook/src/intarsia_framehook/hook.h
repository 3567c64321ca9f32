/* What the parts of the frame hook share. Read _hook.c first: it has the whole picture. */
#ifndef INTARSIA_FRAMEHOOK_HOOK_H
#define INTARSIA_FRAMEHOOK_HOOK_H

#include "layout.h"
#include <stdbool.h>

/* ---- one thread (_hook.c) ---- */

/* What a thread's frames are dispatched by; the thread owns all three. */
typedef struct {
    PyObject *callback;     /* asked about frames without a fitting entry; NULL: the thread isn't hooked */
    PyObject *owner;        /* whose entries are used; NULL as long as nothing was ever installed */
    PyObject *bypass;       /* asked, under a trace function, whether to run natively; NULL: never do */
} Hooking;

typedef struct {
    Hooking hooking;
    int paused;             /* > 0: frames run natively, and no hook beneath ours sees them: in guards and callbacks,
                             * in an original that runs after a bailout */
    int replaced;           /* how many running frames of this thread run a replacement */
    bool quiet_once;        /* the answer to the last question: natively, with all that is called meanwhile */
    bool watched;           /* the end of the thread is noticed */
    char *stack_floor;      /* below this address three quarters of the C stack are used */
    Frame *passed_on;       /* the frame that the eval function beneath us was just given */
} HookThread;

extern _Thread_local HookThread hook_thread;

/* Exchange what is installed for this thread with what the caller holds; when `entering`, see to it that the hook is
 * reached. Returns -1 with an error set, and nothing exchanged, if it can't. */
int exchange_hooking(HookThread *me, Hooking *hooking, bool entering);
void drop_hooking(Hooking *hooking);

/* The chain of eval functions, and putting it back at the end of a region that came on top of another hook. */
typedef struct {
    _PyFrameEvalFunction top, beneath;
    bool installed;
} Chain;

Chain chain_as_found(PyThreadState *ts);
void put_back(PyThreadState *ts, Chain found);

/* Whether a trace function is set and `bypass` says that it wants to see code as written: 1, 0, or -1 with an error. */
int is_bypassed(PyThreadState *ts, PyObject *bypass);

/* Whether the interpreter's own evaluator is what was installed before us. */
bool is_only_hook(void);

/* ---- what is known of a code object (entries.c) ---- */

#define NOT_PLAIN (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE)
#define PLAIN (CO_OPTIMIZED | CO_NEWLOCALS)     /* the body of a function */

#define SKIPPED Py_None         /* slot of a code that always runs natively */
#define QUIET Py_Ellipsis       /* slot of a code that does, with all it calls */
#define REPLACEMENT Py_True     /* slot of a code that stands in for another; runs natively too */

int init_entries(PyObject *module);
PyObject *get_slot(PyCodeObject *co);                       /* borrowed; NULL, SKIPPED, QUIET, REPLACEMENT or a list */
int set_slot(PyCodeObject *co, PyObject *value);
PyObject *list_entries(PyCodeObject *co, PyObject *owner);
bool fits(PyCodeObject *code, PyObject *replacement);
int reset_entries(PyCodeObject *co, PyObject *owner);       /* owner NULL: of every owner, and skip marks */

/* New reference to the code to run in place of `co`; NULL: natively, or an error is set. */
PyCodeObject *choose_code(HookThread *me, Frame *f, PyCodeObject *co, PyObject *slot);

/* ---- running a frame otherwise (run.c) ---- */

extern bool replace_by_call;    /* for tests: never run a replacement in place */
extern PyObject *bailout_type;

int init_run(PyObject *module);
int count_arguments(PyCodeObject *co);
PyObject *run_replacement(HookThread *me, PyThreadState *ts, Frame *f, PyCodeObject *code);    /* consumes code */
PyObject *give_up_frame(PyThreadState *ts, Frame *f, PyObject *result);                        /* consumes result */

/* ---- callables that switch the hook (callables.c) ---- */

int init_callables(PyObject *module);

#endif
