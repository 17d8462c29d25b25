"""The layer pictures of a real run."""

import math

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.evidence.readings import Layers
from sanity_watchdog.summary import Batch, RunInfo, Summary
from sanity_watchdog.tensorboard_tab.heat import QUANTITIES
from tests.runs import Classifier, blobs, fp16, loader, trainer


class Collector:
    def __init__(self) -> None:
        self.layers: list[Layers] = []

    def open(self, info: RunInfo) -> None:
        pass

    def write(self, batch: Batch) -> None:
        self.layers += [r for r in batch.readings if isinstance(r, Layers)]

    def close(self, summary: Summary) -> None:
        pass


def test_every_layer_of_a_float16_run_is_pictured() -> None:
    seen = Collector()
    dog = SanityWatchdog(fail_on=None, sinks=[seen])
    trainer(dog, plugins=[fp16()], max_steps=6).fit(Classifier(), loader(*blobs()))
    by_quantity = {layers.quantity: layers for layers in seen.layers}
    assert by_quantity.keys() >= QUANTITIES.keys()
    for quantity, layers in by_quantity.items():
        assert len({one.names for one in seen.layers if one.quantity == quantity}) == 1
        assert "net.0.weight" in layers.names
        assert any(math.isfinite(value) for value in layers.values)
    (ratio, *_) = by_quantity["log2_update_ratio"].values
    assert -20 < ratio < 0
    assert all(0 <= value <= 30 for value in by_quantity["log2_overflow_headroom"].values)
    assert all(0 <= value <= 1 for value in by_quantity["underflow_share"].values)
