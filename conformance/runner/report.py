"""Reports the outcomes: a few lines for each failure, and the numbers of passed, failed and skipped scenarios."""

from dataclasses import dataclass, field

from .commands import Failed


@dataclass
class Report:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: int = 0
    verbose: bool = False
    # The outcome of each scenario, by the names of the target and of the scenario.
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)

    def outcome(self, target: str, scenario: dict, name: str, failure: Failed | None, known: str | None) -> None:
        if known:
            self.skip(target, name, f"known, and it {'failed' if failure else 'passed'}: {known}")
        elif failure:
            self.failure(target, scenario, name, str(failure), failure.expected, failure.got)
        else:
            self.success(target, name)

    def failure(self, target: str, scenario: dict, name: str, step: str, expected: str, got: str) -> None:
        self.failed.append(name)
        self.outcomes[target, name] = "failed"
        print(f"FAILED on {target}: {name}\n"
              f"  {step}\n"
              f"  expected: {expected}\n"
              f"  got:      {got}\n"
              f"  why it matters: {scenario['why']} ({', '.join(scenario['guards'])})", flush=True)

    def success(self, target: str, name: str) -> None:
        self.passed += 1
        self.outcomes[target, name] = "passed"
        if self.verbose:
            print(f"passed on {target}: {name}")

    def skip(self, target: str, name: str, why: str) -> None:
        self.skipped += 1
        self.outcomes[target, name] = "skipped"
        if self.verbose:
            print(f"skipped on {target}: {name}: {why}")

    def last_line(self) -> str:
        return f"{self.passed} passed, {len(self.failed)} failed, {self.skipped} skipped"
