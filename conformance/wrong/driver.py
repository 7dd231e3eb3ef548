"""A library with one fault: runs a driver, and changes its requests or its answers."""

import json
import shlex
import subprocess
import sys
import threading

names: dict[str, dict] = {}
asked: dict[int, dict] = {}
write = threading.Lock()


def tell(answer: dict) -> None:
    with write:
        print(json.dumps(answer), flush=True)


def set_(**more):
    return lambda message: message | {name: value for name, value in more.items()}


def only(what: tuple[str, ...], change):
    return lambda message, *rest: change(message, *rest) if message.get("do", asked.get(message.get("id"), {}).get("do")) in what else message


TAKES = ("lock", "read", "write", "permit")


def larger(name: str, by: float):
    return lambda answer: answer | {name: answer[name] + by} if isinstance(answer.get(name), (int, float)) and answer[name] > 0 else answer


def class_of(change):
    return lambda answer: answer | {"error": change(answer["error"])} if "error" in answer and answer["error"] != "unsupported" else answer


# The faults: name, change of requests, change of answers.
ALL = {
    "nothing": (None, None),
    "a token that is one too large": (None, only(TAKES, larger("token", 1))),
    "a token that was rounded": (None, only(TAKES, lambda answer: answer | {"token": answer["token"] // 1000 * 1000} if answer.get("token") else answer)),
    "the token of re-entries is another": (None, only(("reenter",), larger("token", 7))),
    "a validity that is too long": (None, only(("look",), larger("valid_for_ms", 700))),
    "a validity that has no end": (None, only(("look",), set_(valid=True, valid_for_ms=10_000.0))),
    "no validity": (None, only(("look",), set_(valid=False, valid_for_ms=0))),
    "release does nothing": (only(("release",), set_(do="look")), only(("look", "release"), set_(was_held=True))),
    "release says that it was held": (None, only(("release",), lambda answer: answer | {"was_held": True} if "error" not in answer else answer)),
    "what cannot be told is a loss": (None, only(("release",), lambda answer: answer | {"was_held": False} if answer.get("was_held", 0) is None else answer)),
    "the end of a block fails without an answer": (only(("leave",), set_(do="release")), only(("leave",), lambda answer: answer | {"error": "unavailable"} if answer.get("was_held", 0) is None else answer)),
    "the end of a block says nothing of a loss": (None, only(("leave",), lambda answer: {"id": answer["id"], "left": True})),
    "cancel does not reach the server": (only(("cancel",), lambda request: tell({"id": request["of"], "error": "cancelled"}) or {"do": "nothing", "id": request["id"]}), None),
    "all errors are one": (None, class_of(lambda _: "other")),
    "a held lock is a fault of the network": (None, class_of(lambda error: "unavailable" if error == "not-acquired" else error)),
    "a fault of the network is a held lock": (None, class_of(lambda error: "not-acquired" if error == "unavailable" else error)),
    "guarded without a time": (None, lambda answer: {name: value for name, value in answer.items() if name != "retry_after_ms"}),
    "lost is never told": (only(("until_lost",), lambda request: None), None),
    "lost is told at once": (only(("until_lost",), lambda request: tell({"id": request["id"], "reason": "it was lost"})), None),
    "nothing is extended": (only(TAKES, set_(extend=False)), None),
    "everything is extended": (only(TAKES, lambda request: {name: value for name, value in request.items() if name != "extend"}), None),
    "it always waits": (only(TAKES, lambda request: request | {"wait_ms": 5000} if request.get("wait_ms") == 0 else request), None),
    "it never waits": (only(TAKES, set_(wait_ms=0)), None),
    "notes are dropped": (only(TAKES, lambda request: request | {"note": "x" if len(request.get("note", "")) < 1025 else request["note"]} if "note" in request else request), None),
    "leases are longer": (only(TAKES, lambda request: request | {"ttl_ms": min(60000, request["ttl_ms"] * 3)} if request.get("ttl_ms") else request), None),
    "readers are writers": (only(("read",), set_(do="lock")), None),
    "writers are readers": (only(("write",), set_(do="read")), None),
    "each permit has number 1": (None, lambda answer: answer | {"number": 1} if answer.get("number") else answer),
    "permits have no limit": (only(("permit",), lambda request: request | {"limit": request["limit"] + 1} if request.get("limit") else request), None),
    "keys are ASCII": (only(TAKES, lambda request: request | {"key": request["key"].encode("ascii", "ignore").decode()}), None),
    "extend does nothing": (only(("extend",), set_(do="look")), only(("look", "extend"), lambda answer: answer)),
    "close does nothing": (only(("close",), set_(do="nothing")), lambda answer: {"id": answer["id"]} if asked.get(answer["id"], {}).get("do") == "close" else answer),
    "re-entries are not counted": (only(("reenter",), set_(do="look")), None),
    "arguments are brought within their bounds": (only(TAKES, lambda request: request | {"ttl_ms": max(1, request.get("ttl_ms", 1)), "limit": max(1, request.get("limit", 1))}), None),
    "each command has a gate of its own": (only(("gated",), lambda request: request | {"gate": f"{request['gate']}:{request['id']}"} if "gate" in request else request), None),
    "refusals of a gate are not told": (None, only(("gated",), lambda answer: {"id": answer["id"], "said": "OK"} if answer.get("error") in ("fenced", "lost") else answer)),
    "of several locks the first is taken alone": (only(("all",), lambda request: request | {"keys": request["keys"][:1]}), None),
    "a leader that is not told": (None, only(("leader",), set_(value=None))),
    "a job runs always": (None, only(("once",), set_(ran=True))),
    "another token at each look": (None, only(("look",), lambda answer: answer | {"token": 5})),
}


def main() -> None:
    request, reply = ALL[sys.argv[1]]
    driver = subprocess.Popen(shlex.split(sys.argv[2]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answers() -> None:
        for line in driver.stdout:
            answer = json.loads(line)
            answer = reply(answer) if reply else answer
            if answer:
                tell(answer)

    threading.Thread(target=answers, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        asked[message["id"]] = dict(message)
        message = request(message) if request else message
        if message:
            driver.stdin.write(json.dumps(message) + "\n")
            driver.stdin.flush()
    driver.kill()


if __name__ == "__main__":
    main()
