"""``pytest --sanity-watchdog``: watches every training run that the tests start, and fails the test whose run alerts.

Without the flag nothing is imported that pytest has not imported already.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .alerts import Alert
    from .testing import SilentWatchdog

MARKER = (
    "sanity_watchdog(fail_on='warning', **settings): settings of SanityWatchdog for this test's training runs; "
    "fail_on=None lets them alert"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sanity-watchdog", "silent faults of training runs")
    group.addoption(
        "--sanity-watchdog",
        action="store_true",
        help="watch every Trainer.fit that the tests start; a test whose run alerts fails",
    )
    group.addoption(
        "--sanity-watchdog-fail-on",
        choices=("info", "warning", "error"),
        default="warning",
        help="severity from which an alert fails its test (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if config.getoption("sanity_watchdog"):
        config.pluginmanager.register(Watching(), "sanity-watchdog-runs")


@pytest.fixture
def sanity_watchdog(request: pytest.FixtureRequest) -> "SilentWatchdog":
    """A callback for the test's own Trainer, with or without ``--sanity-watchdog``; its alerts fail the test."""
    from .testing import SilentWatchdog

    return SilentWatchdog(fail_on=None, **_settings(request.node))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        result = yield
    except BaseException:
        _judge(item, _given(item), already_failed=True)
        raise
    _judge(item, _given(item))
    return result


class Watching:
    """Registered by the flag: gives every Trainer a watchdog, and counts."""

    def __init__(self) -> None:
        self._watchdogs: list[SilentWatchdog] = []
        self._settings: dict[str, Any] = {}
        self._counts = {"runs": 0, "alerts": 0, "incomplete": 0}

    def pytest_sessionstart(self) -> None:
        from . import autoload

        autoload.maker = self.make

    def pytest_unconfigure(self) -> None:
        from . import autoload

        autoload.maker = None

    def make(self) -> "list[SilentWatchdog]":
        """The callbacks of a Trainer that is being made."""
        from .testing import SilentWatchdog

        watchdog = SilentWatchdog(fail_on=None, **self._settings)
        watchdog.by_environment = True
        self._watchdogs.append(watchdog)
        return [watchdog]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._watchdogs.clear()
        self._settings = {}
        self._settings = _settings(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        try:
            result = yield
        except BaseException:
            _judge(item, self._seen(), already_failed=True)
            raise
        _judge(item, self._seen())
        return result

    def _seen(self) -> "list[tuple[Alert, ...]]":
        """The alerts of each training run of the test."""
        ran = [watchdog for watchdog in self._watchdogs if watchdog.summary.batches or watchdog.alerts]
        for watchdog in ran:
            if watchdog.summary.batches:
                self._counts["runs"] += 1
                self._counts["alerts"] += len(watchdog.alerts)
                self._counts["incomplete"] += watchdog.verdict == "incomplete"
        self._watchdogs.clear()
        return [watchdog.alerts for watchdog in ran]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["sanity_watchdog"] = self._counts

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for name, count in getattr(node, "workeroutput", {}).get("sanity_watchdog", {}).items():
            self._counts[name] += count

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        runs, alerts, incomplete = self._counts.values()
        from .alerts import counted

        terminalreporter.write_line(
            f"sanity-watchdog: {counted(runs, 'training run')} watched by --sanity-watchdog,"
            f" {counted(alerts, 'alert')}, {incomplete} without a verdict"
        )


def _settings(item: pytest.Item) -> dict[str, Any]:
    """The marker's, which must be right: a test that is not watched because of them would pass."""
    marker = item.get_closest_marker("sanity_watchdog")
    if marker is None:
        return {}
    from .alerts import Severity
    from .testing import SilentWatchdog

    settings = {k: v for k, v in marker.kwargs.items() if k != "fail_on"}
    fail_on, wrong = marker.kwargs.get("fail_on"), ""
    try:
        if marker.args:
            raise TypeError(f"takes named settings only, got {marker.args[0]!r}: write ignore=[{marker.args[0]!r}]")
        if fail_on is not None:
            Severity.parse(fail_on)
        SilentWatchdog(**settings, fail_on=None)
    except (TypeError, ValueError) as error:
        wrong = str(error)
    if wrong:
        pytest.fail(f"marker sanity_watchdog of {item.nodeid}: {wrong}", pytrace=False)
    return settings


def _given(item: pytest.Item) -> "list[tuple[Alert, ...]]":
    watchdog = getattr(item, "funcargs", {}).get("sanity_watchdog")
    return [watchdog.alerts] if watchdog is not None else []


def _judge(item: pytest.Item, runs: "list[tuple[Alert, ...]]", already_failed: bool = False) -> None:
    if not any(runs):
        return
    from .alerts import Severity
    from .testing import report

    marker = item.get_closest_marker("sanity_watchdog")
    fail_on = item.config.getoption("sanity_watchdog_fail_on")
    if marker is not None:
        fail_on = marker.kwargs.get("fail_on", fail_on)
    if fail_on is None:
        return
    texts = []
    for number, alerts in enumerate(runs, 1):
        if failing := [a for a in alerts if a.severity >= Severity.parse(fail_on)]:
            which = f"training run {number} of {len(runs)}" if len(runs) > 1 else "this training run"
            texts.append(report(failing, which))
    if texts and already_failed:
        item.add_report_section("call", "sanity-watchdog", "\n\n".join(texts))
    elif texts:
        pytest.fail("\n\n".join(texts), pytrace=False)
