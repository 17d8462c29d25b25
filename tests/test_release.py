"""What is claimed for releases: versions that were run, and a workflow that publishes the tagged version only."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from sanity_watchdog import __version__

from .project import ROOT, project

WORKFLOWS = ROOT / ".github" / "workflows"
RELEASE = yaml.safe_load((WORKFLOWS / "release.yml").read_text())
MATRIX = yaml.safe_load((WORKFLOWS / "tests.yml").read_text())["jobs"]["tests"]["strategy"]["matrix"]["include"]


def lowest() -> dict[str, Version]:
    lines = (ROOT / ".github" / "lowest.txt").read_text().splitlines()
    found = (re.fullmatch(r"([\w-]+)==(\S+)", line) for line in lines)
    return {m[1]: Version(m[2]) for m in found if m}


def steps(job: str) -> list[dict[str, Any]]:
    return list(RELEASE["jobs"][job]["steps"])


@pytest.mark.parametrize("requirement", [*project()["dependencies"], *project()["optional-dependencies"]["examples"]])
def test_each_lower_bound_is_a_version_that_the_tests_run_with(requirement: str) -> None:
    claimed = Requirement(requirement)
    (bound,) = claimed.specifier
    assert bound.operator == ">="
    ran = lowest()[claimed.name]
    assert claimed.specifier.contains(ran)
    width = len(Version(bound.version).release)
    assert ran.release[:width] == Version(bound.version).release
    assert not any(ran.release[width:])


def test_the_oldest_python_runs_with_the_oldest_versions() -> None:
    oldest = project()["requires-python"].removeprefix(">=")
    assert [row["python"] for row in MATRIX if row.get("constraints") == ".github/lowest.txt"] == [oldest]


def test_python_versions_claimed_are_those_that_run() -> None:
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in project()["classifiers"])
    assert [m[1] for m in found if m] == [row["python"] for row in MATRIX]


def test_the_version_has_one_place_and_a_section_in_the_changelog() -> None:
    assert "version" in project()["dynamic"]
    assert "version" not in project()
    titles = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert __version__ in titles
    assert titles == sorted(titles, key=lambda t: Version(t) if t[0].isdigit() else Version("999"), reverse=True)


def test_only_a_tag_publishes_after_tests_and_checks() -> None:
    assert RELEASE[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key "on" as a truth value
    assert set(RELEASE["jobs"]["publish"]["needs"]) == set(RELEASE["jobs"]) - {"publish"}
    assert RELEASE["jobs"]["tests"]["uses"] == "./.github/workflows/tests.yml"
    assert any(step.get("run") == "python -m twine check --strict dist/*" for step in steps("build"))


def test_publishing_is_trusted_and_knows_no_secret() -> None:
    publish = RELEASE["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]
    assert steps("publish")[-1]["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert "with" not in steps("publish")[-1]
    assert not any("run" in step for step in steps("publish"))
    assert [name for name, job in RELEASE["jobs"].items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert "secrets" not in (WORKFLOWS / "release.yml").read_text()


@pytest.mark.parametrize(("tag", "passes"), [(f"v{__version__}", True), ("v99.0.0", False), ("v1; true", False)])
def test_the_tag_must_name_the_version_that_was_built(tmp_path: Path, tag: str, passes: bool) -> None:
    (check,) = (step for step in steps("build") if step.get("name", "").startswith("The tag"))
    (tmp_path / "dist").mkdir()
    for end in (".tar.gz", "-py3-none-any.whl"):
        (tmp_path / "dist" / f"sanity_watchdog-{__version__}{end}").touch()
    (tmp_path / "CHANGELOG.md").write_text((ROOT / "CHANGELOG.md").read_text())
    assert check["env"] == {"TAG": "${{ github.ref_name }}"}
    assert "${{" not in check["run"]
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", check["run"]], cwd=tmp_path, env={**os.environ, "TAG": tag})
    assert (done.returncode == 0) == passes
