"""What MPS lacks in other versions of torch, as ranges; and how that table is made.

::

    python -m sanity_watchdog.portability.versions 2.6=a/native_functions.yaml 2.7=b/native_functions.yaml > mps.txt

writes the table from the files that the macOS wheels of these versions carry.
"""

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .native_functions import OperatorTable, Support, parse, plain
from .precision import release

TABLE = Path(__file__).with_name("mps.txt")
Version = tuple[int, int]
Range = tuple[Support, Version, Version]


class VersionTable:
    """MPS in one version of torch; says the same as the ``OperatorTable`` of that version.

    Args:
        version: such as ``2.14``.

    Raises:
        ValueError: for a version that the table does not reach; the message lists what it does.
    """

    def __init__(self, version: str) -> None:
        self._version = release(version)
        first, last = known()
        if not first <= self._version <= last:
            reach = f"{first[0]}.{first[1]} to {last[0]}.{last[1]}"
            raise ValueError(f"no table of operators for torch {version}; it reaches from {reach}")
        self.source = f"torch {self._version[0]}.{self._version[1]}, by version table"

    def support(self, name: str, backend: str) -> Support:
        """``MISSING`` or ``ROUND_TRIP`` where the table says so, else ``UNKNOWN``: nothing against it."""
        for support, first, last in _ranges().get(plain(name), ()):
            if first <= self._version <= last:
                return support
        return Support.UNKNOWN


def known() -> tuple[Version, Version]:
    """First and last version in the table."""
    first, last = TABLE.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# torch ").split(" to ")
    return release(first), release(last)


@functools.cache
def _ranges() -> Mapping[str, tuple[Range, ...]]:
    found: dict[str, tuple[Range, ...]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, kind, first, last = line.split()
        support = Support.MISSING if kind == "missing" else Support.ROUND_TRIP
        found[name] = (*found.get(name, ()), (support, release(first), release(last)))
    return found


def ranges(tables: Mapping[str, OperatorTable]) -> Iterable[str]:
    """Lines of the table from the operators of consecutive versions, oldest first.

    Raises:
        ValueError: when an operator came, went and came again: ranges cannot say that.
    """
    versions = list(tables)
    yield f"# torch {versions[0]} to {versions[-1]}"
    names = sorted({name for table in tables.values() for name in table.operators})
    for name in names:
        supports = [tables[v].support(name, "MPS") for v in versions]
        for kind in (Support.MISSING, Support.ROUND_TRIP):
            at = [i for i, support in enumerate(supports) if support is kind]
            if not at:
                continue
            if at != list(range(at[0], at[-1] + 1)):
                raise ValueError(f"{name} is not {kind.value} in one range of versions")
            yield f"{name} {kind.value.replace(' ', '-')} {versions[at[0]]} {versions[at[-1]]}"


def main(arguments: Sequence[str]) -> int:
    """Write the table to standard output."""
    tables = {}
    for argument in arguments:
        version, _, path = argument.partition("=")
        tables[version] = OperatorTable(parse(Path(path).read_text(encoding="utf-8")), version)
    sys.stdout.writelines(f"{line}\n" for line in ranges(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
