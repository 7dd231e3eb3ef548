"""Compares the table of docs/clients/features.md with the outcomes of the scenarios."""

import re
from itertools import dropwhile, takewhile
from pathlib import Path

from .report import Report

PAGE = Path(__file__).resolve().parents[2] / "docs/clients/features.md"
COLUMNS = {"Rust": "crate", "Python": "python", "Node.js": "node", "Go": "go", "Java": "java"}


def claims() -> list[tuple[str, str, bool]]:
    """Returns for each cell of the table the scenario, the driver, and whether the page says that its library has the
    feature."""
    lines = PAGE.read_text().splitlines()
    table = takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), lines))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    head, found = rows[0], []
    for row in rows[2:]:
        scenario = re.search(r"`(.*)`", row[1])
        found += [(scenario[1], COLUMNS[name], cell.startswith("yes")) for name, cell in zip(head[2:], row[2:]) if scenario]
    return found


def compare(drivers: list[str], report: Report) -> None:
    """Reports a failure for each cell whose claim differs from the outcome. Only drivers that took part are compared.
    """
    for scenario, driver, is_claimed in claims():
        if driver not in drivers:
            continue
        name = f"features: {scenario}"
        outcomes = {outcome for (target, played), outcome in report.outcomes.items() if target == driver and played.startswith(scenario)}
        got = "nothing of that name" if not outcomes else "failed" if "failed" in outcomes else "skipped" if outcomes != {"passed"} else "passed"
        if is_claimed == (got == "passed") and outcomes:
            report.success(driver, name)
        else:
            about = {"why": "Users rely on what a library does not have, or miss what it has.", "guards": ["docs/clients/features.md"]}
            report.failure(driver, about, name, "the table", "passed" if is_claimed else "skipped", got)
