"""Kernels on a CPU: what has to be chosen, what may be, and the walk that a choice makes."""
