"""What a release needs of the repository: a fragment for each changed package, and a tag for each version.

`python tools/releases.py changes [--base REF]` demands a fragment in `packages/P/changes` for each package whose
sources changed: since `REF`; without it, on a branch, since it left `main`, and on `main` since the package's last tag.
`python tools/releases.py tags [--make]` lists the tags that the versions of now should have, and makes those that are
missing, here and nowhere else. docs/releasing.md has both in their place.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("breaking", "feature", "fix")
FRAGMENT = re.compile(rf"[^/]+\.({'|'.join(KINDS)})(\.\d+)?\.md")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    commands = parser.add_subparsers(dest="command", required=True)
    changes = commands.add_parser("changes")
    changes.add_argument("--base", help="a commit, branch or tag")
    tags = commands.add_parser("tags")
    tags.add_argument("--make", action="store_true")
    given = parser.parse_args(arguments)
    if given.command == "changes":
        found = list(missing_fragments(given.root, given.base))
        print("\n".join(found) or "changes: every changed package has a fragment")
        return 1 if found else 0
    return make_tags(given.root) if given.make else list_tags(given.root)


# ---- fragments -------------------------------------------------------------------------------------------------


def missing_fragments(root: Path, base: str | None = None) -> Iterator[str]:
    """Yield a line for each package that changed without a fragment, and for each fragment of no known kind."""
    common = base or branch_point(root)
    for name, version in versions(root).items():
        folder = f"packages/{name}"
        for path in sorted((root / folder / "changes").glob("*.md")):
            if not FRAGMENT.fullmatch(path.name):
                yield f"{folder}/changes/{path.name}: a fragment is called NAME.KIND.md, the kind {' or '.join(KINDS)}"
        since = common or last_tag(root, name)
        changed = changed_since(root, since, folder)
        sources = [path for path in changed if path.startswith(f"{folder}/src/")]
        sources += [
            path for path in changed if path == f"{folder}/pyproject.toml" and ships_otherwise(root, since, path)
        ]
        told = [p for p in changed if is_told(p, folder)]
        if sources and not told:
            yield (
                f"{folder}: {len(sources)} file(s) changed since {since or 'the beginning'} ({sources[0]}, ...) and no "
                f"fragment tells of it: add {folder}/changes/+name.{KINDS[-1]}.md, one line for who uses {version[0]}"
            )


def is_told(path: str, folder: str) -> bool:
    """Tell whether a changed file tells users of a change: a fragment, or the changelog that it went into."""
    name = path.removeprefix(f"{folder}/changes/")
    return path == f"{folder}/CHANGELOG.md" or (name != path and FRAGMENT.fullmatch(name) is not None)


def ships_otherwise(root: Path, since: str | None, path: str) -> bool:
    """Tell whether what a wheel is made of differs between a commit's pyproject and that of now."""
    before = subprocess.run(["git", "show", f"{since}:{path}"], cwd=root, capture_output=True, text=True)
    return bool(before.returncode) or shipped(before.stdout) != shipped((root / path).read_text("utf-8"))


def shipped(pyproject: str) -> tuple[object, ...]:
    """Return the tables of a pyproject that say what is in a wheel."""
    read = tomllib.loads(pyproject)
    return read.get("project"), read.get("build-system"), read.get("tool", {}).get("setuptools")


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


def last_tag(root: Path, name: str) -> str | None:
    """Return the last tag of a package that HEAD has behind it."""
    distribution = versions(root)[name][0]
    how = ("git", "describe", "--tags", "--abbrev=0", "--match", tag_of(distribution, "[0-9]*"))
    found = subprocess.run(how, cwd=root, capture_output=True, text=True)
    return found.stdout.strip() or None


def list_tags(root: Path) -> int:
    """Print each tag, and whether it is there."""
    there = set(git(root, "tag").splitlines())
    for distribution, version in versions(root).values():
        tag = tag_of(distribution, version)
        print(f"{tag}  {'is there' if tag in there else 'missing'}")
    return 0


def make_tags(root: Path) -> int:
    """Make the tags that are missing; a version whose fragments aren't in its changelog yet is no release."""
    if git(root, "status", "--porcelain"):
        print("tags: there are changes that aren't committed")
        return 1
    there, unready, made = set(git(root, "tag").splitlines()), [], []
    for name, (distribution, version) in versions(root).items():
        if (tag := tag_of(distribution, version)) in there:
            continue
        if any(FRAGMENT.fullmatch(path.name) for path in (root / "packages" / name / "changes").iterdir()):
            unready.append(f"tags: packages/{name} has fragments that aren't in its CHANGELOG.md: docs/releasing.md")
            continue
        git(root, "tag", "-a", tag, "-m", f"{distribution} {version}")
        made.append(f"tags: made {tag}")
    print("\n".join([*made, *unready]) or "tags: all are there")
    return 1 if unready else 0


def git(root: Path, *arguments: str) -> str:
    """Return what a git command prints."""
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
