"""Every operator with inputs of every layout, compiled and compared with eager: `python -m integration.layouts`.

torch's own operator samples get their operands laid out anew: transposed, channels last, with gaps, expanded, behind an
offset, with negative and conjugate bits, empty, with odd strides where there is one element. Values, types, strides of
dimensions that have several elements, bits, aliasing and the operands afterwards must be eager's.

All layouts of a sample are compiled in one graph, because a compiler of C++ takes most of the time; where that graph is
refused or differs, each layout is judged alone.

    same          as eager
    refused       with a documented code, which is counted
    eager         eager raises, or nothing in the sample can have the layout
    wrong         anything else
"""
