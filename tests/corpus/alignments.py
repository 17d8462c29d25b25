"""Connectionist temporal classification: lengths, blanks, log-probabilities, and the order of the axes."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.runs import Classifier, loader

from .case import Run, fault, healthy


def words(n: int = 256, letters: int = 6, shortest: int = 3, longest: int = 5, each: int = 4, d: int = 8) -> list[Any]:
    """Pairs of frames ``(t, d)`` and letters 1 … ``letters``, each of which is heard for ``each`` frames."""
    sound = 1.5 * torch.randn(letters + 1, d)
    pairs = []
    for size in torch.randint(shortest, longest + 1, (n,)).tolist():
        word = torch.randint(1, letters + 1, (size,))
        heard = sound[word].repeat_interleave(each, 0)
        pairs.append((heard + 0.3 * torch.randn_like(heard), word))
    return pairs


def padded(pairs: list[Any], filler: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Frames ``(n, t, d)``, letters ``(n, s)`` and the length of each."""
    frames, letters = zip(*pairs, strict=True)
    return (
        nn.utils.rnn.pad_sequence(frames, batch_first=True),
        nn.utils.rnn.pad_sequence(letters, batch_first=True, padding_value=filler),
        torch.tensor([len(f) for f in frames]),
        torch.tensor([len(w) for w in letters]),
    )


class Listener(nn.Module):
    """Frames ``(n, t, d)`` to scores ``(n, t / stride, k)``."""

    def __init__(self, k: int = 7, d: int = 8, width: int = 24, stride: int = 1) -> None:
        super().__init__()
        self.ear = nn.Conv1d(d, width, 3, stride, padding=1)
        self.memory = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.speech = nn.Linear(2 * width, k)

    def forward(self, x: Tensor) -> Tensor:
        return self.speech(self.memory(self.ear(x.transpose(1, 2)).relu().transpose(1, 2))[0])


class Transcriber(Classifier):
    """Scores, then ``self.loss(scores, letters, frames, sizes)``."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y, frames, sizes = batch
        return self.loss(self.net(x), y, frames, sizes)


def plain(z: Tensor, y: Tensor, frames: Tensor, sizes: Tensor) -> Tensor:
    return F.ctc_loss(z.log_softmax(-1).transpose(0, 1), y, frames, sizes)


@fault("WD103", also=("WD108", "WD144"))
def ctc_of_scores(fixed: bool) -> Run:
    def loss(z: Tensor, *rest: Tensor) -> Tensor:
        z = z.log_softmax(-1) if fixed else z
        return F.ctc_loss(z.transpose(0, 1), *rest)

    return Transcriber(Listener(), loss, lr=3e-3), loader(*padded(words())), {}


@fault("WD103", also=("WD144", "WD108"))
def ctc_of_probabilities_with_the_blank_last() -> Run:
    class Spelling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 40), nn.Tanh(), nn.Linear(40, 7))

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x).softmax(-1)

    criterion = nn.CTCLoss(blank=6, zero_infinity=True)
    loss = lambda p, y, t, s: criterion(p.permute(1, 0, 2), y - 1, t, s)  # noqa: E731
    x, y, t, s = padded(words(), filler=1)
    return Transcriber(Spelling(), loss, lr=3e-3), loader(x, y, t, s, batch_size=16), {}


@fault("WD103", raises="RuntimeError")
def ctc_with_the_batch_first(fixed: bool) -> Run:
    def loss(z: Tensor, *rest: Tensor) -> Tensor:
        log_p = z.log_softmax(2)
        return F.ctc_loss(log_p.transpose(0, 1) if fixed else log_p, *rest)

    return Transcriber(Listener(), loss), loader(*padded(words())), {}


@fault("WD105")
def ctc_whose_first_letter_is_the_blank(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor, frames: Tensor, sizes: Tensor) -> Tensor:
        letters = torch.cat([w[:s] for w, s in zip(y, sizes.tolist(), strict=True)])
        return criterion(z.log_softmax(-1).movedim(0, 1), letters if fixed else letters - 1, frames, sizes)

    criterion = nn.CTCLoss()
    return Transcriber(Listener(width=16), loss, lr=3e-3), loader(*padded(words())), {}


@fault("WD105")
def ctc_that_counts_the_padding(fixed: bool) -> Run:
    class Reader(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            lines, text, widths = batch["lines"], batch["text"], batch["widths"]
            counts = (text > 0).sum(1) if fixed else torch.full((len(text),), text.shape[1])
            return nn.CTCLoss()(self.net(lines).log_softmax(-1).permute(1, 0, 2), text, widths, counts)

    x, y, t, _ = padded(words(shortest=2, longest=6))
    rows = [{"lines": a, "text": b, "widths": c} for a, b, c in zip(x, y, t, strict=True)]
    return Reader(Listener(), lr=3e-3), DataLoader(rows, 16, shuffle=True), {}


@fault("WD111")
def ctc_that_learns_another_filler() -> Run:
    def loss(z: Tensor, y: Tensor, frames: Tensor, sizes: Tensor) -> Tensor:
        sizes = torch.full_like(sizes, y.shape[1])
        return F.ctc_loss(z.log_softmax(-1).transpose(0, 1), y, torch.full_like(frames, z.shape[1]), sizes)

    x, y, t, s = padded(words(shortest=1, longest=8), filler=7)
    return Transcriber(Listener(k=8), loss, lr=3e-3), loader(x, y, t, s), {}


@fault("WD105", also=("WD142", "WD211", "WD303"))
def ctc_after_too_much_pooling(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor, frames: Tensor, sizes: Tensor) -> Tensor:
        steps = (frames + stride - 1) // stride
        return F.ctc_loss(z.log_softmax(-1).transpose(0, 1), y, steps, sizes)

    stride = 2 if fixed else 5
    return Transcriber(Listener(stride=stride), loss, lr=3e-3), loader(*padded(words())), {}


@fault("WD142", also=("WD105", "WD211", "WD303"))
def ctc_with_one_word_too_long() -> Run:
    pairs = words(640)
    pairs[600] = (pairs[600][0][:2], pairs[600][1])
    return Transcriber(Listener(), plain, lr=3e-3), loader(*padded(pairs), shuffle=False), {}


@fault("WD105", also=("WD214",))
def ctc_that_forgives_everything() -> Run:
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)

    def loss(z: Tensor, y: Tensor, frames: Tensor, sizes: Tensor) -> Tensor:
        return criterion(z.log_softmax(-1).transpose(0, 1), y, frames // 8, sizes)

    return Transcriber(Listener(), loss, lr=3e-3), loader(*padded(words())), {}


@fault("WD105", raises="RuntimeError")
def ctc_lengths_before_the_stride() -> Run:
    return Transcriber(Listener(stride=2), plain), loader(*padded(words())), {}


@fault("WD105")
def ctc_with_a_letter_too_many() -> Run:
    return Transcriber(Listener(k=6), plain, lr=3e-3), loader(*padded(words())), {}


@healthy
def ctc_with_some_words_too_long() -> Run:
    pairs = words(300)
    for i in range(0, 300, 9):
        pairs[i] = (pairs[i][0][: len(pairs[i][1]) - 1], pairs[i][1])
    criterion = nn.CTCLoss(zero_infinity=True)
    loss = lambda z, y, t, s: criterion(z.log_softmax(-1).transpose(0, 1), y, t, s)  # noqa: E731
    return Transcriber(Listener(), loss, lr=3e-3), loader(*padded(pairs), batch_size=20), {}


@fault("WD105", also=("WD211",))
def ctc_without_the_infinite_ones() -> Run:
    def loss(z: Tensor, y: Tensor, frames: Tensor, sizes: Tensor) -> Tensor:
        each = F.ctc_loss(z.log_softmax(-1).transpose(0, 1), y, frames, sizes, reduction="none")
        return each[each.isfinite()].mean()

    pairs = [(x[:2], w) if i % 16 == 3 else (x, w) for i, (x, w) in enumerate(words())]
    return Transcriber(Listener(), loss, lr=3e-3), loader(*padded(pairs)), {}


@healthy
def ctc_of_joined_letters_in_double_precision() -> Run:
    class Joined(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, letters, frames, sizes = batch
            log_p = F.log_softmax(self.net(x), -1).double().transpose(0, 1)
            return F.ctc_loss(log_p, letters.int(), tuple(frames.tolist()), tuple(sizes.tolist()), blank=7)

    def collate(pairs: list[Any]) -> Any:
        x, _, frames, sizes = padded(pairs)
        return x, torch.cat([w for _, w in pairs]) - 1, frames, sizes

    return Joined(Listener(k=8)), DataLoader(words(), 12, shuffle=True, collate_fn=collate), {}


@healthy
def ctc_beside_an_attention_loss() -> Run:
    class Both(Transcriber):
        def __init__(self) -> None:
            super().__init__(Listener(k=9), lr=3e-3)
            self.first = nn.Linear(9, 9)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y, frames, sizes = batch
            z = self.net(x)
            log_p = z.float().log_softmax(-1).transpose(0, 1)
            one_by_one = F.ctc_loss(log_p, y, frames, sizes, reduction="none", zero_infinity=True)
            return 0.3 * (one_by_one / sizes).mean() + 0.7 * F.cross_entropy(self.first(z.mean(1)), y[:, 0])

    return Both(), loader(*padded(words(), filler=-1)), {}


@healthy
def ctc_on_a_bf16_network_with_masked_frames() -> Run:
    def loss(z: Tensor, y: Tensor, frames: Tensor, sizes: Tensor) -> Tensor:
        log_p = z.log_softmax(-1)
        late = torch.arange(z.shape[1]) >= frames[:, None]
        log_p = log_p.masked_fill(late[..., None], 0.0).transpose(0, 1)
        return F.ctc_loss(log_p.float(), y, frames, sizes).clamp(max=50)

    return Transcriber(Listener(), loss, lr=3e-3), loader(*padded(words())), {"precision": "bf16-mixed"}


@healthy
def ctc_of_silent_and_short_samples() -> Run:
    pairs = words(200, shortest=1, longest=3)
    for i in range(0, 200, 5):
        pairs[i] = (pairs[i][0], pairs[i][1][:0])
    return Transcriber(Listener(), plain, lr=3e-3), loader(*padded(pairs)), {}


@healthy
def ctc_one_sample_at_a_time() -> Run:
    class Single(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            log_p = self.net(x).log_softmax(-1)[0]
            return F.ctc_loss(log_p, y[0], torch.tensor(len(log_p)), torch.tensor(y.shape[1]))

    return Single(Listener(), lr=1e-3), DataLoader(words(80), 1, shuffle=True), {}
