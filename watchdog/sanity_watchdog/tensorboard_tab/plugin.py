"""The server's half of the tab: JSON from TensorBoard's data provider, and the one file of JavaScript."""

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboard import plugin_util
from tensorboard.backend import http_util
from tensorboard.data import provider
from tensorboard.plugins import base_plugin
from werkzeug import Request, Response

from ..checks import CHECKS
from ..records import decode, encode
from .heat import QUANTITIES, Series, picture
from .loader import LAYERS, RECORDS
from .runs import Fit, detail, row

PREFIX = "watchdog/layers/"
EVERYTHING = 1_000_000
Answer = tuple[Any, int]
Stamp = tuple[int, float]


def _answers(find: Callable[["WatchdogTab", Request], Answer]) -> Callable[["WatchdogTab", Request], Response]:
    """A route that answers in JSON. What goes wrong becomes an answer as well."""

    @functools.wraps(find)
    def route(self: "WatchdogTab", request: Request) -> Response:
        try:
            content, code = find(self, request)
        except Exception as error:
            logging.getLogger(__name__).warning("the Watchdog tab cannot answer", exc_info=True)
            content, code = {"error": f"{type(error).__name__}: {error}"[:500]}, 500
        response: Response = http_util.Respond(request, encode(content), "application/json", code=code)
        return response

    return route


class WatchdogTab(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab. It keeps what it has decoded, and reads a fit again only when that has grown."""

    plugin_name = RECORDS

    def __init__(self, context: Any) -> None:
        self._data = context.data_provider
        self._script = Path(__file__).with_name("index.js")
        self._fits: dict[tuple[str, str, str], tuple[Stamp, Fit]] = {}
        self._busy = threading.Lock()

    def get_plugin_apps(self) -> dict[str, Any]:
        routes = {"/runs": self.runs, "/run": self.run, "/layers": self.layers, "/page": self.page}
        return {
            "/index.js": Request.application(self.script),
            **{path: Request.application(route) for path, route in routes.items()},
        }

    def is_active(self) -> bool:
        return False  # the data provider says for which plugins there is data

    def data_plugin_names(self) -> tuple[str, ...]:
        return (RECORDS, LAYERS)

    def frontend_metadata(self) -> Any:
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Watchdog")

    # -- routes

    def script(self, request: Request) -> Response:
        """The page."""
        response: Response = http_util.Respond(request, self._script.read_text("utf-8"), "text/javascript")
        return response

    @_answers
    def runs(self, request: Request) -> Answer:
        """Every run in one line. ``stamp`` changes when the run has something new."""
        fits = self._read(request)
        layers = self._listed(request, LAYERS)
        rows = []
        for name in sorted(fits.keys() | layers.keys()):
            news = max(((t.max_step, t.max_wall_time) for t in layers.get(name, {}).values()), default=None)
            own = fits.get(name) or [Fit()]
            rows.append({**row(name, own), "layers": news is not None, "stamp": [own[-1].updated, news]})
        return {"runs": rows}, 200

    @_answers
    def run(self, request: Request) -> Answer:
        """Everything about the run ``run``."""
        name = request.args.get("run", "")
        fits = self._read(request, name).get(name)
        return (detail(name, fits), 200) if fits else ({"error": "no such run"}, 404)

    @_answers
    def layers(self, request: Request) -> Answer:
        """Pictures of the layers of the run ``run``."""
        name = request.args.get("run", "")
        tags = self._listed(request, LAYERS, name).get(name, {})
        data = self._values(request, LAYERS, [name], list(tags)).get(name, {}) if tags else {}
        found: dict[str, list[Series]] = {}
        for tag, points in data.items():
            if (series := _series(tags[tag].plugin_content, points)) is not None:
                found.setdefault(tag.removeprefix(PREFIX).partition("/")[0], []).append(series)
        order = [*(q for q in QUANTITIES if q in found), *sorted(found.keys() - QUANTITIES.keys())]
        return {"pictures": [p for q in order if (p := picture(q, found[q])) is not None]}, 200

    @_answers
    def page(self, request: Request) -> Answer:
        """The page of the check ``code``."""
        code = request.args.get("code", "")
        check = next((c for c in CHECKS if c.code == code), None)
        if check is None:
            return {"error": f"this version has no check {code[:20]}"}, 404
        options = {name: str(value) for name, value in check.options.items()}
        return {"code": code, "name": check.name, "page": check.page, "options": options}, 200

    # -- data

    def _where(self, request: Request) -> dict[str, Any]:
        return {
            "ctx": plugin_util.context(request.environ),
            "experiment_id": plugin_util.experiment_id(request.environ),
        }

    def _listed(self, request: Request, plugin: str, run: str | None = None) -> Mapping[str, Mapping[str, Any]]:
        only = provider.RunTagFilter(runs=None if run is None else [run], tags=None)
        where = self._where(request)
        found: Mapping[str, Mapping[str, Any]] | None = self._data.list_tensors(
            where["ctx"], experiment_id=where["experiment_id"], plugin_name=plugin, run_tag_filter=only
        )
        return found or {}

    def _values(
        self, request: Request, plugin: str, runs: list[str], tags: list[str]
    ) -> Mapping[str, Mapping[str, Any]]:
        where = self._where(request)
        found: Mapping[str, Mapping[str, Any]] | None = self._data.read_tensors(
            where["ctx"],
            experiment_id=where["experiment_id"],
            plugin_name=plugin,
            downsample=EVERYTHING,
            run_tag_filter=provider.RunTagFilter(runs=runs, tags=tags),
        )
        return found or {}

    def _read(self, request: Request, run: str | None = None) -> dict[str, list[Fit]]:
        """The fits of every run, or of one, in the order in which they began."""
        experiment = str(self._where(request)["experiment_id"])
        with self._busy:
            stamps = {
                (name, tag): (series.max_step, series.max_wall_time)
                for name, tags in self._listed(request, RECORDS, run).items()
                for tag, series in tags.items()
            }
            old = {k for k, stamp in stamps.items() if self._fits.get((experiment, *k), (None,))[0] != stamp}
            if old:
                runs, tags = sorted({r for r, _ in old}), sorted({t for _, t in old})
                data = self._values(request, RECORDS, runs, tags)
                for name, tag in old:
                    texts = [(p.wall_time, _text(p)) for p in data.get(name, {}).get(tag, ())]
                    self._fits[(experiment, name, tag)] = stamps[name, tag], Fit.of(texts)
            if run is None:
                gone = {k for k in self._fits if k[0] == experiment and k[1:] not in stamps}
                self._fits = {k: fit for k, fit in self._fits.items() if k not in gone}
            found: dict[str, list[Fit]] = {}
            for name, tag in stamps:
                found.setdefault(name, []).append(self._fits[(experiment, name, tag)][1])
        return {name: sorted(fits, key=lambda f: f.started) for name, fits in found.items()}


def _text(point: Any) -> bytes | str:
    value = point.numpy.reshape(-1)[0]
    return value if isinstance(value, bytes) else str(value)


def _series(content: bytes, points: Any) -> Series | None:
    """The vectors of one tag whose names are known and fit; None where they do not."""
    try:
        names = [str(name) for name in decode(content)["names"]]
    except (ValueError, KeyError, TypeError):
        return None
    fitting = sorted((p for p in points if p.numpy.size == len(names)), key=lambda p: p.step)
    return Series(names, [int(p.step) for p in fitting], [p.numpy.reshape(-1) for p in fitting])
