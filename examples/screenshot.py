"""Take the README's picture: train the digits example in sickness and in health, and look at TensorBoard.

    python examples/screenshot.py                 writes .github/images/tensorboard.png

For developers: needs Playwright and a Chromium of the system.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import train_digits

PICTURE = Path(__file__).parents[1] / ".github" / "images" / "tensorboard.png"
RUNS = {"healthy": [], "hot-head": ["--fault", "hot-head"], "fp16-underflow": ["--fault", "fp16-underflow"]}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
WAIT_S = 60


def serve(logs: Path) -> tuple[subprocess.Popen[str], str]:
    """TensorBoard over ``logs`` on a free port, and its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logs), "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "http://" in line:
            return process, "http://" + line.partition("http://")[2].split()[0].rstrip("/")
    raise SystemExit("TensorBoard did not start")


def wait_for_runs(url: str, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{url}/data/plugin/watchdog/runs", timeout=30) as answer:
            if answer.read().count(b'"over":true') == count:
                return
        time.sleep(0.5)
    raise SystemExit("TensorBoard does not show the runs")


def photograph(url: str, run: str, view: str, picture: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(f"{url}/#watchdog")
        tab = page.frame_locator("iframe[src*=plugin_entry]")
        tab.get_by_role("button", name=run).click()
        tab.locator("header h1", has_text=run).wait_for()
        tab.locator(f"#tab-{view}").click()
        if view == "alerts":
            tab.locator(".alert h3 button").first.click()
            tab.locator(".details h4", has_text="What it sees").wait_for()
        page.mouse.move(0, 0)
        page.wait_for_timeout(500)
        picture.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=picture)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PICTURE)
    parser.add_argument("--run", choices=RUNS, default="hot-head")
    parser.add_argument("--view", choices=("alerts", "layers", "checks", "compare"), default="alerts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in RUNS.items():
            train_digits.main([*arguments, "--logs", str(Path(folder, name))])
        process, url = serve(Path(folder))
        try:
            wait_for_runs(url, len(RUNS))
            photograph(url, args.run, args.view, args.output)
        finally:
            process.terminate()
            process.wait(20)
    print(f"{args.output}: {args.output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
