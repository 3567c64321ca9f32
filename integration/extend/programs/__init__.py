"""Forty programs of users' extensions, eight kinds of five forms; `python -m integration.extend.programs` tells."""
