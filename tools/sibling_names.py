"""Whether the ranges of siblings hold: what a wheel takes from a sibling is in every version that its range allows.

`python tools/sibling_names.py FOLDER` looks at every pair of wheels of ours in `FOLDER`, released ones too, of which
one needs the other. Importing a package tells less: names that are imported inside of functions are looked at, too. Of
a name it is told that it is there, not that it means the same: the lower end of a range is for that.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parent))
import sibling_versions
import surface


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__)
        return 2
    found = list(findings(Path(arguments[0])))
    print("\n".join([*found, f"siblings: {len(found)} name(s) missing in versions that a range allows"]))
    return 1 if found else 0


def findings(folder: Path) -> Iterator[str]:
    """Yield a line for each name that a wheel takes from a sibling and an allowed version of that one lacks."""
    wheels: dict[str, dict[Version, Path]] = {}
    for path in sorted(folder.glob("*.whl")):
        name, version, *_ = parse_wheel_filename(path.name)
        wheels.setdefault(name, {})[version] = path
    for versions in wheels.values():
        for user in versions.values():
            for requirement in sibling_versions.requirements(user):
                siblings = wheels.get(canonicalize_name(requirement.name), {})
                yield from missing(user, requirement.specifier, siblings)


def missing(user: Path, allowed: SpecifierSet, siblings: dict[Version, Path]) -> Iterator[str]:
    """Yield what a wheel takes from a sibling and isn't in one of the allowed versions."""
    names = {version: {n: m.names for n, m in modules(path).items()} for version, path in sorted(siblings.items())}
    # a name that one version lacks is a name of the package all the same: another version tells that
    ever = {
        n: frozenset().union(*(known.get(n, ()) for known in names.values())) for known in names.values() for n in known
    }
    for module in modules(user).values():
        for use in sorted(set(surface.names_used(module.tree, module.package, module.name, ever))):
            for version, known in names.items():
                if version in allowed and use.full not in known and use.name not in known.get(use.module, ()):
                    yield f"{user.name}: {use.where} takes {use.full}, which {siblings[version].name} lacks"


@cache
def modules(wheel: Path) -> dict[str, surface.Module]:
    """Return the modules of a wheel by import name."""
    found = {}
    archive = zipfile.ZipFile(wheel)
    for file in sorted(name for name in archive.namelist() if name.endswith(".py")):
        parts = file.removesuffix(".py").split("/")
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = surface.Module(name, zipfile.Path(archive, file))
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
