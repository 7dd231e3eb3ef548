"""Plays scenarios of commands: sends the commands of each step on its connection, and checks the answers."""

import re
import time

from .expect import Mismatch, Moments, World, check
from .resp import PATIENCE_S, Connection, Gone, Reply
from .target import Target
from .words import Saved

# The time in which a request that must wait may be answered wrongly. No correct answer depends on this time.
SILENT_S = 0.02
ASK_AGAIN_S = 0.005
# The longest time for which a request is repeated that is refused with NOTYET. A node that has just started writes its
# state first.
READY_WITHIN_S = 30.0


def boot_ms() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


class Failed(Exception):
    """The outcome of a step differs from what the scenario expects."""

    def __init__(self, step: int, said: str, expected: str, got: str):
        super().__init__(f"step {step}: {said}")
        self.step, self.said, self.expected, self.got = step, said, expected, got


class Play:
    """One scenario on one server or agent."""

    def __init__(self, target: Target, scenario: dict, prefix: str):
        self.target, self.scenario = target, scenario
        self.world = World(Saved(prefix), is_quorum=target.is_quorum)
        self.connections: dict[str, Connection] = {}
        self.sent: dict[str, Moments] = {}

    def run(self) -> None:
        try:
            for number, step in enumerate(self.scenario["steps"], 1):
                try:
                    self.step(step)
                except Mismatch as why:
                    raise Failed(number, told(step), why.expected, why.got) from why
                except (Gone, OSError) as why:
                    raise Failed(number, told(step), "an answer", str(why)) from why
        finally:
            for connection in self.connections.values():
                connection.close()

    def connection(self, name: str, resp: int | None = None) -> Connection:
        if name not in self.connections:
            self.connections[name] = self.target.connect(resp)
        return self.connections[name]

    def step(self, step: dict) -> None:
        on = step.get("on", "me")
        match step:
            case {"connect": name}:
                self.connection(name, step["resp"])
            case {"say": words}:
                self.until(step, lambda: self.say(on, words, step))
            case {"bytes": text}:
                connection = self.connection(on)
                connection.send_bytes(text.encode("latin-1"))
                self.judge(step, connection.hear(), Moments(0, 0), connection.resp)
            case {"send": words}:
                self.sent[on] = Moments(boot_ms())
                self.connection(on).send(self.packed(words))
                self.note(step, self.sent[on])
            case {"hear": _}:
                connection = self.connections[on]
                reply = connection.hear()
                moments = Moments(self.sent[on].sent, boot_ms())
                self.judge(step | {"expect": step["hear"]}, reply, moments, connection.resp)
            case {"silent": name}:
                if self.connections[name].has_answer(SILENT_S):
                    raise Mismatch("no answer yet", self.connections[name].hear())
            case {"hang_up": name}:
                self.connections.pop(name).close()
            case {"ended": name}:
                self.connections.pop(name).hear_the_end()
            case {"waiting": count}:
                self.wait_for(count, self.packed([step.get("for", "$k")])[0])
            case {"server": what}:
                for connection in self.connections.values():
                    connection.close()
                self.connections.clear()
                self.target.server.restart(lift=what == "restart and lift")
            case {"pause_ms": ms}:
                time.sleep(ms / 1000)

    def packed(self, words: list) -> list[bytes]:
        return [self.world.saved.bytes(word) for word in words]

    def say(self, on: str, words: list, step: dict) -> None:
        connection, words = self.connection(on), self.packed(words)
        by = time.monotonic() + READY_WITHIN_S
        while True:
            moments = Moments(boot_ms())
            reply = connection.say(words)
            moments.answered = boot_ms()
            is_late = time.monotonic() > by or "NOTYET" in str(step.get("expect"))
            if is_late or reply.kind != "error" or not reply.value.startswith("NOTYET "):
                break
            time.sleep(ASK_AGAIN_S)
        self.judge(step, reply, moments, connection.resp)

    def until(self, step: dict, run) -> None:
        """Runs the step once, or, for a step with `until`, again until its outcome is the expected one."""
        by = time.monotonic() + PATIENCE_S
        while True:
            try:
                return run()
            except Mismatch:
                if not step.get("until") or time.monotonic() > by:
                    raise
            time.sleep(ASK_AGAIN_S)

    def note(self, step: dict, moments: Moments) -> None:
        if "as" in step:
            self.world.moments[step["as"]] = moments

    def judge(self, step: dict, reply: Reply, moments: Moments, resp: int) -> None:
        self.world.now, self.world.resp = moments, resp
        if "raw" in step and not re.fullmatch(step["raw"].encode("latin-1"), reply.raw):
            raise Mismatch(f"the bytes {step['raw']}", repr(reply.raw))
        if "expect" in step:
            check(step["expect"], reply, self.world)
        if "takes_least_ms" in step and moments.answered - moments.sent < step["takes_least_ms"] * 0.99 - 2:
            raise Mismatch(f"an answer after {step['takes_least_ms']} ms at the earliest",
                           f"{reply} after {moments.answered - moments.sent:.0f} ms")
        if "not_before" in step:
            # Promise P1: until this time the holder relied on its lock.
            first, ms = self.world.moments[step["not_before"]["step"]], step["not_before"]["ms"]
            if moments.answered < first.sent + ms * 0.99 - 2:
                raise Mismatch(f"no such answer within {ms} ms of the step {step['not_before']['step']}",
                               f"{reply} after {moments.answered - first.sent:.0f} ms")
        self.note(step, moments)

    def wait_for(self, count: int, key: bytes) -> None:
        """Waits until exactly `count` requests wait for the lock."""
        connection, by = self.connection("someone who looks"), time.monotonic() + PATIENCE_S
        while not self.target.has_waiters(count, connection, key):
            if time.monotonic() > by:
                raise Mismatch(f"{count} who wait", "another number, for a minute")
            time.sleep(ASK_AGAIN_S)


def told(step: dict) -> str:
    """Returns the step as a text for people."""
    for verb in ("say", "send"):
        if verb in step:
            words = " ".join(word if isinstance(word, str) and word else repr(word) for word in step[verb])
            return f"{step['on']}: {words}" if "on" in step else words
    [verb] = [name for name in step if name in ("bytes", "hear", "silent", "hang_up", "ended", "waiting", "server", "pause_ms", "connect")]
    return f"the answer to {step.get('on', 'me')}" if verb == "hear" else f"{verb} {step[verb]!r}"
