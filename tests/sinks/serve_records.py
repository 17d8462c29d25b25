"""TensorBoard with one more route: ``/data/plugin/records/all`` gives the watchdog's exact records as TensorBoard's
own data provider serves them. Started as a script with TensorBoard's command line."""

import json
import sys
from typing import Any

from tensorboard import default, plugin_util, program
from tensorboard.backend import http_util
from tensorboard.data import provider
from tensorboard.plugins import base_plugin
from werkzeug import wrappers


class Records(base_plugin.TBPlugin):
    plugin_name = "records"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._data = context.data_provider

    def get_plugin_apps(self) -> dict[str, Any]:
        return {"/all": self.all}

    def is_active(self) -> bool:
        return False

    @wrappers.Request.application
    def all(self, request: wrappers.Request) -> wrappers.Response:
        context = plugin_util.context(request.environ)
        found: dict[str, Any] = {}
        for plugin in ("watchdog", "watchdog_layers"):
            tags = self._data.list_tensors(context, experiment_id="", plugin_name=plugin)
            data = self._data.read_tensors(
                context,
                experiment_id="",
                plugin_name=plugin,
                downsample=1_000_000,
                run_tag_filter=provider.RunTagFilter(runs=None, tags=None),
            )
            for run, series in data.items():
                for tag, points in series.items():
                    content = tags[run][tag].plugin_content.decode()
                    rows = [[p.step, _plain(p.numpy)] for p in points]
                    found.setdefault(run, {})[tag] = {"content": content, "points": rows}
        return http_util.Respond(request, json.dumps(found), "application/json")


def _plain(value: Any) -> Any:
    one = value.reshape(-1).tolist()
    return one[0].decode() if one and isinstance(one[0], bytes) else [repr(x) for x in one]


if __name__ == "__main__":
    board = program.TensorBoard(plugins=[*default.get_plugins(), Records])
    board.configure(["tensorboard", *sys.argv[1:]])
    sys.exit(board.main())
