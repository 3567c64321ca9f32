"""Versions of siblings that a package may meet: wheels of released ones, and the oldest that all ranges allow.

`python tools/sibling_versions.py wheels FOLDER` adds to the wheels of now in `FOLDER` those of each released version
that a range of a sibling still allows, built from its commit (`releases.commit_of`).
`python tools/sibling_versions.py oldest FOLDER PACKAGE` prints constraints for pip and uv: of each of our packages that
`PACKAGE` needs, the oldest in `FOLDER` that the ranges of all of them allow.
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

sys.path.insert(0, str(Path(__file__).parent))
import releases

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str], root: Path = ROOT) -> int:
    match arguments:
        case ["wheels", folder]:
            for name, version in allowed_versions(root):
                commit = build(root, name, version, Path(folder))
                print(f"siblings: a wheel of {name} {version}, from {commit[:12]}")
        case ["oldest", folder, package]:
            print("\n".join(oldest(Path(folder), package)))
        case _:
            print(__doc__)
            return 2
    return 0


def allowed_versions(root: Path) -> list[tuple[str, str]]:
    """Return the folder and the version of each release, those of now left out, that some package may meet."""
    projects = [tomllib.loads(path.read_text("utf-8"))["project"] for path in root.glob("packages/*/pyproject.toml")]
    ranges: dict[str, list[SpecifierSet]] = {}
    for project in projects:
        for requirement in map(Requirement, project["dependencies"]):
            ranges.setdefault(requirement.name, []).append(requirement.specifier)
    return [
        (name, version)
        for name, (distribution, now) in releases.versions(root).items()
        for version in reversed(releases.released(root, name))
        if Version(version) != Version(now) and any(version in allowed for allowed in ranges.get(distribution, ()))
    ]


def build(root: Path, name: str, version: str, folder: Path) -> str:
    """Build the wheel of a released version into a folder; return the commit that it is made of."""
    commit = releases.commit_of(root, name, version)
    if commit is None:
        raise SystemExit(
            f"packages/{name}: {version} is in its changelog and neither its tag nor the commit that wrote it there is "
            "in this history: fetch the tags or the whole history, or raise the ranges of its siblings above it"
        )
    with tempfile.TemporaryDirectory() as scratch:
        archive = subprocess.run(
            ["git", "archive", commit, f"packages/{name}"], cwd=root, check=True, capture_output=True
        )
        subprocess.run(["tar", "x"], cwd=scratch, check=True, input=archive.stdout)
        build_wheel(Path(scratch, "packages", name), folder)
    return commit


def build_wheel(sources: Path, folder: Path) -> None:
    """Build the wheel of a package into a folder with the setuptools of this environment, which needs no pip."""
    # the hook of PEP 517 works on the current folder, and its backend is loaded afresh for each package
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder.resolve())], cwd=sources, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{sources.name}: its wheel can't be built:\n{done.stdout}{done.stderr}")


def oldest(folder: Path, package: str) -> list[str]:
    """Return `name==version` for each sibling that a package needs, itself left out.

    Siblings of older siblings are asked as well: what is returned is one set that fits together. A version that
    excludes the newest of what has to go along with it, such as one from before a breaking change, is passed over.
    """
    wheels: dict[str, dict[Version, Path]] = {}
    for path in folder.glob("*.whl"):
        name, version, *_ = parse_wheel_filename(path.name)
        wheels.setdefault(name, {})[version] = path
    target = canonicalize_name(package)
    chosen: dict[str, Version] = {target: max(wheels[target])}
    while True:
        asked = [
            (name, canonicalize_name(requirement.name), requirement.specifier)
            for name, version in chosen.items()
            for requirement in requirements(wheels[name][version])
            if canonicalize_name(requirement.name) in wheels
        ]
        found = {target: chosen[target], **oldest_allowed(wheels, target, asked)}
        if missing := [name for name in found if found[name] is None]:
            passed = {n for n, s, allowed in asked if s in missing and wheels[s] and max(wheels[s]) not in allowed}
            if not passed - {target}:
                raise SystemExit(f"{package}: no version of {', '.join(missing)} is in the ranges of all")
            for name in passed - {target}:
                del wheels[name][chosen[name]]
            found = {target: chosen[target]}
        elif found == chosen:
            return [f"{name}=={version}" for name, version in sorted(found.items()) if name != target]
        chosen = found


def oldest_allowed(
    wheels: dict[str, dict[Version, Path]], target: str, asked: list[tuple[str, str, SpecifierSet]]
) -> dict[str, Version | None]:
    """Return, for each sibling that is asked for, its oldest version in the ranges of all; None: there is none."""
    ranges: dict[str, SpecifierSet] = {}
    for _, sibling, allowed in asked:
        if sibling != target:
            ranges[sibling] = ranges.get(sibling, SpecifierSet()) & allowed
    return {name: next((v for v in sorted(wheels[name]) if v in allowed), None) for name, allowed in ranges.items()}


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
