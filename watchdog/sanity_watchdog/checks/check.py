"""What a check is: a pure function from evidence to findings, bound to its code, name and severity."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from ..alerts import Alert, Severity, Value, pairs
from ..evidence.base import Evidence

E = TypeVar("E", bound=Evidence)
P = ParamSpec("P")


_LITERAL = re.compile(r"^(.*)::\n\n((?:(?: +.*)?\n)+)", re.M)


def fenced(text: str) -> str:
    """``text`` with the indented code after a ``::`` put between fences."""

    def fence(found: re.Match[str]) -> str:
        head, code = found[1].rstrip(), textwrap.dedent(found[2]).strip("\n")
        colon = "" if head.endswith((":", "**")) else ":"
        return f"{head}{colon}\n\n```python\n{code}\n```\n\n"

    return _LITERAL.sub(fence, text + "\n").rstrip("\n")


@dataclass(frozen=True)
class Skip:
    """A check that cannot judge says why; the reason is counted and printed, never passed over."""

    reason: str


Findings = Iterator[Alert | Skip]


@dataclass(frozen=True)
class Check(Generic[E]):
    """A check. Its docstring is its page; keyword-only parameters of its function are its options.

    Attributes:
        code: permanent code; never reused.
        name: kebab-case name that states the fault.
        severity: severity of an alert unless the evidence decides otherwise.
        sees: the kind of evidence it judges.
        function: ``(evidence, **options) -> findings``.
        implied_by: codes of root causes that explain this one's alerts away.
        options: defaults of the options that ``SanityWatchdog(options=…)`` may set.
    """

    code: str
    name: str
    severity: Severity
    sees: type[E]
    function: Callable[..., Findings]
    implied_by: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def page(self) -> str:
        """The check's page in Markdown."""
        return fenced(inspect.cleandoc(self.function.__doc__ or ""))

    @property
    def summary(self) -> str:
        """First line of the page."""
        return self.page.partition("\n")[0]

    def __call__(self, seen: E, /, **options: Any) -> Findings:
        return self.function(seen, **options)

    def alert(
        self,
        seen: Evidence,
        message: str,
        *,
        hint: str = "",
        subjects: Iterable[str] = (),
        severity: Severity | None = None,
        where: str = "",
        evidence: Mapping[str, Value] = MappingProxyType({}),
    ) -> Alert:
        """An alert of this check about the moment of ``seen``."""
        return Alert(
            code=self.code,
            name=self.name,
            severity=self.severity if severity is None else severity,
            message=message,
            step=seen.step,
            epoch=seen.epoch,
            stage=seen.stage,
            hint=hint,
            subjects=tuple(subjects),
            where=where,
            evidence=pairs(evidence),
        )


def check(
    code: str, name: str, severity: Severity, sees: type[E], *, implied_by: Iterable[str] = ()
) -> Callable[[Callable[Concatenate[E, P], Findings]], Check[E]]:
    """Make a check of the function below."""

    def bind(function: Callable[Concatenate[E, P], Findings]) -> Check[E]:
        keywords = inspect.signature(function).parameters.values()
        options = {p.name: p.default for p in keywords if p.kind is p.KEYWORD_ONLY}
        return Check(code, name, severity, sees, function, tuple(implied_by), MappingProxyType(options))

    return bind
