"""What the kinds have in common: protocols of Python that put operations of several values together."""
