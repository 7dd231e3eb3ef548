"""Builds wheel and source archive, and checks that the installed package works and has types."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from servers import ROOT, Node

PACKAGE = ROOT / "python"
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")


def run(*words: str | Path) -> str:
    """Returns the output of a program that succeeded."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both, as they are published."""
    folder = tmp_path_factory.mktemp("package")
    source, dist = folder / "source", folder / "dist"
    shutil.copytree(PACKAGE / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", *LICENCES):
        shutil.copy(PACKAGE / name, source)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source)
    return dist


@pytest.fixture(scope="module")
def python(built: Path) -> Path:
    """A clean environment with the wheel installed."""
    environment = built.parent / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    [wheel] = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", environment, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", f"{wheel}[prometheus]")
    return environment / "bin/python"


def test_wheel_and_source_archive_have_what_belongs_there(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    [archive] = built.glob("*.tar.gz")
    installed = zipfile.ZipFile(wheel)
    names = installed.namelist()
    assert "palisade_client/py.typed" in names
    for licence in LICENCES:
        [name] = [name for name in names if name.endswith(f"/licenses/{licence}")]
        assert installed.read(name) == (ROOT / licence).read_bytes()
    with tarfile.open(archive) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
    assert {"pyproject.toml", "README.md", *LICENCES, "src/palisade_client/aio.py"} <= inside


def test_the_examples_of_the_readme_run_in_a_clean_environment(python: Path, a_node: Node, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    wrote = ""
    for n, example in enumerate(examples):
        file = tmp_path / f"example{n}.py"
        file.write_text(example.replace("redis://localhost:6379", a_node.url))
        wrote += run(python, "-W", "error", file)
    expected = r"pay with token \d{16}\nOnce\(ran=True, value='done'\) Once\(ran=False, value=None\)\nworked\n"
    expected += r"\{'state': 'paid', 'before': 'new'\}\ntaken-away\n"
    assert re.fullmatch(expected, wrote), wrote


TYPED = """
import asyncio
from datetime import timedelta

from palisade_client import AsyncPalisade, Leader, Lock, Loss, Once, Palisade, Permit


def work(locks: Palisade) -> int:
    with locks.lock("k", ttl=timedelta(seconds=10), wait=None) as lock, lock.reenter() as inner:
        taken: Lock = inner
    permit: Permit | None = locks.semaphore(b"\\xff", 3).try_acquire(ttl=1.5)
    for leader in locks.election("e").observe():
        known: Leader | None = leader
    ran: Once[int] = nightly(3)
    loss: Loss | None = lock.lost.wait(1)
    return taken.token + (permit.number if permit else 0) + (ran.value or 0)


locks = Palisade("redis://localhost")


@locks.once("nightly", min_hold=50)
def nightly(number: int) -> int:
    return number


async def later(locks: AsyncPalisade) -> int:
    async with locks.lock("k") as lock, locks.semaphore("s", 2).acquire() as permit:
        async with locks.election("e").campaign("me") as leadership:
            return lock.token + permit.number + leadership.term


nightly("three")  # type: ignore[arg-type]
locks.lock("k", wait="1")  # type: ignore[arg-type]
locks.lock("k", tll=1)  # type: ignore[call-arg]
asyncio.run(later(AsyncPalisade("redis://localhost")))
"""


def test_what_is_installed_has_types(python: Path, tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    # mypy has known the standard library since the package was checked.
    cache = ROOT / "target" / "python" / "mypy"
    run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, "--python-executable", python, file)
