"""Callables that CPython has in C: tables of how each is called."""
