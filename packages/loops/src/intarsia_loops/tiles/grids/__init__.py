"""Walks of grids: text and back, rules, and the statements that they stand for."""
