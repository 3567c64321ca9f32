"""The parts of a capture's state. Each is a plain object with a small interface; none knows the whole."""
