"""What tests of Intarsia packages share; nothing here is imported by the packages themselves.

The parts are submodules, so that a test pays only for what it imports and needs only the dialects it has:

    public_api     the pinned list of public names and signatures (standard library only)
    torch_contract a look-up of the names of torch in a package's source (standard library and torch)
    golden         whole-output comparison with files (standard library only)
    import_graph   which modules import which (standard library only)
    fired          a tally of rules, printed least-fired first at the end of a test session (standard library only)
    pages          HTML pages read back (standard library only)
    traces         traces of the Trace Event Format, read back and checked (standard library only)
    strategies     Hypothesis: tensors of all layouts
    aten_programs  Hypothesis: functional ATen graphs
    effect_programs  Hypothesis: Python functions and recorded graphs full of views and writes
    torch_programs Hypothesis: torch-level graphs
    loops_programs Hypothesis: loop programs, made by a lowering given as argument
    differential   the check that every pass's property test uses
    contract       the whole contract of a pass, one's own included, in one call

Example:
    >>> import tempfile, pathlib
    >>> from intarsia_testkit.golden import check_golden
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "hello.txt"
    >>> _ = path.write_text("hello\\n")
    >>> check_golden("hello\\n", path)
"""

__version__ = "0.1.1"

__all__ = ["__version__"]
