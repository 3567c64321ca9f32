"""What a release needs of the repository: fragments in changelogs, raised versions, a commit and a tag for each.

A version is released by the commit that puts its heading into the package's changelog; after it the package has the
next version, which isn't released yet. So what a version was made of is found without its tag, too.

`python tools/releases.py changes [--base REF]` demands a fragment in `packages/P/changes` for each package whose
sources changed: since `REF`; without it, on a branch, since it left `main`, and on `main` since its last version.
`python tools/releases.py gather [P ...]` makes the fragments a section of the changelog, with towncrier.
`python tools/releases.py raise [P ...]` gives each package whose version is released the next one, and one with a
fragment of the kind `breaking` the next second number, which the ranges of its siblings then begin at; `changes`
demands it.
`python tools/releases.py tags [--make]` lists the tag and the commit of each released version, and makes the tags that
are missing, here and nowhere else. docs/releasing.md has all of it in its place.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("breaking", "feature", "fix")
FRAGMENT = re.compile(rf"[^/]+\.({'|'.join(KINDS)})(\.\d+)?\.md")
HEADING = re.compile(r"^## (\d[\w.]*)\b", re.MULTILINE)
VERSION_LINE = re.compile(r"^__version__ = .*$", re.MULTILINE)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    commands = parser.add_subparsers(dest="command", required=True)
    changes = commands.add_parser("changes")
    changes.add_argument("--base", help="a commit, branch or tag")
    tags = commands.add_parser("tags")
    tags.add_argument("--make", action="store_true")
    for name in ("gather", "raise"):
        commands.add_parser(name).add_argument("packages", nargs="*", help="folders of packages; all of them if none")
    given = parser.parse_args(arguments)
    if given.command == "changes":
        found = list(missing_fragments(given.root, given.base))
        print("\n".join(found) or "changes: every changed package has a fragment")
        return 1 if found else 0
    if given.command == "tags":
        return make_tags(given.root) if given.make else list_tags(given.root)
    step = gather if given.command == "gather" else raise_version
    print("\n".join(filter(None, (step(given.root, name) for name in given.packages or versions(given.root)))))
    return 0


# ---- fragments -------------------------------------------------------------------------------------------------


def missing_fragments(root: Path, base: str | None = None) -> Iterator[str]:
    """Yield a line for each package that changed without a fragment, and for each fragment of no known kind."""
    common = base or branch_point(root)
    for name, version in versions(root).items():
        folder = f"packages/{name}"
        for path in sorted((root / folder / "changes").glob("*.md")):
            if not FRAGMENT.fullmatch(path.name):
                yield f"{folder}/changes/{path.name}: a fragment is called NAME.KIND.md, the kind {' or '.join(KINDS)}"
        if breaks_within_a_range(root, name):
            yield (
                f"{folder}: its fragments tell of a breaking change, and {version[1]} has the second number of the one "
                f"before, which is released: `python tools/releases.py raise {name}`"
            )
        since = common or last_release(root, name)
        changed = changed_since(root, since, folder)
        shipped = [p for p in changed if p.startswith(f"{folder}/src/") or p == f"{folder}/pyproject.toml"]
        sources = [path for path in shipped if ships_otherwise(root, since, path)]
        told = [p for p in changed if is_told(p, folder)]
        if sources and not told:
            yield (
                f"{folder}: {len(sources)} file(s) changed since {since or 'the beginning'} ({sources[0]}, ...) and no "
                f"fragment tells of it: add {folder}/changes/+name.{KINDS[-1]}.md, one line for who uses {version[0]}"
            )


def breaks_within_a_range(root: Path, name: str) -> bool:
    """Tell whether a package breaks what the version before it promised to those whose range has both."""
    breaking = list((root / "packages" / name / "changes").glob("*.breaking*.md"))
    before, now = released(root, name)[:1], versions(root)[name][1]
    return bool(breaking and before) and before[0].split(".")[:2] == now.split(".")[:2]


def is_told(path: str, folder: str) -> bool:
    """Tell whether a changed file tells users of a change: a fragment, or the changelog that it went into."""
    name = path.removeprefix(f"{folder}/changes/")
    return path == f"{folder}/CHANGELOG.md" or (name != path and FRAGMENT.fullmatch(name) is not None)


def ships_otherwise(root: Path, since: str | None, path: str) -> bool:
    """Tell whether what a wheel is made of differs between a commit's file and that of now, its version apart."""
    if not path.endswith(("/pyproject.toml", "/__init__.py")):
        return True
    before = subprocess.run(["git", "show", f"{since}:{path}"], cwd=root, capture_output=True, text=True)
    part = in_a_wheel if path.endswith(".toml") else lambda text: VERSION_LINE.sub("", text)
    return bool(before.returncode) or part(before.stdout) != part((root / path).read_text("utf-8"))


def in_a_wheel(pyproject: str) -> tuple[object, ...]:
    """Return the tables of a pyproject that say what is in a wheel, without the version."""
    read = tomllib.loads(pyproject)
    project = {key: value for key, value in read.get("project", {}).items() if key != "version"}
    return project, read.get("build-system"), read.get("tool", {}).get("setuptools")


def branch_point(root: Path) -> str | None:
    """Return where the branch left main; None on main or on a commit of it, and where there is no main."""
    known = subprocess.run(["git", "rev-parse", "-q", "--verify", "main"], cwd=root, capture_output=True)
    branch = git(root, "rev-parse", "--abbrev-ref", "HEAD")
    if known.returncode or branch == "main":
        return None
    point = git(root, "merge-base", "main", "HEAD")
    is_of_main = branch == "HEAD" and point == git(root, "rev-parse", "HEAD")
    return None if is_of_main else point[:12]


def changed_since(root: Path, since: str | None, folder: str) -> list[str]:
    """Return the files below a folder that were added or changed since a commit, not committed ones among them."""
    new = git(root, "ls-files", "--others", "--exclude-standard", "--", folder).splitlines()
    if since is None:
        return [*git(root, "ls-files", "--", folder).splitlines(), *new]
    return [*git(root, "diff", "--name-only", "--diff-filter=d", since, "--", folder).splitlines(), *new]


# ---- tags ------------------------------------------------------------------------------------------------------


def versions(root: Path) -> dict[str, tuple[str, str]]:
    """Return, by folder, the name of each distribution and its version."""
    projects = {
        path.parent.name: tomllib.loads(path.read_text("utf-8")) for path in root.glob("packages/*/pyproject.toml")
    }
    return {name: (read["project"]["name"], read["project"]["version"]) for name, read in sorted(projects.items())}


def tag_of(distribution: str, version: str) -> str:
    """Return the tag of a version."""
    return f"{distribution}-v{version}"


def released(root: Path, name: str) -> list[str]:
    """Return the versions in the changelog of a package, the newest first."""
    changelog = root / "packages" / name / "CHANGELOG.md"
    return HEADING.findall(changelog.read_text("utf-8")) if changelog.exists() else []


def commit_of(root: Path, name: str, version: str) -> str | None:
    """Return the commit that a version is made of: its tag's, else the one that put it into the changelog.

    None where the history doesn't reach back to it, or has it with sources of another version.
    """
    known = ("git", "rev-parse", "-q", "--verify", f"{tag_of(versions(root)[name][0], version)}^{{commit}}")
    if tagged := subprocess.run(known, cwd=root, capture_output=True, text=True).stdout.strip():
        return tagged
    path = f"packages/{name}/CHANGELOG.md"
    with_heading = git(root, "log", "--format=%H", f"-G^## {re.escape(version)}( |$)", "--", path).split()
    if not with_heading:
        return None
    before = git(root, "show", f"{with_heading[-1]}:packages/{name}/pyproject.toml")
    return with_heading[-1] if tomllib.loads(before)["project"]["version"] == version else None


def last_release(root: Path, name: str) -> str | None:
    """Return the commit of the last released version of a package that HEAD has behind it."""
    return next(filter(None, (commit_of(root, name, version) for version in released(root, name))), None)


def list_tags(root: Path) -> int:
    """Print each released version's tag, and whether it and the commit that it should be at are there."""
    there = set(git(root, "tag").splitlines())
    for name, (distribution, _) in versions(root).items():
        for version in released(root, name):
            commit, tag = commit_of(root, name, version) or "no commit", tag_of(distribution, version)
            print(f"{tag}  {'is there' if tag in there else 'missing'}, {commit[:12]}")
    return 0


def make_tags(root: Path) -> int:
    """Tag the commit of each released version that has no tag."""
    if git(root, "status", "--porcelain"):
        print("tags: there are changes that aren't committed")
        return 1
    there, lost, made = set(git(root, "tag").splitlines()), [], []
    for name, (distribution, _) in versions(root).items():
        for version in released(root, name):
            if (tag := tag_of(distribution, version)) in there:
                continue
            if (commit := commit_of(root, name, version)) is None:
                lost.append(f"tags: no commit of {tag} is in this history")
                continue
            git(root, "tag", "-a", tag, commit, "-m", f"{distribution} {version}")
            made.append(f"tags: made {tag}")
    print("\n".join([*made, *lost]) or "tags: all are there")
    return 1 if lost else 0


# ---- versions --------------------------------------------------------------------------------------------------


def gather(root: Path, name: str) -> str:
    """Make the fragments of a package the section of its version in its changelog; return what was done."""
    folder, version = root / "packages" / name, versions(root)[name][1]
    if version in released(root, name):
        return f"{folder.name}: {version} is released already; raise its version first"
    fragments = [path for path in sorted((folder / "changes").iterdir()) if FRAGMENT.fullmatch(path.name)]
    if not fragments:
        return ""
    config = Path(__file__).with_name("towncrier.toml")
    how = (sys.executable, "-m", "towncrier", "build", "--config", str(config), "--dir", str(folder), "--yes")
    subprocess.run([*how, "--version", version], cwd=root, check=True, capture_output=True)
    (folder / "changes").mkdir(exist_ok=True)
    (folder / "changes" / ".gitignore").write_text("!.gitignore\n", encoding="utf-8")
    return f"{folder.name}: {len(fragments)} fragments are in the changelog of {version}"


def raise_version(root: Path, name: str) -> str:
    """Give a package whose version is released, or breaks what it promised, the next one; return what was done."""
    folder, (distribution, version) = root / "packages" / name, versions(root)[name]
    breaks = breaks_within_a_range(root, name)
    if version not in released(root, name) and not breaks:
        return ""
    major, minor, patch = map(int, version.split("."))
    following = f"{major}.{minor + 1}.0" if breaks else f"{major}.{minor}.{patch + 1}"
    module = folder / "src" / distribution.replace("-", "_") / "__init__.py"
    for path, line in ((folder / "pyproject.toml", "version"), (module, "__version__")):
        text = path.read_text("utf-8")
        if text.count(f'\n{line} = "{version}"\n') != 1:
            raise SystemExit(f'{path}: no line, or several, {line} = "{version}"')
        text = text.replace(f'\n{line} = "{version}"\n', f'\n{line} = "{following}"\n')
        path.write_text(text, encoding="utf-8")
    if not breaks:
        return f"{folder.name}: {version} is released, its version is {following}"
    follow(root, distribution, f">={major}.{minor + 1},<{major}.{minor + 2}")
    return f"{folder.name}: it breaks what {version} promised, its version is {following}"


def follow(root: Path, distribution: str, allowed: str) -> None:
    """Make a range of versions that of every sibling that needs a distribution."""
    for path in sorted(root.glob("packages/*/pyproject.toml")):
        text = path.read_text("utf-8")
        path.write_text(re.sub(rf'(["\']){distribution}>=[^"\']*\1', rf"\g<1>{distribution}{allowed}\1", text), "utf-8")


def git(root: Path, *arguments: str) -> str:
    """Return what a git command prints."""
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
