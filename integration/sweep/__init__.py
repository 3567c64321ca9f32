"""Architectures of transformers from small configurations: captured, compared with eager, trained a step."""
