"""Torch's own operator samples, compiled and checked against eager: `python -m integration.opinfo`.

torch ships a description of each of its operators with thousands of sample inputs. A fixed stride over them is put
through `intarsia.compile(fullgraph=True, dynamic=True, options={"on_error": "raise"})`, twice each: as it is, then with
every tensor doubled in length, through the same compiled function. What happened is told by counters, so that a frame
left to eager never counts as a success.

    generated     the compiled graph calls no library operator
    extern        it calls at least one
    unsupported   nothing was compiled; the reason is the code of the error
    wrong         another value, type, stride or mutation than eager's, another error than ours, or a crash
"""
