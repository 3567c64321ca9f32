"""Kernels as vector registers and threads walk them: flat steps, the algebra of their loops, what shares a loop.

Everything here is data and pure functions of it; who chooses is the scheduler, who spells is an emitter.
"""
