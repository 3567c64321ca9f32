"""What belongs to installed packages, and what to the program."""

from __future__ import annotations

import json
import site
import sysconfig
from pathlib import Path

import pytest

from intarsia_pyeval.trust import is_installed, is_installed_file


@pytest.mark.parametrize("folder", [sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()])
def test_every_folder_of_packages_that_the_interpreter_reads(folder):
    assert is_installed_file(str(Path(folder) / "package" / "part.py"))
    assert not is_installed_file(str(Path(folder).parent / "program.py"))


def test_functions():
    assert is_installed(json.dumps) and is_installed(pytest.fixture)
    assert not is_installed(test_functions)
