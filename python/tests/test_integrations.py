"""The recipes of docs/clients/integrations.md, with the libraries that they are for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from servers import PROGRAM, ROOT, Node, free_ports
from waiting import at_last

PAGE = ROOT / "docs" / "clients" / "integrations.md"

# The work of all recipes: it counts who does it at once, and goes on until a key is gone.
SHOP = """
import time
import redis

data = redis.Redis.from_url("redis://localhost:6379")

def rebuild_index(shop, token):
    data.incr("begun")
    data.rpush("inside", data.incr("now"))
    while data.exists("work"):
        time.sleep(0.01)
    data.decr("now")
    data.incr("done")

def send_reports():
    data.incr("sent")
"""


class Program:
    """A running program, and what it has written."""

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str], output: Path) -> None:
        self._output = output
        with output.open("w") as file:
            # Its own children end with it.
            self.process = subprocess.Popen(
                words, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def wrote(self) -> str:
        return self._output.read_text()

    def ends_with(self, status: int) -> None:
        assert self.process.wait() == status, self.wrote

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Site:
    """A folder with the recipes, a node that they use, and programs that end with the test."""

    def __init__(self, node: Node, port: int, folder: Path) -> None:
        self.url = f"redis://127.0.0.1:{port}"
        self.folder = folder
        self.data = node.outside.client
        self.outside = node.outside
        self.programs: list[Program] = []
        for name, text in re.findall(r"```python (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
            self.write(name, text)
        self.write("shop/__init__.py", SHOP)
        self.write("shop/index.py", "from shop import rebuild_index")

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("redis://localhost:6379", self.url))

    def start(self, *words: str) -> Program:
        environment = {
            **os.environ,
            "PATH": f"{PROGRAM.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'python' / 'src'}:{self.folder}",
            "PALISADE_NODES": self.url,
        }
        program = Program(list(words), self.folder, environment, self.folder / f"{len(self.programs)}.out")
        self.programs.append(program)
        return program

    def becomes(self, key: str, number: int) -> None:
        at_last(f"{key} becomes {number}", lambda: int(self.data.get(key) or 0) == number)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    [port] = free_ports(1)
    with Node(port=port) as node:
        site = Site(node, port, tmp_path)
        yield site
        for program in site.programs:
            program.end()


def test_a_celery_task_runs_once_at_a_time(site: Site) -> None:
    site.data.set("work", 1)
    site.start("celery", "--app", "tasks", "worker", "--concurrency", "3", "--pool", "prefork", "--without-gossip")
    site.write("send.py", "from tasks import rebuild\nfor _ in range(3):\n    rebuild.delay('here')")
    site.start(sys.executable, "send.py").ends_with(0)
    site.becomes("begun", 1)
    at_last("the others are refused", lambda: site.outside.acquires() >= 3)
    assert site.data.get("begun") == "1"
    site.data.delete("work")
    site.becomes("done", 3)
    assert site.data.lrange("inside", 0, -1) == ["1", "1", "1"]


def test_one_beat_of_celery_runs(site: Site) -> None:
    [command] = re.findall(r"```sh\n(palisade exec .*?)\n```", PAGE.read_text())

    def begins(program: Program) -> None:
        at_last("its Beat runs", lambda: "beat: Starting..." in program.wrote)

    first = site.start(*command.split(), "--loglevel", "INFO")
    begins(first)
    second = site.start(*command.split(), "--loglevel", "INFO")
    at_last("the second waits", lambda: users(site) == (1, 1))
    assert "Starting" not in second.wrote
    first.process.terminate()
    begins(second)
    assert users(site) == (1, 0)


def users(site: Site) -> tuple[int, int]:
    """Returns the numbers of holders and waiters of the lock of Beat."""
    # The owners of the program are no text.
    with redis.Redis.from_url(site.url, protocol=3) as raw:
        info = raw.execute_command("LOCK.INFO", "celery-beat")
    return (info[b"holders"], info[b"waiters"]) if info else (0, 0)


def test_a_job_of_apscheduler_runs_on_one_host(site: Site) -> None:
    schedule = (site.folder / "schedule.py").read_text()
    assert '"cron", hour=3' in schedule
    # At once instead of at three, and then the program ends.
    ends = 'scheduler.add_listener(lambda _: print("over", flush=True), 4096)\nscheduler.start()'
    site.write("schedule.py", schedule.replace('"cron", hour=3', '"date"').replace("scheduler.start()", ends))
    hosts = [site.start(sys.executable, "schedule.py") for _ in range(2)]
    at_last("both have run the job", lambda: [host.wrote for host in hosts] == ["over\n", "over\n"])
    assert site.data.get("sent") == "1"


def test_a_command_of_django_refuses_to_run_beside_itself(site: Site) -> None:
    settings = (site.folder / "settings.py").read_text()
    site.write("settings.py", settings + 'INSTALLED_APPS = ["shop"]\nSECRET_KEY = "of a test"\n')
    for folder in ("management", "management/commands"):
        site.write(f"shop/{folder}/__init__.py", "")
    command = ("django-admin", "rebuild", "--settings", "settings", "--skip-checks")
    site.data.set("work", 1)
    first = site.start(*command)
    site.becomes("begun", 1)
    second = site.start(*command)
    second.ends_with(1)
    assert second.wrote == "CommandError: rebuild runs already\n"
    site.data.delete("work")
    first.ends_with(0)
    assert site.data.get("begun") == "1"


LENT = """
import redis
from palisade_lock import LockError, PalisadeLock, locks

client = redis.Redis.from_url("redis://localhost:6379")
options = {"timeout": 30, "lock_class": PalisadeLock}
with client.lock("orders:42", **options) as lock:
    assert lock.owned() and locks.try_lock("lock:orders:42") is None
    other = client.lock("orders:42", **options)
    assert not other.acquire(blocking=False) and not other.acquire(blocking_timeout=0.05)
assert other.acquire()
token = other.lock.token
client.execute_command("LOCK.BREAK", "lock:orders:42")
try:
    other.release()
except LockError as error:
    print(error, "with a token", token > 0)
locks.close()
"""


def test_redis_py_lends_its_method_to_locks(site: Site) -> None:
    site.write("lent.py", LENT)
    program = site.start(sys.executable, "-W", "error", "lent.py")
    program.ends_with(0)
    assert program.wrote == "the lock orders:42 was not held with a token True\n"


def test_the_page_names_the_versions_that_run() -> None:
    pinned = (ROOT / "python" / "tests" / "requirements.txt").read_text()
    for library, name in (("Celery", "celery"), ("APScheduler", "apscheduler"), ("Django", "django"), ("redis-py", "redis")):
        [version] = re.findall(rf"^{name}==(\d+\.\d+)", pinned, re.MULTILINE)
        assert f"{library} {version}" in PAGE.read_text().replace("\n", " ")
