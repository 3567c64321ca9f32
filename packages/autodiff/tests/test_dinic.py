"""The minimum cut, against networkx."""

import networkx
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_autodiff.dinic import Network


@st.composite
def networks(draw):
    n_nodes = draw(st.integers(2, 9))
    arcs = draw(
        st.lists(st.tuples(st.integers(0, n_nodes - 1), st.integers(0, n_nodes - 1), st.integers(0, 9)), max_size=30)
    )
    return n_nodes, [(a, b, c) for a, b, c in arcs if a != b]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(networks())
def test_flow_equals_networkx(network):
    n_nodes, arcs = network
    ours, theirs = Network(n_nodes), networkx.DiGraph()
    theirs.add_nodes_from(range(n_nodes))
    for tail, head, capacity in arcs:
        ours.add(tail, head, capacity)
        known = theirs.get_edge_data(tail, head, {"capacity": 0})["capacity"]
        theirs.add_edge(tail, head, capacity=known + capacity)
    flow = ours.flow(0, n_nodes - 1)
    assert flow == networkx.maximum_flow_value(theirs, 0, n_nodes - 1)
    sink_side = ours.sink_side(n_nodes - 1)
    assert n_nodes - 1 in sink_side and 0 not in sink_side
    assert flow == sum(c for a, b, c in arcs if a not in sink_side and b in sink_side)


def test_a_long_path_needs_no_recursion():
    network = Network(20_001)
    for node in range(20_000):
        network.add(node, node + 1, 2 + node % 3)
    assert network.flow(0, 20_000) == 2
