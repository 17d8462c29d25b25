"""Several ranks, one report: what this rank sends, and what rank zero makes of it."""

from collections import defaultdict, deque
from dataclasses import replace
from typing import Any

from .evidence.base import Evidence
from .evidence.ranks import RankPrint, Replicas
from .exchange import PATIENCE, Exchange
from .logger import DiagnosticsLogger
from .observe.ranks import comparable_buffers, grouped, sharding
from .observe.run import Run
from .records import alert_from_dict, alert_to_dict

SAMPLES = 8
"""Samples whose batch fingerprints are compared."""
WAITING = 16
"""Samples that may wait for a slow rank's word before they are given up."""
TRIES = 3
"""Batches after a sample at whose start rank zero looks for the others' messages; then again at the next sample."""
MOST = 6
"""Alerts in one message. TEXT: characters of a text in it."""
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
        self._send(step, epoch)
        if not self._exchange.rank:
            self._gather(PATIENCE)

    def leave(self, step: int, epoch: int) -> None:
        """This rank raises: its last word is sent, nobody is waited for."""
        self._send(step, epoch)

    # -- stopping together

    def ask_to_stop(self, attempt: int) -> None:
        """Tell every rank to stop at the first sample from ``attempt`` on; the first rank that asks is heard."""
        if self._stop is None:
            worst = [_short(alert_to_dict(a)) for a in self._logger.alerts[:MOST]]
            self._heard(self._exchange.stop({"rank": self._exchange.rank, "attempt": attempt, "alerts": worst}))

    def should_stop(self, attempt: float) -> bool:
        """Has a rank asked all to stop by now? Its alerts join this rank's."""
        if self._stop is None and (asked := self._exchange.stopped()) is not None:
            self._heard(asked)
        return self._stop is not None and attempt >= self._stop["attempt"]

    def _heard(self, asked: dict[str, Any]) -> None:
        self._stop = asked
        for data in asked["alerts"] if asked["rank"] != self._exchange.rank else ():
            self._logger.adopt(alert_from_dict(data))

    def together(self, word: str) -> None:
        """Wait for the others, never for long."""
        self._exchange.together(word)

    def _send(self, step: int, epoch: int) -> None:
        length = self._run.batches_per_epoch
        message = {
            "step": step,
            "epoch": epoch,
            "length": int(length) if length < float("inf") else -1,
            "prints": [_pack(p) for p in self._own],
            "alerts": self._news() if self._exchange.rank else [],
        }
        self._own = []
        if self._exchange.rank:
            self._exchange.post(message)
        else:
            self._exchange.sent += 1
            self._take(0, message)

    def _gather(self, wait: float = 0.0) -> None:
        for rank, message in self._exchange.collect(wait):
            self._take(rank, message)
        for seen in self._complete():
            self._logger.take(seen)
        self._tries *= bool(self._prints)

    def _news(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for alert in self._logger.alerts:
            more = alert.count - self._told.get(alert.key, 0)
            if more and len(found) < MOST:
                self._told[alert.key] = alert.count
                found.append(_short(alert_to_dict(replace(alert, count=more))))
        return found

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        self._lengths[rank] = message.get("length", -1)
        for data in message.get("prints", ()):
            seen = _unpack(data)
            self._prints[seen.attempt][rank] = seen
        for data in message.get("alerts", ()):
            self._logger.adopt(alert_from_dict(data))

    def _complete(self) -> list[Evidence]:
        ready = sorted(a for a, prints in self._prints.items() if len(prints) == self._exchange.world)
        found: list[Evidence] = []
        for attempt in ready:
            prints = self._prints.pop(attempt)
            ordered = tuple(prints[rank] for rank in range(self._exchange.world))
            self._batches.append(tuple(p.batch for p in ordered))
            lengths = [self._lengths.get(rank, -1) for rank in range(self._exchange.world)]
            module = self._run.module
            found.append(
                Replicas(
                    step=ordered[0].step,
                    epoch=ordered[0].epoch,
                    prints=ordered,
                    names=tuple(grouped(module.named_parameters())[0]),
                    buffer_names=tuple(grouped(comparable_buffers(module))[0]),
                    sharded=sharding(module, self._run.strategy),
                    batches=tuple(self._batches),
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
        "rank": seen.rank,
        "attempt": seen.attempt,
        "groups": [g & 0xFFFFFFFF for g in seen.groups],
        "buffers": [b & 0xFFFFFFFF for b in seen.buffers],
        "batch": seen.batch,
        "samples": seen.samples,
    }


def _unpack(data: dict[str, Any]) -> RankPrint:
    return RankPrint(**{**data, "groups": tuple(data["groups"]), "buffers": tuple(data["buffers"])})


def _short(data: dict[str, Any]) -> dict[str, Any]:
    evidence = data.get("evidence")
    if isinstance(evidence, dict):
        evidence = {k: v[:TEXT] if isinstance(v, str) else v for k, v in evidence.items()}
    return {**data, "evidence": evidence, "subjects": list(data.get("subjects", ()))[:8]}
