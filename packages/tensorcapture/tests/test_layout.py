"""No module of the package imports one that imports it, not even for types."""

import intarsia_tensorcapture
from intarsia_testkit.import_graph import circle_in, import_graph


def test_no_import_circle():
    graph = import_graph(intarsia_tensorcapture)
    assert len(graph) > 20
    assert circle_in(graph) == []
