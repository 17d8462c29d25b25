"""The scripts of ``examples/`` as their sources describe them, read without importing them."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
HEAD = """# Gallery

Each script trains something small on data that come with scikit-learn or Python, with the watchdog attached. `--fault
NAME` breaks the run: it ends with the code below ranked first. `--fixed NAME` is the same run, same data, same seed,
with the alert's own fix applied: it ends quietly. Without either the run is healthy.

```console
pip install -e ".[examples]"
python examples/loss_inputs.py --fault softmax-twice
python examples/loss_inputs.py --fixed softmax-twice
```

| script | fault | code | what is wrong |
| --- | --- | --- | --- |
"""
REST = """
More ways to attach it:

| file | shows |
| --- | --- |
| [cli/train.py](cli/train.py), [cli/config.yaml](cli/config.yaml) | the watchdog from a LightningCLI configuration |
| [test_smoke.py](test_smoke.py) | a smoke test with `assert_trains`, and `pytest --sanity-watchdog` |
| [watchdog.ipynb](watchdog.ipynb) | a notebook: alerts are values |
"""
PAGES = "../watchdog/sanity_watchdog/checks/README.md"


@dataclass(frozen=True)
class Script:
    """A script of the gallery: its path, and its faults as name to code and text."""

    path: Path
    faults: Mapping[str, tuple[str, str]]


def scripts() -> Iterator[Script]:
    """Every script with a ``FAULTS``, by name; the introductory one first."""
    for path in sorted(EXAMPLES.glob("*.py"), key=lambda p: (p.stem != "train_digits", p.stem)):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FAULTS":
                yield Script(path, ast.literal_eval(node.value))


def overview(names: Mapping[str, str]) -> str:
    """The gallery's README; ``names`` maps codes to the names of their checks."""
    rows = [
        f"| [{script.path.name}]({script.path.name}) | `{fault}` | "
        f"[{code}]({PAGES}#{code.lower()}-{names[code]}) | {text} |\n"
        for script in scripts()
        for fault, (code, text) in script.faults.items()
    ]
    return HEAD + "".join(rows) + REST
