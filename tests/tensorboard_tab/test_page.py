"""The page in a real headless Chromium."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sanity_watchdog.checks import CHECKS
from sanity_watchdog.evidence.readings import Scalars
from sanity_watchdog.sinks import TensorBoardSink
from sanity_watchdog.summary import Batch, RunInfo, Summary

from .boards import Board
from .logs import HOT, ZEROED

REQUIRED = os.environ.get("SANITY_WATCHDOG_CHROMIUM") == "required"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PAGE = "/data/plugin_entry.html?name=watchdog"
SIZES = {1200: {"width": 1200, "height": 800}, 700: {"width": 700, "height": 800}}
TABS = ("alerts", "layers", "checks", "compare")

CONTRAST = """() => {
  const numbers = (c) => (c.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const light = (c) => {
    const [r, g, b] = c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, e = node.parentElement;
    if (!node.data.trim() || !e.getClientRects().length || ["SCRIPT", "STYLE"].includes(e.tagName)) continue;
    const style = getComputedStyle(e);
    const a = light(numbers(e instanceof SVGElement ? style.fill : style.color).slice(0, 3)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, node.data.trim().slice(0, 60)]);
  }
  return found;
}"""

CLIPPED = """() => {
  const found = [];
  const say = (what, e) => found.push(`${what}: ${e.outerHTML.slice(0, 160)}`);
  for (const e of document.body.querySelectorAll("*")) {
    if (!e.getClientRects().length || e.closest(".unseen") || !(e instanceof HTMLElement)) continue;
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const box = e.getBoundingClientRect(), inline = getComputedStyle(e).display === "inline";
    if (e.scrollWidth > e.clientWidth + 1 && !inline) say("clipped", e);
    if (!e.closest(".sides") && (box.right > innerWidth + 0.5 || box.left < 0)) say("outside", e);
  }
  for (const text of document.querySelectorAll("svg.gauge text")) {
    const box = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();
    if (box.left < frame.left || box.right > frame.right || box.top < frame.top - 2 || box.bottom > frame.bottom + 1)
      say("clipped", text);
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  return found;
}"""

COLOURS = """() => {
  const canvas = document.querySelector("canvas"), { width, height } = canvas;
  const pixels = canvas.getContext("2d").getImageData(width * 0.4, 20, width * 0.59, height - 20).data;
  return new Set(Array.from({ length: pixels.length / 4 }, (_, i) => pixels.slice(4 * i, 4 * i + 3).join())).size;
}"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    path = shutil.which("chromium") or "/usr/bin/chromium"
    try:
        from playwright.sync_api import sync_playwright

        if not Path(path).exists():
            raise FileNotFoundError(f"no Chromium at {path}")
    except (ImportError, FileNotFoundError) as error:
        (pytest.fail if REQUIRED else pytest.skip)(f"no browser: {error}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield browser
        browser.close()


Open = Callable[..., Any]


@pytest.fixture
def visit(chromium: Any, boards: dict[str, Board]) -> Iterator[Open]:
    """Opens a page; at the end no page may have said an error, asked another host, or opened a dialog."""
    said: list[str] = []
    foreign: list[str] = []
    pages: list[Any] = []

    def visit(
        path: str = PAGE, board: str = "fast", width: int = 1200, dark: bool = False, expected: str = "nothing"
    ) -> Any:
        page = chromium.new_page(viewport=SIZES[width], color_scheme="dark" if dark else "light")
        page.set_default_timeout(60_000)
        own = boards[board].url

        def console(message: Any) -> None:
            url = message.location["url"]
            theirs = "Failed to load resource" in message.text and "/plugin/watchdog/" not in url
            if message.type == "error" and not theirs and expected not in message.text:
                said.append(f"{message.text} {url}")

        page.on("console", console)
        page.on("pageerror", lambda e: said.append(str(e)))
        page.on("dialog", lambda d: (said.append(f"dialog {d.message}"), d.dismiss()))
        host = own.removesuffix("/some/where")
        page.on("request", lambda r: None if r.url.startswith((host, "data:", "blob:")) else foreign.append(r.url))
        page.goto(own + path)
        pages.append(page)
        if path == PAGE:
            page.locator("header h1").wait_for()
        return page

    yield visit
    for page in pages:
        page.close()
    assert said == []
    assert foreign == []


def choose(page: Any, run: str) -> None:
    page.get_by_role("button", name=f"{run}/watchdog").first.click()
    page.locator("header h1", has_text=run).wait_for()


def open_tab(page: Any, name: str) -> None:
    page.locator(f"#tab-{name}").click()
    page.locator(f"#panel-{name}").wait_for()


def words(page: Any, selector: str) -> str:
    return re.sub(r"\s+", " ", page.locator(selector).first.inner_text()).strip()


def shown(page: Any) -> list[str]:
    return page.locator(".alert h3").all_inner_texts()


@pytest.mark.parametrize("board", ["fast", "slow"])
def test_the_tab_opens_on_the_worst_run(visit: Open, board: str) -> None:
    page = visit("/#watchdog", board)
    frame = page.frame_locator("iframe[src*=plugin_entry]")
    frame.locator(".alert").first.wait_for()
    assert "bad/watchdog" in frame.locator("header h1").inner_text()
    assert frame.locator("header .badge").inner_text() == "FAIL"
    first = frame.locator(".alert").first.bounding_box()
    assert first is not None
    assert first["y"] + first["height"] <= 800
    page.get_by_label("Toggle dark mode").or_(page.locator("app-header-dark-mode-toggle button")).first.click()
    page.get_by_role("menuitem", name="Dark").click()
    frame.locator(":root.dark").wait_for()


def test_a_run_in_one_look(visit: Open) -> None:
    page = visit()
    runs = [re.sub(r"\s+", " ", t).strip() for t in page.locator("nav li").all_inner_texts()]
    names = [r.split("/")[0].split()[-1] for r in runs if "live" not in r]
    assert names == ["bad", "broken", "crowded", "warned", "going", "good", "resumed"]
    assert "1 error, 1 warning, 2 notes" in runs[0]
    header = words(page, "header")
    for text in ("FAIL", "the run cannot be right", "Ended at step 890 after 891 batches", "32-true on cpu"):
        assert text in header
    assert "26,122 parameters, all in the optimizer" in header
    gauge = page.locator("svg.gauge")
    assert gauge.get_attribute("aria-label") == "First loss 9.871, expected ln 10 = 2.303, tolerance 1.2"
    assert gauge.locator("text").all_text_contents() == ["ln 10 = 2.303", "9.871"]
    assert "7.57 above" in header


def test_an_alert_says_what_where_when_and_what_to_do(visit: Open) -> None:
    alert = words(visit(), ".alert >> nth=1")
    for text in ("WARNING", "WD301 zeroed-parameter", "all 4608 values are exactly zero", "net.2.weight"):
        assert text in alert
    assert "steps 8–890" in alert
    assert "seen 17×" in alert
    assert "Fix: look for a mask" in alert


def test_details_by_keyboard(visit: Open) -> None:
    page = visit()
    page.locator(".alert h3 button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    details = page.locator(".details")
    details.locator("h4", has_text="What it sees").wait_for()
    text = re.sub(r"\s+", " ", details.inner_text())
    for expected in ("zeros 4,608", "numel 4,608", "dtype float32", "first step 8", "last step 890", "count 17"):
        assert expected in text
    assert 'SanityWatchdog(ignore=["WD301:net.2.weight"])' in text
    page_of = next(c.page for c in CHECKS if c.code == "WD301")
    for paragraph in re.findall(r"^\*\*(.+?)\.\*\*", page_of, re.M):
        assert paragraph in text
    assert "**" not in text
    assert "`" not in text
    assert "prune.custom_from_mask" in details.locator("pre").inner_text()
    assert page.evaluate("document.activeElement.textContent") == "WD301 zeroed-parameter"
    page.keyboard.press("Enter")
    assert details.count() == 0
    page.locator(".alert .head").first.click()
    assert page.locator(".details").count() == 1


def test_the_silencing_line_can_be_copied(visit: Open) -> None:
    page = visit()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".alert h3 button").nth(1).click()
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == 'SanityWatchdog(ignore=["WD301:net.2.weight"])'


def test_the_tab_key_goes_from_runs_to_filters_to_alerts(visit: Open) -> None:
    page = visit()
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        if stops[-1].startswith("alert-"):
            break
    runs = [s for s in stops if s.startswith("run-")]
    assert len(runs) >= 7
    rest = ["tab-alerts", "severity-error", "severity-warning", "severity-info", "code", "words", "order"]
    assert stops == [*runs, *rest, stops[-1]]
    assert stops[-1] == page.locator(".alert h3 button").first.get_attribute("id")
    page.locator("#tab-alerts").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-layers"
    assert page.locator("#panel-layers").is_visible()


def test_filters(visit: Open) -> None:
    page = visit()
    every = ["WD101 initial-loss-off", "WD301 zeroed-parameter", "WD302 stuck-at-zero", "WD123 unscaled-input"]
    assert shown(page) == every
    page.locator("#severity-info").click()
    assert shown(page) == every[:2]
    assert page.locator("#severity-info").get_attribute("aria-pressed") == "false"
    assert "2 of 4" in page.locator("#panel-alerts .bar").inner_text()
    page.locator("#severity-info").click()
    page.locator("#code").select_option("WD301")
    assert shown(page) == every[1:2]
    page.locator("#code").select_option("")
    page.locator("#words").fill("NET.2.")
    assert shown(page) == every[1:2]
    page.locator("#words").fill("nothing like it")
    assert "No alert matches" in page.locator("#panel-alerts").inner_text()
    page.locator("#words").fill("")
    page.locator("#order").select_option("most often first")
    assert shown(page)[0] == every[1]


def test_quiet_broken_running_and_resumed_runs(visit: Open) -> None:
    page = visit()
    choose(page, "good")
    assert "9 checks judged this run and found nothing" in page.locator("#panel-alerts").inner_text()
    assert "as expected" in words(page, "header")
    choose(page, "broken")
    assert "INCOMPLETE" in words(page, "header")
    open_tab(page, "checks")
    assert "check WD303" in page.locator("#panel-checks").inner_text()
    choose(page, "going")
    assert "No end seen yet" in words(page, "header")
    assert "not a number" in words(page, "header")
    choose(page, "resumed")
    assert "the last of 2 fits; 1 alert in earlier ones" in words(page, "header")
    open_tab(page, "alerts")
    assert "fit 1 of 2" in words(page, ".alert")


def test_what_was_and_was_not_looked_at(visit: Open) -> None:
    page = visit()
    open_tab(page, "checks")
    text = words(page, "#panel-checks")
    assert "13 checks: 9 judged, 4 skipped, 1 silenced on purpose." in text
    assert "WD502:*.backbone (frozen on purpose)" in text
    assert "no float16 WD201, WD202" in text
    assert "WD311 not-moving: 24 parameters do not move" in text
    assert "WD999" in text


def test_runs_side_by_side(visit: Open) -> None:
    page = visit()
    open_tab(page, "compare")
    wanted = ("bad/watchdog", "good/watchdog")
    for button in page.locator("#panel-compare .toggle").all():
        if (button.get_attribute("aria-pressed") == "true") != (button.inner_text() in wanted):
            button.click()
    rows = [re.sub(r"\s+", " ", t) for t in page.locator("#panel-compare tr").all_inner_texts()]
    assert rows[0] == "Run bad/watchdog good/watchdog"
    assert rows[1] == "Verdict FAIL PASS"
    assert "First loss 9.871 2.312" in rows
    assert "WD101 initial-loss-off error from step 0, 1 place, seen 1× no" in rows
    page.locator("#different").check()
    fewer = page.locator("#panel-compare tr").all_inner_texts()
    assert not any(t.startswith("torch") for t in fewer)
    assert any(t.startswith("First loss") for t in fewer)


def test_the_heat_map(visit: Open) -> None:
    page = visit()
    open_tab(page, "layers")
    page.locator("#panel-layers canvas").wait_for()
    assert page.locator("#panel-layers [aria-pressed=true]").inner_text() == "Underflow"
    colours = page.evaluate(COLOURS)
    assert colours > 20
    page.locator("#panel-layers summary").click()
    rows = page.locator("#panel-layers tbody tr").all_inner_texts()
    shares = [float(r.split("\t")[1].removesuffix(" %")) for r in rows]
    assert len(rows) == 10
    assert shares == sorted(shares, reverse=True)
    page.locator("canvas").focus()
    page.keyboard.press("ArrowDown")
    reading = page.locator(".reading")
    assert reading.inner_text().startswith(rows[0].split("\t")[0])
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    assert "step 290:" in reading.inner_text()
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 20 + 16 * 3.5)
    assert reading.inner_text().startswith(rows[3].split("\t")[0])
    page.locator("#layer-order").select_option("model order")
    page.locator("canvas").focus()
    page.keyboard.press("ArrowDown")
    assert reading.inner_text().startswith("model.blocks.0.attention.query.weight")
    page.locator("#layer-words").fill("blocks.3.mlp.down")
    page.locator("canvas").focus()
    page.keyboard.press("End")
    assert reading.inner_text().startswith("model.blocks.3.mlp.down.weight")
    page.get_by_role("button", name="Largest gradient").click()
    assert "2^" in page.locator("#panel-layers").inner_text()


def test_from_an_alert_to_its_layer(visit: Open) -> None:
    page = visit()
    page.locator(".alert h3 button").nth(1).click()
    page.get_by_role("button", name="net.2.weight").click()
    page.get_by_text("No layer has this in its name.").wait_for()
    assert page.locator("#layer-words").input_value() == "net.2.weight"


def test_ten_thousand_alerts_and_a_thousand_layers(visit: Open) -> None:
    page = visit()
    choose(page, "crowded")
    assert "Alerts (10,000)" in page.locator("#tab-alerts").inner_text()
    assert len(shown(page)) == 100
    page.get_by_role("button", name=re.compile("Show 100 more of 9,900")).click()
    assert len(shown(page)) == 200
    page.locator("#words").fill("model.py:9999")
    assert len(shown(page)) == 1
    open_tab(page, "layers")
    page.get_by_text("1,000 layers, 20 steps").wait_for()
    page.locator("canvas").focus()
    for key in ("ArrowDown", "End", "ArrowRight"):
        page.keyboard.press(key)
    assert page.locator(".heat").evaluate("e => e.scrollTop") > 10_000


def test_hostile_names_are_text(visit: Open) -> None:
    page = visit()
    page.locator(".alert h3 button").nth(2).click()
    page.locator(".details h4", has_text="What it sees").wait_for()
    assert page.locator(".alert img, .alert script, .alert strong:not(.page *)").count() == 0
    assert "<img src=x onerror=alert(1)>|<script>alert(2)</script> **x**" in page.locator(".alert").nth(2).inner_text()
    assert "y" * 1000 not in page.locator(".alert").nth(2).inner_text()


def test_news_appears_by_itself(visit: Open, boards: dict[str, Board]) -> None:
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(boards["fast"].logs / "live")))
    first = Scalars(values={"first_loss": 2.3, "ln_k": 2.303})
    sink.write(Batch(0, readings=(first,), vitals={"runtime": "32-true on cpu"}))
    page = visit()
    choose(page, "live")
    assert "RUNNING" in words(page, "header")
    sink.write(Batch(8, (replace(ZEROED, last_step=8),), verdict="warn", counts={"warning": 1}))
    page.locator("header .badge", has_text="warn").wait_for()
    assert shown(page) == ["WD301 zeroed-parameter"]
    page.locator(".alert h3 button").click()
    page.locator("#words").fill("a")
    sink.close(Summary("fail", (HOT, ZEROED), judged=("WD101",), step=900, batches=900))
    boards["fast"].wait_for(lambda b: any(r["run"].startswith("live") and r["over"] for r in b.tab("runs")["runs"]))
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.locator("header .badge", has_text="fail").wait_for()
    assert shown(page) == ["WD101 initial-loss-off", "WD301 zeroed-parameter"]
    assert page.locator(".details").count() == 1
    assert page.evaluate("document.activeElement.id") == "words"


def test_a_server_that_is_gone_is_said(visit: Open) -> None:
    page = visit(expected="status of 500")
    page.route("**/watchdog/runs*", lambda route: route.fulfill(status=500, json={"error": "no"}))
    with page.expect_response("**/watchdog/runs*"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_text("No answer from TensorBoard (no)").wait_for()
    page.unroute("**/watchdog/runs*")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_text("No answer from TensorBoard").wait_for(state="hidden")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", SIZES)
def test_everything_can_be_read(visit: Open, width: int, dark: bool) -> None:
    page = visit(width=width, dark=dark)
    assert page.evaluate("document.documentElement.classList.contains('dark')") is dark
    for run in ("bad", "broken", "resumed", "going"):
        choose(page, run)
        for name in TABS:
            open_tab(page, name)
            if name == "alerts" and run == "bad":
                for button in page.locator(".alert h3 button").all():
                    button.click()
                page.locator(".details h4", has_text="What it sees").nth(3).wait_for()
            assert page.evaluate(CLIPPED) == [], (run, name)
            dim = [(round(ratio, 2), text) for ratio, text in page.evaluate(CONTRAST) if not ratio >= 4.5]
            assert dim == [], (run, name)


def test_the_rulers_can_tell(visit: Open) -> None:
    page = visit()
    page.add_style_tag(
        content=".muted { color: #a0a0a0; } .card p { width: 20px; overflow: hidden; white-space: nowrap; }"
    )
    assert any(ratio < 4.5 for ratio, _ in page.evaluate(CONTRAST))
    assert any("clipped" in one for one in page.evaluate(CLIPPED))
    page.add_style_tag(content="main { width: 3000px; }")
    assert "the page scrolls sideways" in page.evaluate(CLIPPED)
