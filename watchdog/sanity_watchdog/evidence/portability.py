"""What a step needs of a device, judged for the devices meant."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True)
class OperatorCall:
    """One operator that a step dispatched to, from one place.

    Attributes:
        name: overload without ``aten::``, such as ``linalg_qr``; other libraries' with theirs.
        phase: ``forward`` or ``backward``.
        module: innermost module at work (in backward: that of the forward operator); empty for the step itself.
        where: the user's ``file:line``.
        calls: how often.
        depends: ``shape`` or ``value`` where the shape or value of the result must be known on the host.
        wide: did it make a float64 or complex128 tensor of at least one dimension?
    """

    name: str
    phase: str = "forward"
    module: str = ""
    where: str = ""
    calls: int = 1
    depends: str = ""
    wide: bool = False


@dataclass(frozen=True)
class OperatorGap:
    """An operator that a target lacks, or computes elsewhere.

    Attributes:
        call: what was called.
        target: ``mps``, ``tpu``, …
        missing: no kernel at all; otherwise a silent round trip through the CPU.
        source: what says so, such as ``torch 2.13.0``.
        way_out: what to do instead, where that is known.
    """

    call: OperatorCall
    target: str
    missing: bool
    source: str
    way_out: str = ""


@dataclass(frozen=True, kw_only=True)
class Operators(Evidence):
    """The operators of one step, judged for every target.

    Attributes:
        count: distinct operators.
        targets: targets judged, with the source that was asked.
        unjudged: targets that could not be judged, with the reason.
        gaps: what is not there.
        foreign: libraries of operators that no table knows, such as ``torchvision``.
        fallback: does the environment ask MPS to compute missing operators on the CPU?
    """

    count: int = 0
    targets: tuple[tuple[str, str], ...] = ()
    unjudged: tuple[tuple[str, str], ...] = ()
    gaps: tuple[OperatorGap, ...] = ()
    foreign: tuple[str, ...] = ()
    fallback: bool = False


@dataclass(frozen=True, kw_only=True)
class WideTensors(Evidence):
    """float64 and complex128 tensors, for targets that have no such formats.

    Attributes:
        targets: those targets.
        held: parameters, buffers and tensors of the batch.
        calls: operators of the step that made one.
    """

    targets: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    calls: tuple[OperatorCall, ...] = ()


@dataclass(frozen=True)
class PrecisionRow:
    """What a target does with the precision that was asked for.

    Attributes:
        target: ``mps``, … precision: ``16-mixed``, …
        outcome: ``works``, ``differs`` (other numbers, by default), ``ignored`` (silently not applied), ``fails``,
            ``unknown``.
        reason: why. needs: versions that it needs, such as ``torch >= 2.8``. source: where that is known from.
    """

    target: str
    precision: str
    outcome: str
    reason: str = ""
    needs: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class PrecisionOnTargets(Evidence):
    """The precision asked for, on every target."""

    rows: tuple[PrecisionRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Shapes(Evidence):
    """Shapes that change from step to step."""

    targets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BatchShapes(Shapes):
    """Shapes and formats of the training batches so far.

    Attributes:
        batches: batches seen.
        distinct: different signatures among them.
        once: signatures seen once only.
        examples: shapes of the first tensor that varies.
        ragged: samples in the last batch of an epoch, known from lengths; 0 where it is full or unknown.
        size: samples in the other batches.
    """

    batches: int = 0
    distinct: int = 0
    once: int = 0
    examples: tuple[str, ...] = ()
    ragged: int = 0
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class DependentShapes(Shapes):
    """Operators of the step whose result has a shape that depends on values."""

    calls: tuple[OperatorCall, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HostReads(Evidence):
    """Values of device tensors that the step asked for on the host, without the optimizer's own.

    Attributes:
        targets: devices that wait for it.
        calls: the reads.
    """

    targets: tuple[str, ...] = ()
    calls: tuple[OperatorCall, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Compilations(Evidence):
    """Dynamo's counters at samples of the run.

    Attributes:
        history: ``(training batches, graphs compiled, graph breaks)``, oldest first.
        reasons: what broke graphs, most frequent first.
        given_up: functions whose recompilations reached Dynamo's limit in this fit; it runs them as they are.
        function, where: what was compiled again most often in this fit, and where it begins. guard: what its latest
            compilation had assumed, as Dynamo writes it.
    """

    history: tuple[tuple[int, int, int], ...] = ()
    reasons: tuple[str, ...] = ()
    given_up: int = 0
    function: str = ""
    where: str = ""
    guard: str = ""
