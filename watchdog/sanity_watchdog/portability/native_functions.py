"""Which aten operators have kernels on which backend, as PyTorch's own ``native_functions.yaml`` declares it.

Every torch wheel carries that file, on any platform and for all backends of the main repository, so the installed torch
answers for a Mac from a Linux machine. Only the few keys that decide about kernels are read.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

ACCELERATORS = ("CUDA", "MPS", "XPU")
COVERED = 300
"""Operators a backend must have before the file can be said to speak for it: XPU's own kernels lived in another
repository until torch 2.13, where it had 40; from 2.14 on it has 1,155."""
ONE_KERNEL_FOR_ALL = frozenset({"CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"})
MADE_OF_OTHERS = "CompositeImplicitAutograd"

ROUND_TRIPS = frozenset(
    {"embedding_renorm_", "linalg_svd", "linalg_svd.U", "_linalg_svd", "col2im", "upsample_nearest3d.vec"}
)
"""Operators that MPS computes on the CPU without a word: hand-written registrations in ATen/mps/MPSFallback.mm, the
only ones outside the file. ``_linalg_svd`` is what a CPU dispatches for ``linalg_svd``. A kernel in the file goes
first."""


class Support(Enum):
    """Can the backend run the operator?"""

    KERNEL = "kernel"
    """It has a kernel of its own."""
    GENERIC = "generic"
    """One implementation serves all backends."""
    ROUND_TRIP = "round trip"
    """Silently computed on the CPU and copied back."""
    CPU_CHOICE = "cpu choice"
    """No accelerator has it: the CPU's own path; another device takes another one."""
    MISSING = "missing"
    """Another accelerator has it, this one has not."""
    UNKNOWN = "unknown"
    """The source does not know the operator."""


@dataclass(frozen=True)
class Operator:
    """One overload, such as ``linalg_qr`` or ``linalg_qr.out``.

    Attributes:
        name: overload name without ``aten::`` and without ``.default``.
        keys: dispatch keys with a kernel.
        delegate: the structured overload that does the work, if another one does.
    """

    name: str
    keys: frozenset[str] = frozenset()
    delegate: str = ""


class OperatorTable:
    """Support by operator and backend (``CUDA``, ``MPS``, ``XPU``, ``CPU``, ``PrivateUse1``).

    Args:
        operators: overloads by name.
        source: where they are from, such as ``torch 2.13.0``.
    """

    def __init__(self, operators: Mapping[str, Operator], source: str) -> None:
        self.operators = dict(operators)
        self.source = source

    def covers(self, backend: str) -> bool:
        """Does the table say anything useful about this backend?"""
        return sum(backend in o.keys for o in self.operators.values()) > COVERED

    def support(self, name: str, backend: str) -> Support:
        """Can ``backend`` run ``aten::name``?"""
        operator = self.operators.get(plain(name))
        if operator is None:
            return Support.UNKNOWN
        keys = self._keys(operator)
        if backend in keys:
            return Support.KERNEL
        if backend == "MPS" and operator.name in ROUND_TRIPS:
            return Support.ROUND_TRIP
        if keys & ONE_KERNEL_FOR_ALL and self.support(f"{operator.name}.out", backend) is Support.MISSING:
            return Support.MISSING  # all that the common kernel does is to call this one
        if MADE_OF_OTHERS in operator.keys or keys & ONE_KERNEL_FOR_ALL:
            return Support.GENERIC
        return Support.MISSING if any(a in keys for a in ACCELERATORS) else Support.CPU_CHOICE

    def with_backend(self, backend: str, names: Iterable[str], source: str) -> "OperatorTable":
        """The same table with a complete list of one backend's kernels in place of what it knew of that backend."""
        kernels = {plain(n) for n in names}
        operators = {
            name: replace(o, keys=o.keys - {backend} | ({backend} if name in kernels else set()))
            for name, o in self.operators.items()
        }
        return OperatorTable(operators, source)

    def _keys(self, operator: Operator) -> frozenset[str]:
        delegate = self.operators.get(operator.delegate)
        return operator.keys | delegate.keys if delegate else operator.keys


def plain(name: str) -> str:
    """``aten::foo.default``, ``aten.foo.default`` and ``foo`` are one name: ``foo``."""
    return name.removeprefix("aten::").removeprefix("aten.").removesuffix(".default")


def parse(text: str) -> dict[str, Operator]:
    """Operators of a ``native_functions.yaml``.

    Raises:
        ValueError: when there is not one operator in it.
    """
    operators: dict[str, Operator] = {}
    generated: list[str] = []
    for entry in re.split(r"^- func:", text, flags=re.MULTILINE)[1:]:
        operator, made = _operator(entry)
        operators[operator.name] = operator
        generated += made
    if not operators:
        raise ValueError("no operator declarations in it")
    for name in generated:
        operators.setdefault(name, Operator(name, frozenset({"CompositeExplicitAutograd"})))
    return operators


def _operator(entry: str) -> tuple[Operator, list[str]]:
    signature, *lines = entry.splitlines()
    keys: set[str] = set()
    fields: dict[str, str] = {}
    section = ""
    for line in lines:
        field = re.match(r"(  |    )([^\s#][^:#]*):\s*([^#]*)", line)
        if field and field[1] == "  ":
            section = field[2]
            fields[section] = field[3].strip()
        elif field and section == "dispatch":
            keys.update(re.split(r"[,\s]+", field[2].strip()))
    delegate = fields.get("structured_delegate", "")
    if "dispatch" not in fields and not delegate:
        keys.add(MADE_OF_OTHERS)
    if "ufunc_inner_loop" in fields:
        keys |= {"CPU", "CUDA"}
    name = signature.split("(", 1)[0].strip()
    made = [n for n in re.split(r"[,\s]+", fields.get("autogen", "")) if n]
    return Operator(name, frozenset(keys), delegate), made


def installed_path() -> Path:
    """Where the installed torch keeps the file; found without importing torchgen."""
    import torch

    return Path(torch.__file__).parent.parent / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"


@functools.cache
def read(path: Path, source: str) -> OperatorTable:
    """The table of a file.

    Raises:
        OSError: when it cannot be read.
        ValueError: when it is no such file.
    """
    try:
        return OperatorTable(parse(path.read_text(encoding="utf-8")), source)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def installed() -> OperatorTable:
    """The table of the installed torch, read once per process.

    Raises:
        OSError: when this torch was installed without the file.
        ValueError: when it is not readable as such a file.
    """
    import torch

    return read(installed_path(), f"torch {torch.__version__.partition('+')[0]}")
