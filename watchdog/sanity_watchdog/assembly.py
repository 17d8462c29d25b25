"""Several ranks, one report: what this rank sends, and what rank zero makes of it."""

import base64
import math
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .evidence.base import Evidence
from .evidence.ranks import RankPrint, Replicas
from .evidence.readings import Scalars
from .exchange import PATIENCE, WAITING, Exchange
from .logger import DiagnosticsLogger
from .observe.ranks import comparable_buffers, grouped
from .observe.run import Run
from .observe.sharding import joins, sharding, sharing
from .records import alert_from_dict, alert_to_dict

SAMPLES = 8
"""Samples whose batch fingerprints are compared."""
AVERAGED = "weights are averaged now and then"
"""Why ranks differ in between."""
TRIES = 3
"""Batches after a sample at whose start rank zero looks for the others' messages; then again at the next sample."""
MOST = 6
"""Alerts in one message; what is left waits for the next. TEXT: characters of a text in it."""
TEXT = 300


class Assembly:
    """Gathers prints and alerts of all ranks at rank zero.

    Args:
        exchange: the way to the others.
        run: this rank's run.
        logger: this rank's logger; rank zero's receives the others' alerts.
    """

    def __init__(self, exchange: Exchange, run: Run, logger: DiagnosticsLogger) -> None:
        self._exchange, self._run, self._logger = exchange, run, logger
        self._own: list[RankPrint] = []
        self._told: dict[tuple[str, str], int] = {}
        self._prints: dict[int, dict[int, RankPrint]] = defaultdict(dict)
        self._lengths: dict[int, int] = {}
        self._batches: deque[tuple[int, ...]] = deque(maxlen=SAMPLES)
        self._noises: deque[tuple[int, ...]] = deque(maxlen=SAMPLES)
        self._joined = False
        self._tries = 0
        self._stop: dict[str, Any] | None = None

    def keep(self, seen: RankPrint) -> None:
        """This rank's own fingerprints have been read."""
        self._own.append(seen)

    def between(self, step: int, epoch: int) -> None:
        """A batch begins: send what is new; at rank zero take in what has arrived, and judge complete samples."""
        if self._own:
            self._send(step, epoch)
            self._tries = TRIES
        if self._tries and not self._exchange.rank:
            self._tries -= 1
            self._gather()

    def close(self, step: int, epoch: int) -> None:
        """The fit is over: the last words are exchanged, within ``PATIENCE`` seconds."""
        self._end(step, epoch, PATIENCE)

    def leave(self, step: int, epoch: int) -> None:
        """This rank raises: its last word is sent, nobody is waited for."""
        self._end(step, epoch, 0.0)

    # -- stopping together

    def stops(self, moment: str, mine: bool, attempt: int, sampled: bool) -> bool:
        """Do all ranks stop now? ``mine``: must this one? See ``Watch.failure`` for the moments.

        Within the run only where the batch is ``sampled``, as it is on every rank.
        """
        if moment == "first":
            if mine:
                self._ask_to_stop(0)
            self._exchange.together("first step")
            return self._should_stop(0)
        if mine:
            self._ask_to_stop(attempt + 2)
        if moment == "end":
            return self._should_stop(float("inf"))
        return moment == "batch" and sampled and self._should_stop(attempt)

    def _ask_to_stop(self, attempt: int) -> None:
        """Tell every rank to stop at the first sample from ``attempt`` on; the first rank that asks is heard."""
        if self._stop is None:
            news = self._news()
            self._heard(self._exchange.stop({"rank": self._exchange.rank, "attempt": attempt, "alerts": news}))

    def _should_stop(self, attempt: float) -> bool:
        """Has a rank asked all to stop by now? Its alerts join this rank's."""
        if self._stop is None and (asked := self._exchange.stopped()) is not None:
            self._heard(asked)
        return self._stop is not None and attempt >= self._stop["attempt"]

    def _heard(self, asked: dict[str, Any]) -> None:
        self._stop = asked
        for data in asked["alerts"] if asked["rank"] != self._exchange.rank else ():
            self._logger.adopt(alert_from_dict(data))

    def _send(self, step: int, epoch: int, last: bool = False) -> None:
        length = self._reachable()
        message = {
            "rank": self._exchange.rank,
            "step": step,
            "epoch": epoch,
            "length": int(length) if length < float("inf") else -1,
            "joined": joins(self._run.wrapper),
            "prints": [_pack(p) for p in self._own],
            "alerts": self._news() if self._exchange.rank else [],
        }
        self._own = []
        if self._exchange.rank:
            self._exchange.post(message, last)
        else:
            self._exchange.sent += not last
            self._take([message])

    def _reachable(self) -> float:
        """Batches of an epoch, as far as the run goes."""
        run = self._run
        last = run.max_steps * run.accumulate if run.max_steps >= 0 and run.automatic else float("inf")
        return min(run.batches_per_epoch, last)

    def _gather(self) -> None:
        self._take(self._exchange.collect())
        self._tries *= bool(self._prints)

    def _end(self, step: int, epoch: int, wait: float) -> None:
        self._send(step, epoch, last=True)
        if not self._exchange.rank:
            self._take(self._exchange.collect_last(wait))
            self._gather()

    def _news(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for alert in self._logger.alerts:
            more = alert.count - self._told.get(alert.key, 0)
            if more and len(found) < MOST:
                self._told[alert.key] = alert.count
                found.append(_short(alert_to_dict(replace(alert, count=more))))
        return found

    def _take(self, messages: Iterable[dict[str, Any]]) -> None:
        for message in messages:
            rank = message["rank"]
            self._lengths[rank] = message["length"]
            self._joined |= message.get("joined", False)
            for data in message.get("prints", ()):
                seen = _unpack(data, rank)
                self._prints[seen.attempt][rank] = seen
            for data in message.get("alerts", ()):
                self._logger.adopt(alert_from_dict(data))
        for complete in self._complete():
            self._logger.take(complete)

    def _complete(self) -> list[Evidence]:
        ready = sorted(a for a, prints in self._prints.items() if len(prints) == self._exchange.world)
        found: list[Evidence] = []
        for attempt in ready:
            prints = self._prints.pop(attempt)
            ordered = tuple(prints[rank] for rank in range(self._exchange.world))
            self._batches.append(tuple(p.batch for p in ordered))
            self._noises.append(tuple(p.noise for p in ordered))
            total = sum(p.squares for p in ordered)
            if 0 <= total < math.inf:
                values = {"gradient_norm": math.sqrt(total)}
                found.append(Scalars(step=ordered[0].step, epoch=ordered[0].epoch, values=values))
            lengths = [self._lengths.get(rank, -1) for rank in range(self._exchange.world)]
            module = self._run.module
            found.append(
                Replicas(
                    step=ordered[0].step,
                    epoch=ordered[0].epoch,
                    prints=ordered,
                    names=tuple(grouped(module.named_parameters())[0]),
                    buffer_names=tuple(grouped(comparable_buffers(module, self._run.wrapper))[0]),
                    apart=sharding(module, self._run.strategy)
                    or "weights are averaged now and then" * self._run.averages,
                    sharing=sharing(module),
                    batches=tuple(self._batches),
                    noises=tuple(self._noises),
                    joined=self._joined,
                    lengths=tuple(lengths) if min(lengths) >= 0 else (),
                )
            )
        for attempt in sorted(self._prints)[:-WAITING]:
            del self._prints[attempt]
        return found


def _pack(seen: RankPrint) -> dict[str, Any]:
    return {
        "step": seen.step,
        "epoch": seen.epoch,
        "attempt": seen.attempt,
        "groups": _text(seen.groups),
        "gradients": _text(seen.gradients),
        "buffers": _text(seen.buffers),
        "batch": seen.batch,
        "samples": seen.samples,
        "noise": seen.noise,
        "drawn_at": seen.drawn_at,
        "squares": seen.squares,
    }


def _unpack(data: dict[str, Any], rank: int) -> RankPrint:
    many = {name: _numbers(data[name]) for name in ("groups", "gradients", "buffers")}
    return RankPrint(**{**data, **many, "rank": rank})


def _text(numbers: Iterable[int]) -> str:
    return base64.b64encode(array("I", [n & 0xFFFFFFFF for n in numbers]).tobytes()).decode()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(array("I", base64.b64decode(text)))


def _short(data: dict[str, Any]) -> dict[str, Any]:
    evidence = data.get("evidence")
    if isinstance(evidence, dict):
        evidence = {k: v[:TEXT] if isinstance(v, str) else v for k, v in evidence.items()}
    return {**data, "evidence": evidence, "subjects": list(data.get("subjects", ()))[:8]}
