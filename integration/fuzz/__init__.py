"""Two fuzzers of the whole: random Python programs, and random changes of state between calls.

`python -m integration.fuzz programs --count 2000` writes Python functions and runs each in eager and compiled;
`python -m integration.fuzz machine --steps 5000` changes what a compiled function depends on, step by step.
Both take `--seed`, and `programs` goes on from `--state FILE` where it was stopped.
"""
