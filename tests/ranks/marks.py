"""What not every torch can run."""

import pytest
import torch

SHARDS = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="fully_shard does not run on the CPU with this torch"
)
