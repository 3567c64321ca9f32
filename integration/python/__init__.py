"""A corpus of small Python programs over tensors: one idea each, mapped to what capture must take.

`items.py` lists what must work; the modules of `programs/` hold the programs, by theme; `run.py` runs one in eager
and by a compiler and describes what can be seen of it; `compare.py` compares two such runs; `test_corpus.py` tests
ours, and `python -m integration.python.peers` counts what other capture tools make of the same programs.
"""
