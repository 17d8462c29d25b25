"""Finds a check's page by its code, its name, or the words of a symptom."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from ..checks import CHECKS, Check
from .symptoms import SYMPTOMS

SHOWN = 5
SYMPTOM_WEIGHT = 4.0
"""What a phrase of the index weighs that says just what was asked; the best page weighs 1."""
NEXT_CODE = 0.74
"""What a further code of a symptom weighs beside the one before it."""
_WORD = re.compile(r"[a-z0-9_]+(?:\.\d+)?")
_DECIMAL = re.compile(r"\d+\.\d+")
_STOP = frozenset(
    ("a", "an", "and", "are", "be", "by", "do", "does", "has", "have", "i", "in", "is", "it", "its", "my")
)
_STOP |= {"of", "on", "or", "so", "that", "the", "to", "too", "with"}
_SAME = {"weight": "parameter", "inf": "nan", "infinity": "nan", "infinite": "nan", "lr": "rate", "half": "fp16"}
_SAME |= dict.fromkeys(("alway", "stay", "remain"), "stuck")


def catalogue() -> str:
    """Every check in one line."""
    rows = [(c.code, c.name, c.severity.name.lower(), c.summary) for c in CHECKS]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join([*(c.ljust(w) for c, w in zip(r[:3], widths, strict=True)), r[3]]) for r in rows) + "\n"


def page(check: Check[Any]) -> str:
    """A check's page in Markdown."""
    facts = [f"severity: {check.severity.name.lower()}"]
    if check.options:
        facts.append("options: " + ", ".join(f"{k}={v!r}" for k, v in check.options.items()))
    if check.implied_by:
        facts.append("explained by: " + ", ".join(check.implied_by))
    silence = f'Silence it with `SanityWatchdog(ignore=["{check.code}"])`.'
    return f"# {check.code} {check.name}\n\n{' · '.join(facts)}\n\n{check.page}\n\n{silence}\n"


def is_code(word: str) -> bool:
    """Does it look like a code, or a prefix of codes?"""
    return re.fullmatch(r"wd\d+", _key(word)) is not None


def _key(word: str) -> str:
    return word.strip().strip(",;:").lower()


def named(words: Sequence[str]) -> list[Check[Any]]:
    """Checks whose code, prefix of a code, or name was given."""
    found: list[Check[Any]] = []
    for word in words:
        key = _key(word)
        hits = [c for c in CHECKS if c.name == key or (is_code(key) and c.code.startswith(key.upper()))]
        if not hits:
            return []
        found += hits
    return list({c.code: c for c in found}.values())


def search(words: Sequence[str]) -> list[Check[Any]]:
    """Checks that look for the symptom ``words``, the best first: by the symptom index and by their pages."""
    asked = {w for text in words for w in _words(text)}
    pages, index = _spoken_of(asked), _indexed(asked)
    best = max(pages.values(), default=0.0) or 1.0
    scores = {code: pages[code] / best + SYMPTOM_WEIGHT * index[code] for code in pages}
    return sorted((c for c in CHECKS if scores[c.code]), key=lambda c: (-scores[c.code], c.code))


def _spoken_of(asked: set[str]) -> dict[str, float]:
    """How much each check's page speaks of the words; rare words and those in names weigh most."""
    texts = {c.code: _weighed(c) for c in CHECKS}
    scores = dict.fromkeys(texts, 0.0)
    for word in sorted(asked):
        having = [code for code, text in texts.items() if text[word]]
        for code in having:
            scores[code] += math.log(1 + len(CHECKS) / len(having)) * (1 + math.log(texts[code][word]))
    return scores


def _indexed(asked: set[str]) -> dict[str, float]:
    """How close the closest symptom of each check comes to the words, from 0 to 1: cosine of rare words, squared."""
    phrases = [(set(_words(symptom.seen)), symptom.codes) for group in SYMPTOMS.values() for symptom in group]
    having = Counter(word for phrase, _ in phrases for word in phrase)
    asked = {_as_indexed(word, having) for word in asked}
    rarity = {word: math.log(1 + len(phrases) / (1 + having[word])) ** 2 for word in {*having, *asked}}
    found = dict.fromkeys((c.code for c in CHECKS), 0.0)
    whole = math.fsum(rarity[w] for w in asked) or 1.0
    for phrase, codes in phrases:
        common = math.fsum(rarity[w] for w in phrase & asked)
        close = common**2 / (whole * math.fsum(rarity[w] for w in phrase))
        for rank, code in enumerate(codes):
            found[code] = max(found[code], close * NEXT_CODE**rank)
    return found


def _as_indexed(word: str, known: Iterable[str]) -> str:
    """The index's number that ``word`` rounds or cuts, or the other way round, as 0.69 does 0.693; else ``word``."""
    for number in filter(_DECIMAL.fullmatch, known if _DECIMAL.fullmatch(word) else ()):
        short, long = sorted((word, number), key=len)
        digits = len(short.partition(".")[2])
        if f"{float(long):.{digits}f}" == short or (digits > 1 and long.startswith(short)):
            return number
    return word


def _weighed(check: Check[Any]) -> Counter[str]:
    return Counter(_words(f"{(check.name + ' ') * 4}{(check.summary + ' ') * 2}{check.page}"))


def _words(text: str) -> list[str]:
    return [_stem(w) for w in _WORD.findall(text.lower()) if w not in _STOP]


def nearest(words: Sequence[str]) -> list[str]:
    """Codes and names that look like what was typed."""
    known = [*(c.code for c in CHECKS), *(c.name for c in CHECKS)]
    close = (get_close_matches(w.upper() if w.lower().startswith("wd") else w.lower(), known, 3, 0.7) for w in words)
    return list(dict.fromkeys(name for names in close for name in names))


def _stem(word: str) -> str:
    word = _SAME.get(word.removesuffix("s"), word)
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
