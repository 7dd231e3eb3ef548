"""Holder ids of threads and tasks, by which ``palisade deadlocks`` finds who waits for whom, and notes of locks."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
import socket
import sys
import threading
import weakref

from .options import NOTE_BYTES_MAX

# Maximum number of characters of the host name in an id.
_HOST_CHARS = 32

_NOTED = re.compile(rb"(?:^| )\[holder=[A-Za-z0-9._:/@+-]{1,64}\]$")

_HOST = socket.gethostname()
_SHORT_HOST = re.sub(r"[^A-Za-z0-9._:/@+-]", "", _HOST)[:_HOST_CHARS]
# Process ids repeat: in a restarted container, each time.
_CHANCE = secrets.token_hex(4)

_numbers = itertools.count(1)
_of_tasks: weakref.WeakKeyDictionary[asyncio.Task[object], int] = weakref.WeakKeyDictionary()


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.number = next(_numbers)


_of_thread = _OfThread()


def current_holder() -> str:
    """Returns the id of the running task, or else of this thread: host, process, and a unique number."""
    return f"{_SHORT_HOST}/{os.getpid()}/{_CHANCE}/{_number()}"


def _number() -> int:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return _of_thread.number
    return _of_thread.number if task is None else _of_tasks.setdefault(task, _of_tasks.get(task) or next(_numbers))


def default_note() -> bytes:
    """Returns the default note: host, process and program."""
    program = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    return f"{_HOST} pid {os.getpid()}: {program}"[:200].encode(errors="replace")


def noted(note: bytes, holder: str) -> bytes:
    """Returns ``note`` with the holder id at its end, if there is room."""
    told = (note + b" " if note else b"") + b"[holder=" + holder.encode() + b"]"
    return told if len(told) <= NOTE_BYTES_MAX else note


def without_holder(note: bytes) -> bytes:
    """Returns ``note`` as people read it, without the holder id."""
    return _NOTED.sub(b"", note)
