"""The faults of wrong servers, each a line or two."""

import itertools
import time

from runner.resp import Reply

from .server import Link, Wrong, Words

NULL2, NULL3 = b"$-1\r\n", b"_\r\n"


def integer(value: int) -> bytes:
    return b":%d\r\n" % value


def null(link: Link) -> bytes:
    return NULL3 if link.is_resp3 else NULL2


def encoded(reply: Reply) -> bytes:
    """Returns a reply as bytes, as it came from the server."""
    match reply.kind:
        case "integer":
            return integer(reply.value)
        case "list":
            return b"*%d\r\n" % len(reply.value) + b"".join(map(encoded, reply.value))
        case "map":
            return b"%%%d\r\n" % len(reply.value) + b"".join(encoded(name) + encoded(value) for name, value in reply.value)
    return reply.raw


def is_(words: Words, *names: str) -> bool:
    return words[0].upper().decode("latin-1") in [f"LOCK.{name}" for name in names]


def at(words: Words, option: str) -> int:
    """Returns the index of an option in a command; 0 if it has none."""
    upper = [word.upper() for word in words]
    return upper.index(option.encode(), 3) if option.encode() in upper[3:] else 0


def without(option: str, *commands: str, value: bool = True):
    """Removes an option from these commands, as if the server ignored it."""
    def request(words: Words, _link: Link) -> Words:
        place = at(words, option) if is_(words, *commands) else 0
        return words[:place] + words[place + (2 if value else 1):] if place else words
    return request


def instead(option: str, value: bytes, *commands: str):
    """Gives an option of these commands another value."""
    def request(words: Words, _link: Link) -> Words:
        place = at(words, option) if is_(words, *commands) else 0
        return words[:place + 1] + [value] + words[place + 2:] if place and len(words) > place + 1 else words
    return request


def answered(change, *commands: str):
    """Changes the answers to these commands."""
    def reply(words: Words, got: Reply, link: Link) -> bytes | None:
        return change(words, got, link) if is_(words, *commands) else None
    return reply


def map_integers(change):
    """Changes an answer that is an integer, or a list that begins with one."""
    def reply(_words: Words, got: Reply, _link: Link) -> bytes | None:
        if got.kind == "integer":
            return integer(change(got.value))
        if got.kind == "list" and got.value and got.value[0].kind == "integer":
            return b"*%d\r\n%s%s" % (len(got.value), integer(change(got.value[0].value)), b"".join(map(encoded, got.value[1:])))
        return None
    return reply


def fields(change):
    """Changes the fields of an answer that is a map, in RESP2 and RESP3."""
    def reply(_words: Words, got: Reply, _link: Link) -> bytes | None:
        if got.kind == "map":
            return encoded(Reply("map", change(got.value)))
        if got.kind == "list" and len(got.value) > 8:
            pairs = change(list(zip(got.value[::2], got.value[1::2])))
            return encoded(Reply("list", [one for pair in pairs for one in pair]))
        return None
    return reply


def field(name: str, change):
    return fields(lambda pairs: [(key, Reply("integer", change(value.value)) if key.value == name.encode() and value.kind == "integer" else value)
                                 for key, value in pairs])


def text_field(name: str, text: bytes):
    value_of = Reply("text", text, b"$%d\r\n%s\r\n" % (len(text), text))
    return fields(lambda pairs: [(key, value_of if key.value == name.encode() and value.value else value) for key, value in pairs])


def also(*more: bytes, on: str, when: str = ""):
    """Sends one more command after a command has succeeded."""
    def reply(words: Words, got: Reply, link: Link) -> None:
        if is_(words, on) and got.kind != "null" and got.kind != "error" and (not when or at(words, when)):
            link.beside(*[{b"KEY": words[1], b"OWNER": words[2] if len(words) > 2 else b""}.get(word, word) for word in more])
    return reply


def errors(change):
    def reply(_words: Words, got: Reply, link: Link) -> bytes | None:
        return change(got.value, link) if got.kind == "error" else None
    return reply


def shorter_lease(share: float, *commands: str):
    def request(words: Words, _link: Link) -> Words:
        if is_(words, *commands) and len(words) > 3 and words[3].isdigit():
            return words[:3] + [b"%d" % max(1, min(60000, int(int(words[3]) * share)))] + words[4:] if 0 < int(words[3]) <= 60000 else words
        return words
    return request


def null_for(value: bytes, *commands: str):
    return answered(lambda _words, got, _link: value if got.kind == "null" else None, *commands)


def anything_goes(words: Words, _link: Link) -> Words:
    """Replaces numbers that are out of bounds by valid ones, so that the server accepts them."""
    if is_(words, "ACQUIRE", "EXTEND") and len(words) > 3 and words[3].lstrip(b"+-").isdigit():
        return words[:3] + [b"%d" % max(1, min(60000, abs(int(words[3]))))] + words[4:]
    return words


def polls(words: Words, link: Link) -> Words | bytes:
    """Answers a request with WAIT by asking again and again, so that waiters are served in no order."""
    place = at(words, "WAIT") if is_(words, "ACQUIRE") else 0
    if not place or len(words) < place + 2 or not words[place + 1].isdigit():
        return words
    began = time.monotonic()
    now = words[:place + 1] + [b"0"] + words[place + 2:]
    while True:
        reply = link.beside(*now)
        passed = (time.monotonic() - began) * 1000
        if reply.kind == "list":
            return b"*%d\r\n%s%s%s" % (len(reply.value), encoded(reply.value[0]), integer(int(passed)), b"".join(map(encoded, reply.value[2:])))
        if reply.kind != "null" or passed > min(int(words[place + 1]), 3000):
            return null(link) if reply.kind == "null" else reply.raw
        time.sleep(0.02)


falling = itertools.count()


def again_after_the_end(words: Words, got: Reply, link: Link) -> bytes | None:
    return link.beside(b"LOCK.ACQUIRE", *words[1:4]).raw if got.kind == "null" and len(words) == 4 else None


def wrong_release(words: Words, link: Link) -> Words | bytes:
    return integer(0) if is_(words, "RELEASE") and len(words) == 3 and link.beside(b"LOCK.BREAK", words[1]).kind == "integer" else words


def owner(change):
    def request(words: Words, _link: Link) -> Words:
        owned = is_(words, "ACQUIRE", "RELEASE", "EXTEND", "REENTER", "CONVERT", "NOTE", "FENCE", "WAIT") and len(words) > 2 and words[2]
        return words[:2] + [change(words[2])] + words[3:] if owned else words
    return request


def key(change):
    def request(words: Words, _link: Link) -> Words:
        return [words[0], change(words[1])] + words[2:] if words[0].upper().startswith(b"LOCK.") and len(words) > 1 else words
    return request


ALL = [
    Wrong("tokens fall", reply=answered(map_integers(lambda token: 2**50 - next(falling)), "ACQUIRE")),
    Wrong("all tokens are one", reply=answered(map_integers(lambda _token: 5), "ACQUIRE")),
    Wrong("tokens beyond 2^53", reply=answered(map_integers(lambda token: token + 2**53), "ACQUIRE")),
    Wrong("RETRY is not heard", request=without("RETRY", "ACQUIRE", value=False)),
    Wrong("RETRY re-enters", reply=also(b"LOCK.REENTER", b"KEY", b"OWNER", on="ACQUIRE", when="RETRY")),
    Wrong("RETRY does not prolong", request=lambda words, link: words[:3] + [b"1"] + words[4:] if is_(words, "ACQUIRE") and at(words, "RETRY") else words),
    Wrong("RETRY frees the lock first", request=lambda words, link: (link.beside(b"LOCK.RELEASE", words[1], words[2], b"LEVEL", b"1"), words)[1]
          if is_(words, "ACQUIRE") and at(words, "RETRY") else words),
    Wrong("RELEASE does not hear LEVEL", request=without("LEVEL", "RELEASE")),
    Wrong("REENTER does not hear LEVEL", request=without("LEVEL", "REENTER")),
    Wrong("REENTER does not hear TTL", request=without("TTL", "REENTER")),
    Wrong("REENTER raises the token", reply=lambda words, got, link: link.beside(
        b"LOCK.FENCE", words[1], words[2], b"%d" % (link.beside(b"LOCK.FENCE", words[1], words[2], b"1").value + 1)) and None
        if is_(words, "REENTER") and got.kind == "integer" else None),
    Wrong("REENTER prolongs the lease", reply=also(b"LOCK.EXTEND", b"KEY", b"OWNER", b"60000", on="REENTER")),
    Wrong("RELEASE does not hear TOKEN", request=without("TOKEN", "RELEASE")),
    Wrong("EXTEND does not hear TOKEN", request=without("TOKEN", "EXTEND")),
    Wrong("NOTE does not hear TOKEN", request=without("TOKEN", "NOTE")),
    Wrong("CONVERT does not hear TOKEN", request=without("TOKEN", "CONVERT")),
    Wrong("BREAK does not hear TOKEN", request=lambda words, link: words[:2] if is_(words, "BREAK") and len(words) == 4 else words),
    Wrong("RELEASE frees whoever holds it", request=wrong_release),
    Wrong("RELEASE answers 0 where it should answer Null", reply=null_for(integer(0), "RELEASE")),
    Wrong("RELEASE leaves the queue alone", request=lambda words, link: words + [b"TOKEN", b"1"] if is_(words, "RELEASE") and link.beside(
        b"LOCK.INFO", words[1]).kind != "null" and words[2:3] == [b"bob"] and len(words) == 3 else words),
    Wrong("Null in place of OWNED", reply=errors(lambda text, link: null(link) if text.startswith("OWNED") else None)),
    Wrong("OWNED in place of Null", reply=null_for(b"-OWNED by somebody\r\n", "ACQUIRE")),
    Wrong("errors without a first word of their own", reply=errors(lambda text, link: b"-ERR " + text.encode() + b"\r\n")),
    Wrong("errors that teach nothing", reply=errors(lambda text, link: text.split(" ")[0].encode().join([b"-", b" no\r\n"]))),
    Wrong("errors in place of nothing", reply=errors(lambda text, link: b"+OK\r\n" if text.startswith("ERR") else None)),
    Wrong("WAIT is not heard", request=without("WAIT", "ACQUIRE")),
    Wrong("WAIT is answered without the time waited", reply=answered(lambda words, got, link: encoded(got.value[0]) if got.kind == "list" and len(got.value) == 2 else None, "ACQUIRE")),
    Wrong("the time waited is too long", reply=answered(lambda words, got, link: b"*%d\r\n%s%s%s" % (
        len(got.value), encoded(got.value[0]), integer(got.value[1].value + 10_000), b"".join(map(encoded, got.value[2:]))) if got.kind == "list" else None, "ACQUIRE")),
    Wrong("who waits polls, in no order", request=polls),
    Wrong("who waits is answered too early", request=instead("WAIT", b"1", "ACQUIRE")),
    Wrong("who has hung up is not noticed", keeps_connections=True),
    Wrong("leases are half as long", request=shorter_lease(0.5, "ACQUIRE", "EXTEND")),
    Wrong("leases are twice as long", request=shorter_lease(2, "ACQUIRE", "EXTEND")),
    Wrong("EXTEND prolongs nothing", request=lambda words, link: words[:3] + [b"1"] + words[4:] if is_(words, "EXTEND") and len(words) > 3 and words[3].isdigit() and 0 < int(words[3]) <= 60000 else words),
    Wrong("EXTEND makes an ended lock again", reply=answered(again_after_the_end, "EXTEND")),
    Wrong("EXTEND is answered with 1", reply=answered(map_integers(lambda _: 1), "EXTEND")),
    Wrong("CHECK says yes to every token", reply=null_for(integer(1000), "CHECK")),
    Wrong("CHECK says no to every token", reply=answered(lambda words, got, link: null(link) if got.kind == "integer" else None, "CHECK")),
    Wrong("CHECK answers seconds", reply=answered(map_integers(lambda ms: ms // 1000), "CHECK")),
    Wrong("NOTE does not hear SEQ", request=without("SEQ", "NOTE")),
    Wrong("NOTE is answered with 1", reply=answered(map_integers(lambda _: 1), "NOTE")),
    Wrong("notes are cut", request=lambda words, link: words[:3] + [words[3][:8]] + words[4:] if is_(words, "NOTE") and len(words) > 3 and len(words[3]) <= 1024 else words),
    Wrong("ACQUIRE drops the note", request=without("NOTE", "ACQUIRE")),
    Wrong("SHARED is not heard", request=without("SHARED", "ACQUIRE", value=False)),
    Wrong("every lock is SHARED", request=lambda words, link: words + [b"SHARED"] if is_(words, "ACQUIRE") and not at(words, "SHARED") and not at(words, "LIMIT") and len(words) > 3 else words),
    Wrong("LIMIT counts one more", request=lambda words, link: words[:at(words, "LIMIT") + 1] + [b"%d" % (int(words[at(words, "LIMIT") + 1]) + 1)] + words[at(words, "LIMIT") + 2:]
          if is_(words, "ACQUIRE") and at(words, "LIMIT") and words[at(words, "LIMIT") + 1:][:1] and words[at(words, "LIMIT") + 1].isdigit() and 0 < int(words[at(words, "LIMIT") + 1]) < 65535 else words),
    Wrong("PERMIT is not heard", request=without("PERMIT", "ACQUIRE")),
    Wrong("each permit has number 1", reply=answered(lambda words, got, link: b"*3\r\n%s%s:1\r\n" % (encoded(got.value[0]), encoded(got.value[1])) if got.kind == "list" and len(got.value) == 3 else None, "ACQUIRE")),
    Wrong("permits are answered without their number", reply=answered(lambda words, got, link: b"*2\r\n%s%s" % (encoded(got.value[0]), encoded(got.value[1])) if got.kind == "list" and len(got.value) == 3 else None, "ACQUIRE")),
    Wrong("CONVERT does nothing", request=lambda words, link: [b"LOCK.EXTEND", words[1], words[2], b"1"] if is_(words, "CONVERT") and len(words) == 4 and words[3].upper() in (b"SHARED", b"EXCLUSIVE") else words),
    Wrong("CONVERT raises the token", reply=answered(map_integers(lambda token: token + 1), "CONVERT")),
    Wrong("WATCH does not wait", request=lambda words, link: words[:2] + [b"0"] + words[3:] if is_(words, "WATCH") and words[2:3] and words[2].isdigit() and int(words[2]) <= 86400000 else words),
    Wrong("WATCH does not hear TOKEN", request=lambda words, link: words[:3] if is_(words, "WATCH") and at(words, "TOKEN") and words[-1].isdigit() and not at(words, "SEQ") else words),
    Wrong("WATCH does not hear SEQ", request=without("SEQ", "WATCH")),
    Wrong("WATCH of a free lock is Null", reply=answered(lambda words, got, link: null(link) if got.kind in ("map", "list") and b"owner\r\n$0" in got.raw else None, "WATCH")),
    Wrong("KEEPALIVE is not heard", request=without("KEEPALIVE", "ACQUIRE")),
    Wrong("KEEPALIVE has no end", request=instead("KEEPALIVE", b"2592000000", "ACQUIRE")),
    Wrong("BREAK is answered with 1", reply=answered(map_integers(lambda _: 1), "BREAK")),
    Wrong("BREAK does nothing", request=lambda words, link: [b"LOCK.INFO", words[1]] if is_(words, "BREAK") and len(words) == 2 else words,
          reply=answered(lambda words, got, link: got.value[3].raw if got.kind == "list" and len(got.value) > 3 else None, "BREAK")),
    Wrong("INFO without a field", reply=answered(fields(lambda pairs: [pair for pair in pairs if pair[0].value != b"seq"]), "INFO")),
    Wrong("INFO in another order", reply=answered(fields(lambda pairs: pairs[::-1]), "INFO")),
    Wrong("INFO tells another token", reply=answered(field("token", lambda token: token + 1), "INFO")),
    Wrong("INFO tells one hold too many", reply=answered(field("holds", lambda holds: holds + 1), "INFO")),
    Wrong("INFO tells a longer lease", reply=answered(field("ttl", lambda ms: ms + 5_000), "INFO")),
    Wrong("INFO tells no holders", reply=answered(field("holders", lambda _: 1), "INFO")),
    Wrong("INFO tells no age", reply=answered(field("held", lambda _: 10**7), "INFO")),
    Wrong("INFO tells another mode", reply=answered(text_field("mode", b"exclusive"), "INFO")),
    Wrong("INFO tells another owner", reply=answered(text_field("owner", b"somebody"), "INFO")),
    Wrong("INFO shows nobody who waits", reply=answered(field("waiters", lambda _: 0), "INFO")),
    Wrong("INFO is a list in RESP3", reply=answered(lambda words, got, link: encoded(Reply("list", [one for pair in got.value for one in pair])) if got.kind == "map" else None, "INFO", "NODE")),
    Wrong("INFO lists the holders backwards", reply=answered(fields(lambda pairs: [(name, Reply("list", value.value[::-1]) if name.value == b"grants" else value) for name, value in pairs]), "INFO")),
    Wrong("INFO lists no queue", reply=answered(fields(lambda pairs: [pair for pair in pairs if pair[0].value not in (b"queue", b"reserved")]), "INFO")),
    Wrong("Null of RESP2 in RESP3", reply=lambda words, got, link: NULL2 if got.kind == "null" else None),
    Wrong("owners in any case", request=owner(bytes.lower)),
    Wrong("owners that end at a NUL", request=owner(lambda name: name.split(b"\0")[0] or b"x")),
    Wrong("owners as text", request=owner(lambda name: name.decode("utf-8", "ignore").encode() or b"x")),
    Wrong("all keys are one", request=key(lambda name: b"one")),
    Wrong("keys that end at a space", request=key(lambda name: name.split(b" ")[0])),
    Wrong("numbers brought within their bounds", request=anything_goes),
    Wrong("NODE has another id each time", reply=answered(fields(lambda pairs: [
        (name, Reply("text", b"", b"$32\r\n%032d\r\n" % next(falling)) if name.value == b"id" else value) for name, value in pairs]), "NODE")),
    Wrong("NODE tells no protocol", reply=answered(fields(lambda pairs: [pair for pair in pairs if pair[0].value != b"protocol"]), "NODE")),
    Wrong("HELP is empty", reply=answered(lambda words, got, link: b"*0\r\n" if got.kind == "list" else None, "HELP")),
    Wrong("FENCE raises nothing", request=lambda words, link: words[:3] + [b"1"] if is_(words, "FENCE") and len(words) == 4 and words[3].isdigit() and 0 < int(words[3]) < 2**52 else words),
    Wrong("FENCE is answered with what was asked", reply=lambda words, got, link: integer(int(words[3])) if is_(words, "FENCE") and got.kind == "integer" else None),
    Wrong("ACQUIRE does not hear FENCE", request=without("FENCE", "ACQUIRE")),
    Wrong("FLOOR is answered with 1", reply=answered(map_integers(lambda _: 1), "FLOOR")),
    Wrong("LOCK.WAIT is answered with 0", reply=answered(map_integers(lambda _: 0), "WAIT")),
    Wrong("LOCK.WAIT takes the lock", reply=lambda words, got, link: link.beside(b"LOCK.ACQUIRE", words[1], words[2], b"30000") and None if is_(words, "WAIT") and got.value == 1 and len(words) == 4 else None),
    Wrong("LOCK.WAIT does not hear TICKET", request=without("TICKET", "WAIT")),
    Wrong("LOCK.WAIT does not hear SHARED", request=without("SHARED", "WAIT", value=False)),
    Wrong("HEARD is not heard", request=without("HEARD", "WAIT")),
    Wrong("HEAR tells no news", reply=answered(lambda words, got, link: b"*0\r\n" if got.kind == "list" else None, "HEAR")),
    Wrong("HEAR tells news backwards", reply=answered(lambda words, got, link: encoded(Reply("list", got.value[::-1])) if got.kind == "list" else None, "HEAR")),
    Wrong("HEAR does not wait", request=lambda words, link: words[:2] + [b"0"] if is_(words, "HEAR") and len(words) == 3 and words[2].isdigit() else words),
    Wrong("HEARD keeps requests whose listener has gone", keeps_connections=True),
    Wrong("MEMBERS does not hear JOIN", request=lambda words, link: words[:1] if is_(words, "MEMBERS") and words[-1:] != [b"first"] else words),
    Wrong("MEMBERS tells no version", reply=answered(lambda words, got, link: encoded(Reply("list", [got.value[0], Reply("integer", 0), *got.value[2:]])) if got.kind == "list" else None, "MEMBERS")),
    Wrong("SETMEMBERS decides nothing", request=lambda words, link: integer(1) if is_(words, "SETMEMBERS") and len(words) == 5 and b"unknown@" in words[4] else words),
    Wrong("SETMEMBERS takes an older version", reply=errors(lambda text, link: integer(1) if text.startswith("OLDMEMBERS") else None)),
    Wrong("GUARD does not arm", request=lambda words, link: words[:1] if is_(words, "GUARD") and len(words) == 3 and words[2].isdigit() and 0 < int(words[2]) <= 172800000 else words),
    Wrong("Null in place of GUARDED", reply=errors(lambda text, link: null(link) if text.startswith("GUARDED") else None)),
    Wrong("the type is a string's", reply=lambda words, got, link: b"+string\r\n" if words[0].upper() == b"TYPE" else None),
    Wrong("DEL leaves locks", request=lambda words, link: [b"EXISTS", words[1]] if words[0].upper() in (b"DEL", b"UNLINK") else words),
    Wrong("RENAME leaves locks", request=lambda words, link: [b"PING", b"OK"] if words[0].upper() == b"RENAME" else words),
    Wrong("COPY copies locks", request=lambda words, link: (link.beside(b"LOCK.ACQUIRE", words[2], b"ann", b"30000"), integer(1))[1] if words[0].upper() == b"COPY" else words),
    Wrong("keys of commands are not told", reply=lambda words, got, link: b"*0\r\n" if words[0].upper() == b"COMMAND" else None),
    Wrong("scripts run something else", reply=lambda words, got, link: null(link) if words[0].upper() == b"EVAL" and got.kind in ("error", "text") else None),
    Wrong("transactions are answered empty", reply=lambda words, got, link: b"*0\r\n" if words[0].upper() == b"EXEC" else None),
]
