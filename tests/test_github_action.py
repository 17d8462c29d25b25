"""The composite action, run as GitHub's runner would run it; the workflows that use it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

from .test_pytest_plugin import installed

GITHUB = Path(__file__).parent.parent / ".github"
ACTION = yaml.safe_load((GITHUB / "actions" / "smoke-train" / "action.yml").read_text())
TRAIN = """
import sys
import lightning as L
import torch
from tests.runs import Classifier, blobs, loader


class Zeroed(Classifier):
    def on_train_batch_end(self, *_):
        if self.global_step == 4:
            with torch.no_grad():
                self.net[0].weight.zero_()
            self.trainer.optimizers[0].param_groups[0]["lr"] = 0.0


torch.manual_seed(1)
module = Zeroed() if "faulty" in sys.argv else Classifier()
quick = {"fast_dev_run": True} if "quick" in sys.argv else {"max_steps": 20}
L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, **quick).fit(
    module, loader(*blobs())
)
print("trained to the end")
"""


def filled(text: str, inputs: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: inputs[match[1]], text)


def act(folder: Path, **given: str) -> tuple[list[int], str, dict[str, str]]:
    """Exit statuses of the action's steps, what they print, and the outputs."""
    inputs = {name: declared.get("default", "") for name, declared in ACTION["inputs"].items()} | given
    (folder / "bin").mkdir(parents=True)
    command = folder / "bin" / "sanity-watchdog"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m sanity_watchdog "$@"\n')
    command.chmod(0o755)
    (folder / "train.py").write_text(TRAIN)
    files = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    base = {**installed(folder), **files, "PATH": path, "GITHUB_WORKSPACE": str(folder), "CI": "true"}
    statuses, said = [], ""
    for step in ACTION["runs"]["steps"]:
        environment = base | {name: filled(value, inputs) for name, value in step["env"].items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        statuses.append(done.returncode)
        said += done.stdout + done.stderr
    outputs = dict(line.split("=", 1) for line in (folder / "output").read_text().splitlines())
    return statuses, said, outputs


def test_a_healthy_run_passes_and_leaves_its_record_even_with_fast_dev_run(tmp_path: Path) -> None:
    statuses, said, outputs = act(tmp_path, command="python train.py quick")
    assert statuses == [0, 0], said
    assert outputs["verdict"] == "pass"
    assert (tmp_path / "watchdog-record" / "watchdog.jsonl").exists()
    assert "Passed: 1" in (tmp_path / "summary.md").read_text()
    assert JUnitXml.fromfile(outputs["junit"]).failures == 0


def test_a_faulty_run_is_stopped_annotated_and_failed(tmp_path: Path) -> None:
    statuses, said, outputs = act(tmp_path, command="python train.py faulty")
    assert all(statuses), said
    assert "trained to the end" not in said
    assert "SanityCheckFailed" in said
    assert re.search(r"^::error title=WD301 zeroed-parameter::.*net\.0\.weight", said, re.M)
    assert "FAIL" in (tmp_path / "summary.md").read_text()
    assert outputs["verdict"] == "fail"
    assert JUnitXml.fromfile(outputs["junit"]).failures >= 1


def test_a_command_that_never_trains_does_not_pass(tmp_path: Path) -> None:
    statuses, said, outputs = act(tmp_path, command="true")
    assert statuses == [0, 2], said
    assert outputs["verdict"] == "incomplete"


def test_no_input_is_pasted_into_a_script() -> None:
    assert [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step["run"]] == []


@pytest.mark.parametrize("path", sorted((GITHUB / "workflows").glob("*.yml")), ids=lambda p: p.name)
def test_workflows_are_sound(path: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        if "uses" in job:
            assert (GITHUB.parent / job["uses"]).exists()
            continue
        assert job["timeout-minutes"]
        for step in job["steps"]:
            used = step.get("uses", "@")
            assert "@" in used or (GITHUB.parent / used / "action.yml").exists()
            if used == "./.github/actions/smoke-train":
                assert set(step["with"]) <= set(ACTION["inputs"])
                assert {"fail-on", "record"} <= set(step["with"])
