"""Three fuzzers of the whole: random Python programs, random chains of operators, and random changes of state.

`python -m integration.fuzz programs --count 2000` writes Python functions and runs each in eager and compiled;
`python -m integration.fuzz operators --count 1000` does the same with calls of operators on tensors of all types;
`python -m integration.fuzz machine --steps 5000` changes what a compiled function depends on, step by step.
All take `--seed`, and `programs` goes on from `--state FILE` where it was stopped.
"""
