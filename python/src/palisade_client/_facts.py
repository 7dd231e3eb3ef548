"""Properties of a lock that need no request to the server. Locks for threads and for asyncio share
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._hold import Hold
from ._leading import Leading

if TYPE_CHECKING:
    from typing_extensions import Self


class Facts:
    """A held lock, for as long as it ``is_valid``.

    Check that before each step that must not happen without the lock. Give the ``token`` to the resource, which refuses
    a token smaller than the largest it has seen: no check on this side can catch a process that is paused right after
    it.
    """

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    @property
    def key(self) -> bytes:
        """The key of the lock."""
        return self._hold.held.acquisition.key

    @property
    def owner(self) -> str:
        """The owner, which names this acquisition on the server: new and random. Anyone who knows it can release the
        lock."""
        return self._hold.held.acquisition.owner

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier holder, and below 2^53.

        It never falls, but behind a ``palisade agent`` it can rise while the lock is held: read it at each use.
        """
        return self._hold.held.token

    @property
    def valid_for(self) -> float:
        """Seconds for which the lock may be relied on from now; 0 once it may not.

        Counted on a clock of this machine that nobody sets, from before the server was asked, less 1 % and a few
        milliseconds.
        """
        return self._hold.valid_for

    @property
    def is_valid(self) -> bool:
        """True if the lock may be relied on now. The clock decides at each read, not timers."""
        return self._hold.valid_for > 0

    def _again(self, hold: Hold) -> Self:
        """Returns another lock of the same acquisition."""
        return type(self)(hold)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} token={self.token} valid_for={self.valid_for:.3f}>"


class PermitFacts(Facts):
    """A permit of a semaphore."""

    @property
    def number(self) -> int:
        """The number of the permit, from 1 to the limit. No other holder has it meanwhile."""
        return self._hold.held.number


class LeadershipFacts(Facts):
    """A leadership, until it is resigned or ``lost``. Has all members of a ``Lock``."""

    def __init__(self, leading: Leading, hold: Hold | None = None) -> None:
        super().__init__(leading.hold if hold is None else hold)
        self._leading = leading

    @property
    def term(self) -> int:
        """The term: larger than that of every earlier leader, and constant while this one leads.

        It is a fencing token, as is ``token``, which can rise meanwhile: use only one of the two with a resource.
        """
        return self._leading.term

    @property
    def sequence(self) -> int:
        """The number of the last proclamation, from 1."""
        return self._leading.sequence

    def _again(self, hold: Hold) -> Self:
        return type(self)(self._leading, hold)
