"""Plays scenarios of client libraries. A driver performs the steps with the library. The runner does everything else:
it changes the server, the connection and other clients."""

import re
import signal
import time

from .commands import ASK_AGAIN_S, READY_WITHIN_S, SILENT_S, Failed
from .drivers import Driver
from .expect import Mismatch, Moments, World, check
from .resp import PATIENCE_S, Connection, Gone, Reply, parsed
from .servers import Agent, Node
from .way import Way, boot_ms
from .words import Saved


class Unsupported(Exception):
    """The library lacks the feature that the scenario is about."""


def as_reply(value: object) -> Reply:
    """Returns a driver's answer as a reply of a server, so that the same expectations can be checked."""
    match value:
        case None:
            return Reply("null", None)
        case bool():
            return Reply("boolean", value)
        case int():
            return Reply("integer", value)
        case float():
            return Reply("integer", int(value))
        case str():
            return Reply("text", value.encode())
        case list():
            return Reply("list", [as_reply(one) for one in value])
        case dict():
            return Reply("map", [(as_reply(name), as_reply(one)) for name, one in value.items()])
    raise ValueError(value)


class ClientPlay:
    """One scenario with one library. A scenario that stops or restarts its server, or needs an agent, has its own."""

    def __init__(self, driver: Driver, scenario: dict, prefix: str, node: Node | Agent):
        self.driver, self.scenario, self.node = driver, scenario, node
        self.world = World(Saved(prefix))
        self.under_way: dict[str, int] = {}

    def run(self) -> None:
        self.way = Way(self.node.address)
        self.outside: Connection | None = None
        try:
            try:
                behind = {"agent": True} if isinstance(self.node, Agent) else {}
                self.heard(self.driver.begin({"do": "open", "address": self.way.address} | behind))
            except Gone as why:
                raise Failed(0, "open", "an answer", str(why)) from why
            for number, step in enumerate(self.scenario["steps"], 1):
                try:
                    self.step(step)
                except Mismatch as why:
                    raise Failed(number, told(step), why.expected, why.got) from why
                except (Gone, OSError) as why:
                    raise Failed(number, told(step), "an answer", str(why)) from why
        finally:
            self.driver.signal(signal.SIGCONT)
            self.way.end()
            if self.outside:
                self.outside.close()

    def heard(self, number: int) -> dict:
        answer = self.driver.hear(number)
        if answer.get("error") == "unsupported":
            raise Unsupported
        return answer

    def step(self, step: dict) -> None:
        match step:
            case {"do": _}:
                self.began = boot_ms()
                self.judge(step, self.heard(self.driver.begin(self.request(step))))
            case {"begin": _}:
                self.under_way[step["as"]] = self.driver.begin(self.request(step | {"do": step["begin"]}))
            case {"hear": name}:
                self.judge(step, self.heard(self.under_way[name]))
            case {"silent": name}:
                time.sleep(SILENT_S)
                if not self.driver.is_silent(self.under_way[name]):
                    raise Mismatch("no answer yet", self.heard(self.under_way[name]))
            case {"cancel": name}:
                self.judge(step, self.heard(self.driver.begin({"do": "cancel", "of": self.under_way[name]})))
            case {"outside": words}:
                self.ask_outside(step, [self.world.saved.bytes(word) for word in words])
            case {"free": _}:
                self.until("nobody holds it, and nobody waits", lambda: self.users() == (0, 0))
            case {"waiting": count}:
                self.until(f"{count} wait", lambda: self.users()[1] == count)
            case {"held_up": count}:
                self.until(f"{count} requests or answers are held up", lambda: self.way.held >= count)
            case {"way": what}:
                self.change_way(what, step)
            case {"server": what}:
                self.change_server(what)
            case {"nodes": what, "count": count}:
                for node in self.node.nodes[:count]:
                    node.kill() if what == "kill" else node.restart(lift=True)
            case {"program": what}:
                self.driver.signal(signal.SIGSTOP if what == "pause" else signal.SIGCONT)
            case {"sent": word}:
                self.look_at_sent(step, word)
            case {"pause_ms": ms}:
                time.sleep(ms / 1000)

    def request(self, step: dict) -> dict:
        ours = ("begin", "as_moment", "expect", "valid_until_most", "until")

        def text(word: object) -> str:
            return self.world.saved.bytes(word).decode()

        def texts_of(words: list) -> list[str]:
            return [text(word) for word in words]

        texts = {"key": text, "gate": text, "words": texts_of, "keys": texts_of}
        return {name: texts.get(name, lambda given: given)(value) for name, value in step.items() if name not in ours}

    def judge(self, step: dict, answer: dict) -> None:
        if "expect" in step:
            self.world.resp = 3
            check({"map": step["expect"]}, as_reply(answer), self.world)
        if "valid_until_most" in step:
            bound = step["valid_until_most"]
            said = self.way.said(bound["word"])[-1]
            latest = getattr(said, bound["passed"]) + bound["ms"]
            # The library read its clock after the request was sent, at the earliest.
            until = self.began + answer["valid_for_ms"]
            if until > latest:
                raise Mismatch(f"validity that ends {bound['ms']} ms after {bound['word']} was {bound['passed']} at the latest",
                               f"{answer['valid_for_ms']} ms, {until - latest:.0f} ms too long")

    def ask_outside(self, step: dict, words: list[bytes]) -> None:
        by = time.monotonic() + (PATIENCE_S if step.get("until") else READY_WITHIN_S)
        while True:
            if self.outside is None:
                self.outside = Connection(self.node.address, 3)
            moments = Moments(boot_ms())
            reply = self.outside.say(words)
            moments.answered = boot_ms()
            is_over = time.monotonic() > by
            if reply.kind == "error" and reply.value.startswith("NOTYET ") and not is_over:
                time.sleep(ASK_AGAIN_S)
                continue
            self.world.now, self.world.resp = moments, 3
            try:
                if "expect" in step:
                    check(step["expect"], reply, self.world)
                return
            except Mismatch:
                if is_over or not step.get("until"):
                    raise
            time.sleep(ASK_AGAIN_S)

    def users(self) -> tuple[int, int]:
        """Returns the number of owners that hold the lock, and the number that wait for it."""
        if self.outside is None:
            self.outside = Connection(self.node.address, 3)
        reply = self.outside.say([b"LOCK.INFO", self.world.saved.bytes("$k"), b"WAITERS", b"1"])
        fields = {name.value: value.value for name, value in reply.value} if reply.kind == "map" else {}
        return fields.get(b"holders", 0), fields.get(b"waiters", 0)

    def until(self, what: str, holds) -> None:
        by = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > by:
                raise Mismatch(what, "not for a minute")
            time.sleep(ASK_AGAIN_S)

    def change_way(self, what: str, step: dict) -> None:
        way = self.way
        match what:
            case "hold requests":
                way.holds = step["word"]
            case "hold answers":
                way.holds_answers = step["word"]
            case "lose an answer":
                way.loses = step["word"]
            case "answer":
                data = self.world.saved.text(step["with"]).encode()
                parsed(data)
                way.says.append([step["word"], data, step.get("times", 1)])
            case "let go":
                way.let_go()
            case "cut":
                way.cut()
            case "close":
                way.refuses = True
                way.cut()
            case "open":
                way.refuses = False

    def change_server(self, what: str) -> None:
        if what in ("pause", "go on"):
            return self.node.signal(signal.SIGSTOP if what == "pause" else signal.SIGCONT)
        if self.outside:
            self.outside.close()
            self.outside = None
        self.node.restart(lift=what == "restart and lift")

    def look_at_sent(self, step: dict, word: str) -> None:
        """Checks the requests that the library has sent."""
        said = self.way.said(word)
        if "times" in step:
            check({"int": step["times"]}, Reply("integer", len(said)), self.world)
        for one in step.get("with", []):
            if not all(one.encode() in [word.upper() for word in request.words] for request in said):
                raise Mismatch(f"{word} with {one}", [b" ".join(request.words) for request in said])
        if "different" in step:
            values = [request.words[step["different"]] for request in said]
            if len(set(values)) != len(values):
                raise Mismatch(f"another word {step['different']} each time", values)


def told(step: dict) -> str:
    """Returns the step as a text for people."""
    shown = {name: value for name, value in step.items() if name not in ("expect", "valid_until_most", "until")}
    return re.sub(r"[\"{}]", "", str(shown).replace("'", ""))
