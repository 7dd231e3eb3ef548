"""The server or agent that is checked: its address, what it can do, and what the run may do to it."""

from dataclasses import dataclass, field

from .resp import Connection, info_field


@dataclass
class Target:
    """A server or agent that answers LOCK commands."""

    name: str
    address: str
    # The needs of scenarios that this target meets.
    has: set[str] = field(default_factory=set)
    # The server's process, if the run started it.
    server: object = None
    is_quorum: bool = False

    @classmethod
    def at(cls, name: str, address: str, server: object = None) -> "Target":
        """Asks the server at this address whether it is a node or an agent."""
        connection = Connection(address)
        node = connection.say([b"LOCK.NODE"])
        if node.kind == "error":
            raise SystemExit(f"{address} does not answer LOCK.NODE: {node.value}")
        fields = [one.value for one in node.value[::2]]
        connection.close()
        is_quorum = b"majority" in fields
        has = {"agent"} if is_quorum else {"node"}
        if server is not None:
            has |= {"alone"} if is_quorum else {"alone", "restart"}
        return cls(name, address, has, server, is_quorum)

    def connect(self, resp: int | None = None) -> Connection:
        return Connection(self.address, resp)

    def lacks(self, scenario: dict) -> list[str]:
        return [need for need in scenario.get("needs", []) if need not in self.has]

    def has_waiters(self, count: int, connection: Connection, key: bytes) -> bool:
        """Returns true if `count` requests wait for the lock. Of all requests that wait at one agent, only one is in
        the nodes' queues."""
        if not self.is_quorum:
            return waiters(connection, key) == count
        if info_field(connection.say([b"INFO", b"palisade"]).value, "waiting") != count:
            return False
        addresses = [node.address for node in self.server.nodes] if self.server else [self.address]
        return count == 0 or all(waiters_at(address, key) for address in addresses)

    def goes_alone(self, scenario: dict) -> bool:
        """Returns true if no other scenario may run at the same time as this one."""
        counts = self.is_quorum and any("waiting" in step for step in scenario["steps"])
        return counts or "alone" in scenario.get("needs", []) or "restart" in scenario.get("needs", [])


def waiters(connection: Connection, key: bytes) -> int:
    """Returns the number of requests in the queue of this key."""
    reply = connection.say([b"LOCK.INFO", key, b"WAITERS", b"1"])
    fields = [one.value for one in reply.value] if reply.kind == "list" else []
    return fields[fields.index(b"waiters") + 1] if b"waiters" in fields else 0


def waiters_at(address: str, key: bytes) -> int:
    connection = Connection(address)
    try:
        return waiters(connection, key)
    finally:
        connection.close()
