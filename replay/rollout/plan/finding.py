"""The data classes of a plan's findings and of the operator's allowances. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kappa.base.errors import UsageError

GAP = "gap"
BREAKING = "breaking"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact that a plan reports about a step.

    If `refuses` is True, the finding blocks the step; otherwise it is only information for the
    operator. The operator uses `name` to allow the finding, with `--accept-gap`,
    `--allow-breaking`, or `--allow NAME=REASON`. A finding without a name cannot be allowed.
    """

    message: str
    hint: str = ""
    name: str = ""
    refuses: bool = True


@dataclass(frozen=True, slots=True)
class Allowances:
    """The findings that the operator allows.

    `gap` allows a gap in the log, and `breaking` allows breaking changes. `allowed` maps names of
    allowed findings to reasons. `before` contains the texts of findings that were allowed and
    recorded earlier. A finding is allowed by `before` only if its text is exactly the same.
    """

    gap: bool = False
    breaking: bool = False
    allowed: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()

    def lets_through(self, finding: Finding) -> str | None:
        """Returns the text to record about a finding that the operator has allowed.

        If the operator has given a reason, the text contains the reason. Returns None if the
        finding is not allowed.
        """
        reason = self.allowed.get(finding.name) if finding.name else None
        flagged = (finding.name == GAP and self.gap) or (finding.name == BREAKING and self.breaking)
        # A finding in code begins with its name, which is its line.
        text = (
            finding.message
            if finding.message.startswith(finding.name)
            else f"{finding.name}: {finding.message}"
        )
        if reason is None and not flagged:
            return next(
                (
                    each
                    for each in self.before
                    if finding.name and (each == text or each.startswith(f"{text}: "))
                ),
                None,
            )
        return text if reason is None else f"{text}: {reason}"


def parse_allowances(*, gap: bool, breaking: bool, allow: Iterable[str]) -> Allowances:
    """Parses the flags of a command that allow findings.

    `allow` are the arguments of `--allow`, each as `NAME=REASON`. Raises UsageError if an argument
    has no name or no reason.
    """
    allowed = {}
    for each in allow:
        name, _, reason = each.partition("=")
        if not name.strip() or not reason.strip():
            raise UsageError(
                f"--allow {each!r} has no {'reason' if name.strip() else 'name'}",
                hint="write --allow 'NAME=REASON', with the name that kappa plan shows",
            )
        allowed[name.strip()] = reason.strip()
    return Allowances(gap=gap, breaking=breaking, allowed=allowed)


def allowing_flag(finding: Finding) -> str:
    """Returns the command-line flag that allows a finding."""
    return {GAP: "--accept-gap", BREAKING: "--allow-breaking"}.get(
        finding.name, f"--allow '{finding.name}=REASON'"
    )
