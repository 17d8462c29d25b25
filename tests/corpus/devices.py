"""Number formats that do not fit, and what another accelerator would refuse."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, fault
from .parts import Language, line, text


@fault("WD402", raises="RuntimeError")
def float64_features(fixed: bool) -> Run:
    x, y = blobs()
    return Classifier(), loader(x if fixed else x.double(), y), {}


@fault("WD402", raises="RuntimeError")
def integer_features() -> Run:
    x, y = blobs()
    return Classifier(), loader((10 * x).long(), y), {}


@fault("WD404", "WD403", target="cuda")
def mask_kept_as_an_attribute(fixed: bool) -> Run:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()
            mask = (torch.arange(20) % 4 > 0).float()
            if fixed:
                self.register_buffer("mask", mask)
            else:
                self.mask = mask

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x * self.mask)

    return Classifier(Masked()), loader(*blobs()), {}


@fault("WD404", "WD403", target="cuda")
def table_in_a_list_of_tensors() -> Run:
    class Tables(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.tables = [torch.eye(20), torch.eye(20).flip(0)]

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.net(batch[0] @ self.tables[batch_idx % 2]), batch[1])

    return Tables(), loader(*blobs()), {}


@fault("WD403", target="cuda")
def tensor_made_on_the_cpu_in_forward(fixed: bool) -> Run:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.place = mlp(), nn.Embedding(20, 1)

        def forward(self, x: Tensor) -> Tensor:
            where = torch.arange(20, device=x.device if fixed else None)
            return self.net(x + self.place(where).squeeze(1))

    return Classifier(Placed()), loader(*blobs()), {}


@fault("WD405", target="mps")
def float64_targets_for_mps(fixed: bool) -> Run:
    x, y = line()
    loss = lambda z, t: F.mse_loss(z.squeeze(1), t.float())  # noqa: E731
    return Classifier(mlp(12, 1), loss, lr=3e-3), loader(x, y if fixed else y.double()), {}


@fault("WD406", "WD407", target="mps")
def distances_without_a_kernel(fixed: bool) -> Run:
    class Spread(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0])
            gaps = (scores[:, None] - scores).square().sum(2) + 1e-6 if fixed else F.pdist(scores)
            return self.loss(scores, batch[1]) + 0.01 * (-gaps).exp().mean()

    return Spread(), loader(*blobs()), {}


@fault("WD406", "WD407", target="mps")
def nested_tensors_in_validation() -> Run:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.head = nn.Embedding(48, 16), nn.Linear(16, 4)
            block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.blocks = nn.TransformerEncoder(block, 1)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.blocks(self.token(ids), src_key_padding_mask=ids == 0)[:, 0])

    ids = text()
    ids[::2, 12:] = 0
    y = ids[:, 0] % 4
    settings = {"validation": loader(ids, y, shuffle=False), "val_check_interval": 5}
    return Classifier(Padded()), loader(ids, y), settings


@fault("WD409", target="tpu")
def every_batch_has_its_own_length(fixed: bool) -> Run:
    def collate(rows: list[Tensor]) -> dict[str, Tensor]:
        ids = pad_sequence(rows, batch_first=True)
        return {"ids": F.pad(ids, (0, 32 - ids.shape[1])) if fixed else ids}

    rows = [row[: int(n)] for row, n in zip(text(t=32), torch.randint(5, 33, (320,)), strict=True)]
    return Language(), DataLoader(rows, 4, shuffle=True, collate_fn=collate), {}
