"""Starts drivers. A driver is a small program that uses a client library as it is told. README.md, "Drivers", describes
the requests and answers."""

import json
import os
import queue
import shlex
import signal
import subprocess
import threading

from .resp import PATIENCE_S, Gone


class Driver:
    """A running driver."""

    def __init__(self, command: str):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.next_id = 0
        self.answers: dict[int, queue.Queue] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") in self.answers:
                self.answers[answer["id"]].put(answer)
        for waiting in self.answers.values():
            waiting.put(None)

    def begin(self, request: dict) -> int:
        """Sends a request, and returns its number. `hear` returns its answer."""
        self.next_id += 1
        self.answers[self.next_id] = queue.Queue()
        try:
            self.process.stdin.write(json.dumps({"id": self.next_id} | request) + "\n")
            self.process.stdin.flush()
        except OSError as why:
            raise Gone(f"the driver has ended: {why}") from why
        return self.next_id

    def hear(self, number: int) -> dict:
        try:
            answer = self.answers[number].get(timeout=PATIENCE_S)
        except queue.Empty:
            raise Gone("the driver did not answer for a minute") from None
        if answer is None:
            raise Gone("the driver ended without an answer")
        return answer

    def is_silent(self, number: int) -> bool:
        return self.answers[number].empty()

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
