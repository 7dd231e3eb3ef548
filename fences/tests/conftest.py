"""Fixtures: a server with locks, and stores with fences."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgresql import Cluster, Database
from servers import Node


@pytest.fixture(scope="session")
def a_node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.end()


@pytest.fixture(scope="session")
def the_database(cluster: Cluster) -> Database:
    return cluster.new_database()


@pytest.fixture
def database(the_database: Database) -> Iterator[Database]:
    """The database, new for each test."""
    the_database.furnish()
    yield the_database
    the_database.end()
