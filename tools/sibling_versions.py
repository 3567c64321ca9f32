"""Versions of siblings that a package may meet: wheels of tagged ones, and the oldest that all ranges allow.

`python tools/sibling_versions.py wheels FOLDER` adds to the wheels of now in `FOLDER` those of each tagged version
that a range of a sibling still allows, built from its tag. `python tools/sibling_versions.py oldest FOLDER PACKAGE`
prints constraints for pip and uv: of each of our packages that `PACKAGE` needs, the oldest in `FOLDER` that the ranges
of all of them allow.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str], root: Path = ROOT) -> int:
    match arguments:
        case ["wheels", folder]:
            for tag in allowed_tags(root):
                build(root, tag, Path(folder))
                print(f"siblings: a wheel of {tag}")
        case ["oldest", folder, package]:
            print("\n".join(oldest(Path(folder), package)))
        case _:
            print(__doc__)
            return 2
    return 0


def allowed_tags(root: Path) -> list[str]:
    """Return the tags of versions other than those of now that some package of now may be installed with."""
    projects = [tomllib.loads(path.read_text("utf-8"))["project"] for path in root.glob("packages/*/pyproject.toml")]
    now = {project["name"]: Version(project["version"]) for project in projects}
    ranges: dict[str, list[SpecifierSet]] = {}
    for project in projects:
        for requirement in map(Requirement, project["dependencies"]):
            ranges.setdefault(requirement.name, []).append(requirement.specifier)
    listed = subprocess.run(["git", "tag"], cwd=root, check=True, capture_output=True, text=True).stdout.split()
    found = []
    for tag in listed:
        name, _, version = tag.rpartition("-v")
        if name in now and now[name] != Version(version) and any(version in r for r in ranges.get(name, ())):
            found.append(tag)
    return found


def build(root: Path, tag: str, folder: Path) -> None:
    """Build the wheel of a tagged version into a folder."""
    package = tag.rpartition("-v")[0].removeprefix("intarsia-").replace("intarsia", "pipeline")
    with tempfile.TemporaryDirectory() as scratch:
        archive = subprocess.run(
            ["git", "archive", tag, f"packages/{package}"], cwd=root, check=True, capture_output=True
        )
        subprocess.run(["tar", "x"], cwd=scratch, check=True, input=archive.stdout)
        how = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder))
        subprocess.run([*how, f"{scratch}/packages/{package}"], check=True)


def oldest(folder: Path, package: str) -> list[str]:
    """Return `name==version` for each sibling that a package needs, itself left out.

    Siblings of older siblings are asked as well: what is returned is one set that fits together.
    """
    wheels: dict[str, dict[Version, Path]] = {}
    for path in folder.glob("*.whl"):
        name, version, *_ = parse_wheel_filename(path.name)
        wheels.setdefault(name, {})[version] = path
    target = canonicalize_name(package)
    chosen: dict[str, Version] = {target: max(wheels[target])}
    while True:
        ranges: dict[str, SpecifierSet] = {}
        for name, version in chosen.items():
            for requirement in requirements(wheels[name][version]):
                sibling = canonicalize_name(requirement.name)
                if sibling in wheels and sibling != target:
                    ranges[sibling] = ranges.get(sibling, SpecifierSet()) & requirement.specifier
        fitting = {name: [v for v in sorted(wheels[name]) if v in allowed] for name, allowed in ranges.items()}
        if missing := [name for name, versions in fitting.items() if not versions]:
            raise SystemExit(f"{package}: no version of {', '.join(missing)} is in the ranges of all")
        found = {target: chosen[target], **{name: versions[0] for name, versions in fitting.items()}}
        if found == chosen:
            return [f"{name}=={version}" for name, version in sorted(found.items()) if name != target]
        chosen = found


def requirements(wheel: Path) -> list[Requirement]:
    """Return what a wheel needs, extras apart."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    every = map(Requirement, metadata.get_all("Requires-Dist") or ())
    return [
        requirement for requirement in every if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
