"""The command ``sanity-watchdog``: reports of runs, the catalogue of checks, their pages. Needs no torch for these."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from . import __version__
from .alerts import Severity

PASS, FAIL, INCOMPLETE = 0, 1, 2
FORMATS = ("text", "markdown", "json", "junit", "github")
PROGRESS_FROM = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the result is the process's exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in ("portability", "precision"):
        return int(import_module(".portability.commands", __package__).main(given))
    options = _parser().parse_args(given)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INCOMPLETE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "sanity-watchdog", description="What the watchdog saw in training runs, and what its checks mean."
    )
    parser.add_argument("--version", action="version", version=f"sanity-watchdog {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    report = commands.add_parser(
        "report",
        help="report runs from their watchdog.jsonl",
        description="Report runs from watchdog.jsonl. Exit status: 0 all pass, 1 a run has an alert at or above "
        "--fail-on, else 2 where a run raised, did not end or was not judged, or a record cannot be read.",
    )
    report.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a record, or a folder to search for records"
    )
    report.add_argument("--format", choices=FORMATS, default="text", help="default: %(default)s")
    report.add_argument(
        "--fail-on",
        choices=[*(s.name.lower() for s in reversed(Severity)), "never"],
        default="error",
        help="severity from which a run has failed; default: %(default)s",
    )
    report.add_argument("--output", type=Path, metavar="FILE", help="write there instead of to standard output")
    report.set_defaults(run=_report)

    checks = commands.add_parser("checks", help="list every check")
    checks.set_defaults(run=_checks)

    explain = commands.add_parser("explain", help="explain a check, or search the pages for a symptom")
    explain.add_argument("words", nargs="+", metavar="CODE|WORD", help="a code, a name, or words such as: loss is nan")
    explain.set_defaults(run=_explain)

    commands.add_parser("portability", help="which operators of a model a device lacks", add_help=False)
    commands.add_parser("precision", help="which number formats a device has natively", add_help=False)
    return parser


def _report(options: argparse.Namespace) -> int:
    from .reports.load import load

    loaded = load(options.paths, _progress())
    threshold = None if options.fail_on == "never" else Severity.parse(options.fail_on)
    if options.format == "junit":
        from .reports import junit

        text = junit.report(loaded, threshold)
    elif options.format == "json":
        from .reports import data

        text = data.report(loaded)
    elif options.format == "github":
        from .reports import github

        text = github.report(loaded)
        try:
            github.write_summary(loaded)
        except OSError as error:
            print(f"sanity-watchdog: no job summary: {error}", file=sys.stderr)
    elif options.format == "markdown":
        from .reports import markdown

        text = markdown.report(loaded)
    else:
        from .reports import text as plain

        text = plain.report(loaded)
    for problem in loaded.problems if options.format != "text" or options.output else ():
        print(f"sanity-watchdog: {problem}", file=sys.stderr)
    if options.output is not None:
        try:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"sanity-watchdog: cannot write the report: {error}", file=sys.stderr)
            return INCOMPLETE
    else:
        _show(text, markup=options.format == "text")
    return loaded.exit_code(threshold)


def _checks(_: argparse.Namespace) -> int:
    from .reports import pages

    _show(pages.catalogue(), markup=True)
    return PASS


def _explain(options: argparse.Namespace) -> int:
    from .reports import pages

    unknown = [word for word in options.words if pages.is_code(word) and not pages.named([word])]
    words = [word for word in options.words if word not in unknown]
    exact = pages.named(words)
    found = exact or (pages.search(words) if words else [])
    if exact and len(exact) <= len(words):
        _show("\n".join(map(pages.page, exact)), page=True)
    elif found:
        listed = "\n".join(f"{c.code}  {c.name}: {c.summary}" for c in (exact or found[: pages.SHOWN]))
        _show(f"{listed}\n\nsanity-watchdog explain {found[0].code} shows the page\n", markup=True)
    if found and not unknown:
        return PASS
    near = pages.nearest(unknown or words)
    hint = f"; did you mean {', '.join(near)}?" if near else "; `sanity-watchdog checks` lists all"
    what = f"there is no check {', '.join(unknown)}" if unknown else f"no check speaks of {' '.join(words)!r}"
    sys.stdout.flush()
    print(f"sanity-watchdog: {what}{hint}", file=sys.stderr)
    return INCOMPLETE


def _progress() -> Callable[[int, int], None]:
    """A line on a terminal that counts records while many are read."""

    def line(done: int, total: int) -> None:
        if total >= PROGRESS_FROM and sys.stderr.isatty():
            print(
                f"\rreading {done:,} of {total:,} records",
                end="" if done < total else "\n",
                file=sys.stderr,
                flush=True,
            )

    return line


def _show(text: str, *, markup: bool = False, page: bool = False) -> None:
    """Print; in colour on a terminal that wants it, where rich is installed."""
    if (markup or page) and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        try:
            from rich.console import Console
            from rich.markdown import Markdown
            from rich.text import Text
        except ImportError:
            pass
        else:
            painted = Text(text.rstrip("\n"))
            styles = {r"\b(ERROR|error|fail)\b": "bold red", r"\b(WARNING|warning|warn|incomplete)\b": "yellow"}
            for pattern, style in {**styles, r"\bpass\b": "green", r"\bWD\d{3}\b": "bold cyan"}.items():
                painted.highlight_regex(pattern, style)
            Console(highlight=False, soft_wrap=not page).print(Markdown(text) if page else painted)
            return
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
