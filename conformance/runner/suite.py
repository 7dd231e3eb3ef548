"""Runs the scenarios of commands on a target: most of them side by side, those that disturb others one by one."""

import secrets
from concurrent.futures import ThreadPoolExecutor

from .commands import Failed, Play
from .files import full_name
from .report import Report
from .target import Target

SIDE_BY_SIDE = 16


def run_commands(target: Target, scenarios: list[dict], report: Report) -> None:
    run = secrets.token_hex(4)
    plays = []
    for number, scenario in enumerate(scenarios):
        lacking = target.lacks(scenario)
        if lacking:
            report.skip(target.name, full_name(scenario), f"needs {', '.join(lacking)}")
        else:
            plays.append((scenario, Play(target, scenario, f"conformance:{run}:{number}:")))
    # Those that take longest begin first.
    plays.sort(key=lambda play: -sum(step.get("pause_ms", 0) for step in play[0]["steps"]))
    alone = [play for play in plays if target.goes_alone(play[0])]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        together = [play for play in plays if play not in alone]
        for (scenario, _), outcome in zip(together, pool.map(outcome_of, (play for _, play in together))):
            tell(target, scenario, outcome, report)
    for scenario, play in alone:
        tell(target, scenario, outcome_of(play), report)


def outcome_of(play: Play) -> Failed | None:
    try:
        play.run()
    except Failed as why:
        return why
    return None


def tell(target: Target, scenario: dict, outcome: Failed | None, report: Report) -> None:
    name = full_name(scenario)
    known = scenario.get("known", {}).get("agent" if target.is_quorum else "node")
    if known:
        report.skip(target.name, name, f"known, and it {'passed' if outcome is None else 'failed'}: {known}")
    elif outcome is None:
        report.success(target.name, name)
    else:
        report.failure(target.name, scenario, name, str(outcome), outcome.expected, outcome.got)
