"""Code of the user runs when eager runs it, and as often: not for guards, while tracing, or when writes are stored.

Each test makes its world twice, for eager and for a compiled function. After each change both must give the same
result, have run the same code (the log), and leave the same state behind.
"""

import collections
import weakref

import pytest
import torch

import intarsia

pytestmark = pytest.mark.usefixtures("fresh")


def as_eager(world):
    """Compare the compiled function with eager in two worlds, each made by `world(log)`: (function, changes, state)."""
    logs = [], []
    (eager, changes, state), (plain, own_changes, own_state) = world(logs[0]), world(logs[1])
    fast, x = intarsia.compile(plain, options={"on_error": "raise"}), torch.ones(2)
    for change, own in zip((lambda: None, lambda: None, *changes), (lambda: None, lambda: None, *own_changes)):
        change(), own()
        for log in logs:
            log.clear()
        expected = eager(x)
        torch.testing.assert_close(fast(x), expected)
        assert logs[1] == logs[0] and own_state() == state()
    counts = intarsia.stats()
    assert counts.fallbacks == 0 and counts.frames_compiled >= 1 and counts.graphs >= 1


def test_a_default_factory():
    def world(log):
        found = collections.defaultdict(lambda: log.append("made") or [])
        found["b"].append(4)
        return (lambda x: x + (found["b"][0] if "b" in found else 0)), [found.clear], lambda: dict(found)

    as_eager(world)


def test_a_hook_for_missing_keys():
    class Seven(dict):
        def __missing__(self, key):
            self.log.append(key)
            return 7

    def world(log):
        d = Seven(a=1)
        d.log = log
        changes = [lambda: d.pop("a"), lambda: None, lambda: d.update(a=5), lambda: d.pop("a")]
        return (lambda x: x * d["a"]), changes, lambda: dict(d)

    as_eager(world)


def test_a_hook_for_missing_attributes():
    def world(log):
        class A:
            def __getattr__(self, name):
                log.append(name)
                return 3

        a = A()
        put, drop = (lambda: setattr(a, "xyz", 50)), (lambda: delattr(a, "xyz"))
        return (lambda x: x * a.xyz), [put, drop, put, drop, lambda: None], lambda: vars(a).copy()

    as_eager(world)


def test_a_hook_for_missing_attributes_of_a_module():
    def world(log):
        class Layer(torch.nn.Module):
            def __getattr__(self, name):
                if name != "k":
                    return super().__getattr__(name)
                log.append(name)
                return 3

            def forward(self, x):
                return x * self.k

        layer = Layer()
        put, drop = (lambda: setattr(layer, "k", 50)), (lambda: delattr(layer, "k"))
        return layer.forward, [put, drop, put, drop, lambda: None], lambda: layer.__dict__.get("k")

    as_eager(world)


def test_a_property_that_comes_later():
    def world(log):
        class P:
            pass

        p = P()
        p.v = 2

        def put():
            P.v = property(lambda self: log.append("v") or 11)

        return (lambda x: x * p.v), [put, lambda: None, lambda: delattr(P, "v")], lambda: vars(p).copy()

    as_eager(world)


def test_a_class_with_look_up_of_its_own_that_comes_later():
    def world(log):
        class P:
            pass

        class Looking:
            def __getattribute__(self, name):
                log.append(name)
                return object.__getattribute__(self, name)

        p = P()
        p.v = 2
        change = lambda: setattr(p, "__class__", Looking)
        return (lambda x: x * p.v), [change, lambda: None], lambda: object.__getattribute__(p, "__dict__").copy()

    as_eager(world)


def test_a_class_with_look_up_and_slots():
    def world(log):
        class Looking:
            __slots__ = ("__dict__", "s")

            def __getattribute__(self, name):
                log.append(name)
                return object.__getattribute__(self, name)

            def __setattr__(self, name, value):
                log.append(f"set {name}")
                object.__setattr__(self, name, value)

        a = Looking()
        a.v, a.s = 1, 2

        def f(x):
            a.__dict__["w"] = 2
            a.u = a.v
            return x * a.v + a.s

        return f, [lambda: setattr(a, "v", 3), lambda: setattr(a, "s", 4)], lambda: (a.__dict__.copy(), a.s)

    as_eager(world)


def test_a_class_with_look_up_and_attributes_of_its_own():
    def world(log):
        class Looking:
            names = {"alias": "v"}

            def __getattribute__(self, name):
                log.append(name)
                if name in object.__getattribute__(self, "names"):
                    name = object.__getattribute__(self, "names")[name]
                return object.__getattribute__(self, name)

        a = Looking()
        a.v = 2
        change = lambda: object.__setattr__(a, "names", {"alias": "w"})
        return (lambda x: x * a.alias), [lambda: setattr(a, "v", 3), lambda: setattr(a, "w", 5), change], lambda: 0

    as_eager(world)


def test_a_module_with_look_up_of_its_own():
    def world(log):
        class Layer(torch.nn.Linear):
            def __getattribute__(self, name):
                log.append(name)
                return super().__getattribute__(name)

            def forward(self, x):
                return super().forward(x) * self.scale

        layer = Layer(2, 2)
        layer.scale = 2
        torch.nn.init.ones_(layer.weight)
        torch.nn.init.ones_(layer.bias)
        return (lambda x: layer(x).detach()), [lambda: setattr(layer, "scale", 3)], lambda: 0

    as_eager(world)


def test_an_exception_with_look_up_of_its_own():
    def world(log):
        class Problem(Exception):
            def __getattribute__(self, name):
                log.append(name)
                return super().__getattribute__(name)

        problem = Problem(2)
        return (lambda x: x * problem.args[0]), [], lambda: 0

    as_eager(world)


def test_a_weak_proxy():
    def world(log):
        class A:
            v = 2

        a = A()
        a.w = 4
        held = [a]
        changes = [lambda: held.__setitem__(0, weakref.proxy(a)), lambda: setattr(a, "w", 6)]
        return (lambda x: x * held[0].v + held[0].w), changes, lambda: 0

    as_eager(world)


def field(log, get=lambda kept: kept, put=lambda value: value):
    """Return a descriptor that keeps its value in the instance's dictionary under its own name."""

    class Field:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            log.append("get")
            return get(instance.__dict__[self.name])

        def __set__(self, instance, value):
            log.append("set")
            if value < 0:
                raise ValueError(value)
            instance.__dict__[self.name] = put(value)

        def __delete__(self, instance):
            log.append("delete")
            del instance.__dict__[self.name]

    return Field()


@pytest.mark.parametrize("put", [lambda v: v * 2, lambda v: -v])
def test_a_descriptor_that_keeps_its_value_under_its_own_name(put):
    def world(log):
        class A:
            d = field(log, put=put)

        a = A()

        def f(x):
            a.d = 5
            return x * a.d

        return f, [lambda: vars(a).update(d=7), lambda: vars(a).clear()], lambda: vars(a).copy()

    as_eager(world)


def test_reading_what_a_descriptor_keeps_under_its_own_name():
    def world(log):
        class A:
            d = field(log, get=lambda kept: kept + 100)

        a = A()
        a.d = 1
        return (lambda x: x * a.d), [lambda: setattr(a, "d", 3), lambda: vars(a).update(d=4)], lambda: vars(a).copy()

    as_eager(world)


def test_a_tensor_that_a_descriptor_keeps_under_its_own_name():
    def world(log):
        class A:
            d = field(log)

        a = A()
        vars(a)["d"] = torch.ones(2)

        def f(x):
            vars(a)["d"] = a.d + x
            return x * a.d

        return f, [], lambda: vars(a)["d"].tolist()

    as_eager(world)


def test_deleting_what_a_descriptor_keeps_under_its_own_name():
    def world(log):
        class A:
            d = field(log)

        a = A()
        a.d = 1

        def f(x):
            result = x * a.d
            del a.d
            a.__dict__["e"] = 1
            a.d = 2
            return result

        return f, [], lambda: vars(a).copy()

    as_eager(world)


@pytest.mark.parametrize("own_setattr", [False, True])
def test_a_property_over_the_dictionary(own_setattr):
    def world(log):
        class A:
            @property
            def v(self):
                return vars(self)["v"] * 10

            @v.setter
            def v(self, value):
                log.append(value)
                self.__dict__.update(v=value + 1)

        if own_setattr:

            def put(self, name, value):
                log.append(name)
                object.__setattr__(self, name, value)

            A.__setattr__ = put
        a = A()

        def f(x):
            a.v = 5
            b = A()
            b.v = 2
            a.b = b
            return x * a.v

        return f, [lambda: setattr(a, "v", 3)], lambda: (a.__dict__["v"], vars(a.b).copy())

    as_eager(world)


def test_calling_an_object_does_not_hash_it():
    def world(log):
        class V:
            def __hash__(self):
                log.append("hash")
                return 1

            def __eq__(self, other):
                log.append("eq")
                return True

            def __call__(self, factor):
                return factor * 2

        v = V()
        return (lambda x: x + v(1)), [], lambda: 0

    as_eager(world)


def test_a_tensor_and_its_id_as_keys_of_one_dict():
    d = {}

    def f(x):
        d[id(x)] = 1
        d[x] = 1
        return x + len(d)

    fast, x = intarsia.compile(f, options={"on_error": "raise"}), torch.ones(2)
    for function in (f, fast):
        d.clear()
        with pytest.raises(RuntimeError, match="ambiguous"):
            function(x)
        assert list(d) == [id(x)]
