"""Where the working directory was deleted there is another one meanwhile, and only meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from intarsia_dispatch.working_directory import some_working_directory


def test_a_directory_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with some_working_directory():
        assert Path.cwd() == tmp_path
    assert Path.cwd() == tmp_path


def test_a_deleted_directory_is_deleted_again_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    before = os.stat(".").st_ino
    folder.rmdir()
    with pytest.raises(ZeroDivisionError), some_working_directory():
        assert os.path.isdir(os.getcwd())
        raise ZeroDivisionError
    assert os.stat(".").st_ino == before
    with pytest.raises(FileNotFoundError):
        os.getcwd()
