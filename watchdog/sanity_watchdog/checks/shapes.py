"""What a target that compiles, or runs ahead of the host, does not like in a step."""

from collections import defaultdict

from ..alerts import Severity
from ..evidence.portability import BatchShapes, Compilations, DependentShapes, HostReads, OperatorCall, Shapes
from .check import Findings, check

MOST_SHAPES = 8
"""Signatures that every target takes without complaint: ``torch._dynamo.config.recompile_limit`` is 8."""
FEWEST_BATCHES = 16
"""Batches before the share of new shapes says anything."""
FEWEST_SHAPES = 4
"""With two or three signatures a run is bucketed, or has a ragged last batch."""
SHARE_ONCE = 0.1
"""Share of batches whose shape came only once: by Good and Turing the chance that the next batch is new as well."""
MOST_GRAPHS = 8
"""Graphs compiled after the first sample; as ``MOST_SHAPES``."""


@check("WD409", "changing-shapes", Severity.WARNING, Shapes)
def changing_shapes(seen: Shapes, *, most_shapes: int = MOST_SHAPES, share_once: float = SHARE_ONCE) -> Findings:
    """Shapes change from batch to batch, and the target compiles a graph for each.

    **What it sees.** With a target that compiles for static shapes (TPUs): the shapes and formats of every training
    batch. It alerts when there are more than ``most_shapes`` different ones, or when a share of at least
    ``share_once`` of the batches has a shape that came only once, so that compiling never ends. Also operators of the
    first steps whose result has a shape that depends on values, such as a boolean index. A smaller last batch, known
    from lengths before training, is one compilation more (INFO).

    **Why it matters.** Each new shape compiles the whole step again: seconds to minutes during which the device waits.
    Nothing fails; the run is many times slower than it could be.

    **How to fix.** Pad to one length or to a few buckets, and drop or pad the last batch::

        DataLoader(data, 32, collate_fn=pad_to_longest)                     # before
        DataLoader(data, 32, collate_fn=pad_to_multiple(64), drop_last=True)  # after

    Replace a boolean index by ``torch.where`` or a weighted sum.

    **When to ignore.** When the run is short, or the compiler was told that this size is dynamic.

    **Limits.** Shapes inside the step are only known by the operators' own tags. On devices that run eagerly nothing
    is said: changing shapes are normal there.

    **Sources.** PyTorch/XLA, "Source of recompilation"; torch_tpu compiles with ``dynamic=False``.
    """
    aims = ", ".join(seen.targets)
    if isinstance(seen, DependentShapes):
        for where, calls in _by_line(seen.calls).items():
            yield changing_shapes.alert(
                seen,
                f"the shape of {calls[0].name}'s result depends on values: a graph for each on {aims}"[:99],
                hint="keep the shape fixed: torch.where or a weighted sum in place of a boolean index or nonzero",
                subjects=dict.fromkeys(c.module or c.name for c in calls),
                where=where,
                evidence={"targets": aims, "operators": ", ".join(dict.fromkeys(c.name for c in calls))},
            )
        return
    if not isinstance(seen, BatchShapes):
        return
    if seen.ragged:
        yield changing_shapes.alert(
            seen,
            f"the last batch of an epoch has {seen.ragged} samples, the others {seen.size}: compiled twice for {aims}",
            severity=Severity.INFO,
            hint="DataLoader(..., drop_last=True), or pad the last batch",
            evidence={"targets": aims, "last": seen.ragged, "batch_size": seen.size},
        )
    once = seen.once / seen.batches if seen.batches else 0.0
    endless = seen.batches >= FEWEST_BATCHES and seen.distinct >= FEWEST_SHAPES and not once < share_once
    if seen.distinct > most_shapes or endless:
        yield changing_shapes.alert(
            seen,
            f"{seen.distinct} different shapes in {seen.batches} batches: as many graphs to compile on {aims}",
            hint="pad to one length or to a few buckets, and use drop_last=True",
            subjects=("batch",),
            evidence={"targets": aims, "once": seen.once, "examples": "; ".join(seen.examples)},
        )


@check("WD410", "recompiling", Severity.WARNING, Compilations, implied_by=("WD409",))
def recompiling(seen: Compilations, *, most_graphs: int = MOST_GRAPHS) -> Findings:
    """Compiled code is compiled again and again while training.

    **What it sees.** Where something is compiled: Dynamo's own counters of compiled graphs and graph breaks at every
    sample, and which guards failed. It alerts when more than ``most_graphs`` graphs were compiled after the first
    training batches, or when a function was recompiled until Dynamo gave up.

    **Why it matters.** Each compilation stops the run for seconds to minutes. After eight of one function Dynamo gives
    up and runs it uncompiled, with one warning.

    **How to fix.** The alert names the function that was compiled most often and the guard that failed last;
    ``TORCH_LOGS=recompiles`` shows all. Keep shapes constant, pass
    changing numbers as tensors, mark a changing size with ``torch._dynamo.mark_dynamic``::

        self.net(x, 0.99**step)                                    # before: a new constant in each step
        self.net(x, torch.tensor(0.99**step, device=x.device))     # after

    **When to ignore.** While many different modules are compiled one after the other, each for the first time.

    **Limits.** Compilations in other processes are not counted. The first batches may compile what they like. That
    Dynamo gave up is not told by torch 2.6.

    **Sources.** PyTorch, ``torch._dynamo.config.recompile_limit`` (8); counters as in
    ``torch._dynamo.utils.counters``.
    """
    log = "run once with TORCH_LOGS=recompiles: it names the guard that fails"
    hint = f"keep this constant, pass it as a tensor, or mark the size as dynamic: {seen.guard}" if seen.guard else log
    subjects = (f"{seen.function} at {seen.where}",) if seen.function else ()
    if seen.given_up:
        which = seen.function or "a function"
        which = which if seen.given_up == 1 else f"{seen.given_up} functions"
        yield recompiling.alert(
            seen,
            f"{which} reached Dynamo's limit of recompilations: new cases run uncompiled",
            hint=hint,
            subjects=subjects,
            evidence={"given_up": seen.given_up, "graphs": seen.history[-1][1] if seen.history else 0},
        )
        return
    if len(seen.history) < 2:
        return
    (since, before, _), (batches, now, breaks) = seen.history[0], seen.history[-1]
    if now - before > most_graphs:
        yield recompiling.alert(
            seen,
            f"{now - before} graphs compiled between batches {since} and {batches}, more than {most_graphs}",
            hint=hint,
            subjects=subjects,
            evidence={"graphs": now, "graph_breaks": breaks, "reasons": "; ".join(seen.reasons)[:200]},
        )


@check("WD411", "host-read-in-step", Severity.INFO, HostReads)
def host_read_in_step(seen: HostReads) -> Findings:
    """The step asks for a tensor's value on the host.

    **What it sees.** With a target that runs ahead of the host (CUDA, XPU, TPU): operators of the first training step
    that return a value to Python, such as ``.item()``, ``float(tensor)``, ``if tensor > 0``. The optimizer's own are
    left out.

    **Why it matters.** The host waits for all queued work, and the device idles until it has new work. On a TPU each
    read also ends the graph.

    **How to fix.** Keep it a tensor: ``self.log("loss", loss)`` instead of ``loss.item()``, ``torch.where`` instead of
    ``if``, ``clamp`` instead of ``max(float(n), 1)``::

        loss = loss / max(float(mask.sum()), 1)    # before
        loss = loss / mask.sum().clamp(min=1)      # after

    **When to ignore.** Where the value is needed, or the step is long.

    **Limits.** Reads by ``.cpu()`` and ``.numpy()`` are not seen on a CPU. A read of a tensor that lives on the CPU
    anyway is accused as well.

    **Sources.** PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    aims = ", ".join(seen.targets)
    for where, calls in _by_line(seen.calls).items():
        count = sum(c.calls for c in calls)
        yield host_read_in_step.alert(
            seen,
            f"{count} {'value' if count == 1 else 'values'} read on the host in the step, each a wait on {aims}",
            hint="keep it a tensor: log the tensor itself, torch.where instead of if, clamp instead of max(float(…))",
            subjects=dict.fromkeys(c.module or c.name for c in calls),
            where=where,
            evidence={"targets": aims, "reads": count},
        )


def _by_line(calls: tuple[OperatorCall, ...]) -> dict[str, list[OperatorCall]]:
    lines: dict[str, list[OperatorCall]] = defaultdict(list)
    for call in calls:
        lines[call.where].append(call)
    return lines
