"""What a release needs: fragments of changed packages, tags of versions, siblings that fit together."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import releases
import sibling_names
import sibling_versions
import wheel_tags


class Repository:
    """A repository of two packages, b needing a."""

    def __init__(self, root):
        self.root = root
        self.git("init", "-q", "-b", "main")
        for name in "ab":
            self.project(name, "0.1.0", *(["intarsia-a>=0.1,<0.2"] if name == "b" else []))
            self.write(name, f"src/intarsia_{name}/__init__.py", "x = 1\n")
            self.write(name, "CHANGELOG.md", "")
            self.write(name, "changes/+first.feature.md", "It is there.\n")
        self.commit()

    def git(self, *arguments):
        who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *who, *arguments], cwd=self.root, check=True, capture_output=True, text=True
        ).stdout

    def write(self, package, path, text):
        file = self.root / "packages" / package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def project(self, package, version, *needs):
        lines = ["[project]", f'name = "intarsia-{package}"', f'version = "{version}"', f"dependencies = {[*needs]!r}"]
        self.write(package, "pyproject.toml", "\n".join([*lines, "[tool.setuptools]", ""]))

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A commit", "--allow-empty")

    def missing(self, base=None):
        return [line.partition(":")[0] for line in releases.missing_fragments(self.root, base)]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    return Repository(tmp_path)


def test_a_branch_needs_a_fragment_for_each_changed_package(repository):
    assert repository.missing() == []
    repository.git("checkout", "-q", "-b", "work")
    repository.write("a", "src/intarsia_a/__init__.py", "x = 2\n")
    repository.write("b", "README.md", "Words.\n")
    assert repository.missing() == ["packages/a"]  # committed or not
    repository.commit()
    assert repository.missing() == repository.missing("main") == ["packages/a"]
    repository.write("a", "changes/+second.fix.md", "It is 2.\n")
    assert repository.missing() == []


def test_what_a_wheel_is_made_of_counts_as_source(repository):
    repository.git("checkout", "-q", "-b", "work")
    repository.project("b", "0.1.0", "intarsia-a>=0.1,<0.3")
    assert repository.missing() == ["packages/b"]
    repository.project("b", "0.1.0", "intarsia-a>=0.1,<0.2")
    file = repository.root / "packages/b/pyproject.toml"
    file.write_text(file.read_text() + "[tool.other]\nx = 1\n")
    assert repository.missing() == []


def release(repository, *names):
    """Write the changelog of a package's version, as towncrier does, and commit."""
    for name in names:
        _, version = releases.versions(repository.root)[name]
        changelog = repository.root / f"packages/{name}/CHANGELOG.md"
        for path in (repository.root / f"packages/{name}/changes").glob("*.md"):
            path.unlink()
        changelog.write_text(f"## {version} (2026-11-30)\n\n- It is there.\n\n{changelog.read_text()}")
    repository.commit()
    return repository.git("rev-parse", "HEAD").strip()


def test_on_main_a_fragment_since_the_last_release_is_needed(repository, capsys):
    assert releases.make_tags(repository.root) == 0 and not repository.git("tag")  # nothing is released
    commit = release(repository, "a", "b")
    repository.write("b", "README.md", "Words.\n")
    assert releases.make_tags(repository.root) == 1 and "aren't committed" in capsys.readouterr().out
    repository.commit()
    assert releases.make_tags(repository.root) == 0
    assert repository.git("tag").split() == ["intarsia-a-v0.1.0", "intarsia-b-v0.1.0"]
    assert repository.git("rev-parse", "intarsia-a-v0.1.0^{commit}").strip() == commit
    for tagged in (True, False):
        assert repository.missing() == []
        repository.write("b", "src/intarsia_b/__init__.py", f"x = {tagged}\n")
        repository.commit()
        assert repository.missing() == ["packages/b"]
        repository.write("b", "src/intarsia_b/__init__.py", "x = 1\n")
        repository.git("tag", "-d", *repository.git("tag").split())


def test_a_released_package_gets_the_next_version_and_no_other_does(repository):
    for name in "ab":
        repository.write(name, f"src/intarsia_{name}/__init__.py", '\n__version__ = "0.1.0"\n')
    release(repository, "a")
    said = [releases.raise_version(repository.root, name) for name in "abab"]
    assert said == ["a: 0.1.0 is released, its version is 0.1.1", "", "", ""]
    assert releases.versions(repository.root) == {"a": ("intarsia-a", "0.1.1"), "b": ("intarsia-b", "0.1.0")}
    assert '"0.1.1"' in (repository.root / "packages/a/src/intarsia_a/__init__.py").read_text()
    assert repository.missing() == [], "another version alone tells users nothing"


def test_a_breaking_change_raises_the_second_number(repository, capsys):
    for name in "ab":
        repository.write(name, "CHANGELOG.md", "## 0.1.0 (2026-11-30)\n")
    repository.project("a", "0.1.1")
    repository.write("a", "src/intarsia_a/__init__.py", '__all__ = []\n__version__ = "0.1.1"\n')
    repository.write("b", "src/intarsia_b/__init__.py", '__all__ = []\n__version__ = "0.1.0"\n')
    repository.write("a", "changes/+other.fix.md", "It is right.\n")
    repository.commit()
    assert repository.missing() == []
    repository.write("a", "changes/+gone.breaking.md", "It is gone.\n")
    repository.commit()
    (line,) = releases.missing_fragments(repository.root)
    assert "packages/a: its fragments tell of a breaking change, and 0.1.1" in line and "raise a" in line
    assert releases.main(["--root", str(repository.root), "raise", "a"]) == 0
    assert "its version is 0.2.0" in capsys.readouterr().out
    assert releases.versions(repository.root)["a"] == ("intarsia-a", "0.2.0")
    assert "'intarsia-a>=0.2,<0.3'" in (repository.root / "packages/b/pyproject.toml").read_text()
    repository.write("b", "changes/+range.fix.md", "It needs another.\n")
    assert repository.missing() == [] and releases.raise_version(repository.root, "a") == ""


def test_fragments_become_a_section_of_the_changelog(repository):
    pytest.importorskip("towncrier")
    (repository.root / "packages/a/CHANGELOG.md").write_text("# Changelog\n\n<!-- towncrier release notes start -->\n")
    assert releases.gather(repository.root, "a") == "a: 1 fragments are in the changelog of 0.1.0"
    assert releases.released(repository.root, "a") == ["0.1.0"]
    assert "- It is there." in (repository.root / "packages/a/CHANGELOG.md").read_text()
    assert [path.name for path in (repository.root / "packages/a/changes").iterdir()] == [".gitignore"]
    assert "released already" in releases.gather(repository.root, "a")


def test_the_commit_of_a_version_is_found_without_its_tag(repository):
    first = release(repository, "a")
    repository.project("a", "0.1.1")
    second = release(repository, "a")
    repository.project("a", "0.1.2")
    repository.commit()
    find = lambda version: releases.commit_of(repository.root, "a", version)
    assert (find("0.1.0"), find("0.1.1"), find("0.1.2"), find("0.1")) == (first, second, None, None)
    repository.git("tag", "-a", "intarsia-a-v0.1.0", f"{second}", "-m", "A tag")
    assert find("0.1.0") == second, "a tag says it"


def test_a_history_without_the_release_has_no_commit_of_it(repository):
    """As where all of it became one commit: sources of another version aren't taken for those of the released one."""
    release(repository, "a")
    repository.project("a", "0.1.1")
    repository.git("checkout", "-q", "--orphan", "flat")
    repository.commit()
    assert releases.commit_of(repository.root, "a", "0.1.0") is None
    with pytest.raises(SystemExit, match=r"0\.1\.0 is in its changelog and neither its tag"):
        sibling_versions.build(repository.root, "a", "0.1.0", repository.root)


def test_fragments_have_a_kind(repository):
    repository.write("a", "changes/+second.bugfix.md", "Words.\n")
    assert repository.missing() == ["packages/a/changes/+second.bugfix.md"]


def test_released_versions_in_a_range_are_built_and_others_are_not(repository):
    for version in ("0.1.0", "0.1.1", "0.2.0", "0.1.2"):
        repository.project("a", version)
        release(repository, "a")
    release(repository, "b")  # nobody needs b
    repository.project("b", "0.1.1", "intarsia-a>=0.1,<0.2")
    assert sibling_versions.allowed_versions(repository.root) == [("a", "0.1.0"), ("a", "0.1.1")]


def test_the_wheel_of_a_released_version_has_its_sources(repository, tmp_path_factory):
    repository.write("a", "src/intarsia_a/__init__.py", "x = 'old'\n")
    first = release(repository, "a")
    repository.project("a", "0.1.1")
    repository.write("a", "src/intarsia_a/__init__.py", "x = 'new'\n")
    repository.commit()
    folder = tmp_path_factory.mktemp("wheels")
    assert sibling_versions.build(repository.root, "a", "0.1.0", folder) == first
    with zipfile.ZipFile(folder / "intarsia_a-0.1.0-py3-none-any.whl") as archive:
        assert archive.read("intarsia_a/__init__.py") == b"x = 'old'\n"


def wheel(folder, name, version, *needs, **modules):
    file = f"intarsia_{name}-{version}"
    with zipfile.ZipFile(folder / f"{file}-py3-none-any.whl", "w") as archive:
        lines = [f"Name: intarsia-{name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in needs)]
        archive.writestr(f"{file}.dist-info/METADATA", "\n".join(["Metadata-Version: 2.1", *lines, "", ""]))
        for module, text in modules.items():
            archive.writestr(f"intarsia_{name}/{module}.py", text)


def test_the_oldest_siblings_fit_together(tmp_path):
    for version in ("0.1.0", "0.1.1", "0.1.2", "0.2.0"):
        wheel(tmp_path, "ir", version)
    wheel(tmp_path, "shapes", "0.1.0", "intarsia-ir>=0.1.1,<0.2", "torch>=2.11")
    wheel(tmp_path, "shapes", "0.1.1", "intarsia-ir>=0.1.2,<0.2")
    wheel(tmp_path, "fuser", "0.1.0", "intarsia-ir>=0.1,<0.2", "intarsia-shapes>=0.1", "intarsia-ir>=9; extra == 'x'")
    assert sibling_versions.oldest(tmp_path, "intarsia-fuser") == ["intarsia-ir==0.1.1", "intarsia-shapes==0.1.0"]
    assert sibling_versions.oldest(tmp_path, "intarsia-ir") == []
    wheel(tmp_path, "shapes", "0.1.2", "intarsia-ir>=0.2,<0.3")
    wheel(tmp_path, "loops", "0.1.0", "intarsia-ir>=0.2,<0.3", "intarsia-shapes>=0.1")
    assert sibling_versions.oldest(tmp_path, "intarsia-loops") == ["intarsia-ir==0.2.0", "intarsia-shapes==0.1.2"]
    wheel(tmp_path, "study", "0.1.0", "intarsia-ir>=0.3")
    with pytest.raises(SystemExit, match="no version of intarsia-ir"):
        sibling_versions.oldest(tmp_path, "intarsia-study")


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("cp311-cp311-manylinux_2_34_x86_64", None),
        ("cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64", None),
        ("cp311-cp311-linux_x86_64", "tag doesn't say"),
        ("cp311-abi3-manylinux_2_34_x86_64", "one interpreter and its ABI"),
        ("py3-none-any", "one interpreter and its ABI"),
    ],
)
def test_tags_of_wheels_with_native_code(tag, found, tmp_path):
    _, version = releases.versions(releases.ROOT)["framehook"]
    (tmp_path / f"intarsia_framehook-{version}-{tag}.whl").touch()
    told = [line for line in wheel_tags.findings(tmp_path) if "framehook" in line]
    assert (found is None and told == []) or found in told[0]


def test_a_range_holds_where_every_version_in_it_has_what_is_imported(tmp_path):
    wheel(tmp_path, "ir", "0.1.0", __init__="", facts="def old(): pass\nboth = 1")
    wheel(tmp_path, "ir", "0.1.1", __init__="", facts="def new(): pass\nboth = 1")
    late = "def f():\n    from intarsia_ir.facts import both, new"
    wheel(tmp_path, "shapes", "0.1.0", "intarsia-ir>=0.1,<0.2", __init__="", env=late)
    wheel(tmp_path, "shapes", "0.1.1", "intarsia-ir>=0.1.1,<0.2", __init__="", env=late)
    wheel(tmp_path, "fuser", "0.1.0", "intarsia-ir>=0.1,<0.2", __init__="from intarsia_ir import facts\nfacts.old()")
    told = [line.partition(": ")[2] for line in sibling_names.findings(tmp_path)]
    takes = "{} takes intarsia_ir.facts.{}, which intarsia_ir-{}-py3-none-any.whl lacks"
    assert told == [
        takes.format("intarsia_fuser:2", "old", "0.1.1"),
        takes.format("intarsia_shapes.env:2", "new", "0.1.0"),
    ]
