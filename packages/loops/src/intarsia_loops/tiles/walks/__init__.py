"""Walks of vectors and threads in the tiles dialect: what they stand for, their rules, their text."""
