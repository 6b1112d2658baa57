"""The looks of values: one regular expression for each kind of value that a text may contain.

A date, a telephone number or a file is recognised by its form alone. The caller chooses the kinds to look for
(`RANKED`, `WHOLE_VALUES`, `KINDS`). A kind that is not looked for may be taken for another one: a telephone number for
a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from langgraph_toolmem.text.words import word_set

Kind: TypeAlias = Literal[
    "EMAIL", "URL", "DATE", "TIME", "AMOUNT", "PERCENT", "ID", "NUMBER", "PHONE", "FILE", "TEXT", "NAME", "DAY", "QUOTE"
]
"""TEXT: in quotes, or a secret. DAY: a weekday. QUOTE: in quotes, before the kind of the quoted text is known."""

WHOLE_VALUES: Final[frozenset[Kind]] = frozenset(
    {"EMAIL", "URL", "DATE", "TIME", "AMOUNT", "PERCENT", "ID", "NUMBER", "PHONE", "FILE"}
)
"""Kinds that the form of a value shows without the text around it."""
RANKED: Final[frozenset[Kind]] = WHOLE_VALUES | {"DAY"}
"""Kinds that are removed before requests are compared: they vary within one kind of request."""
KINDS: Final[frozenset[Kind]] = WHOLE_VALUES | {"TEXT", "NAME"}
"""All kinds. A weekday is a DATE here."""
PLAIN: Final[frozenset[Kind]] = frozenset({"EMAIL", "URL", "DATE", "TIME", "PHONE", "AMOUNT"})
"""Kinds that the form of a value shows, for any name of its parameter."""


def _month_numbers() -> dict[str, int]:
    names = "january february march april may june july august september october november december"
    numbers = {"sept": 9}
    for number, name in enumerate(names.split(), start=1):
        numbers[name] = number
        numbers[name[:3]] = number
    return numbers


MONTHS: Final = _month_numbers()
"""Number of a month by its English name or abbreviation in lower case."""
WEEKDAYS: Final = word_set("monday tuesday wednesday thursday friday saturday sunday")


class Look(NamedTuple):
    """The form of one kind of value.

    Attributes:
        kind: the kind of the values. A QUOTE may contain a value of any kind.
        pattern: a regular expression. If it has a group, the group is the value.
    """

    kind: Kind
    pattern: str


class Scanner(NamedTuple):
    """The looks of some kinds in one expression.

    Attributes:
        pattern: the expression.
        kinds: the kind of each group of the pattern, by the number of the group. Group 0 is not used.
    """

    pattern: re.Pattern[str]
    kinds: list[Kind]


@lru_cache
def scanner(kinds: frozenset[Kind]) -> Scanner:
    """Return one expression for several kinds. Of two values that begin at the same place, the first look counts."""
    patterns: list[str] = []
    by_group: list[Kind] = ["QUOTE"]
    for look in _looks():
        kind = look.kind
        if kind == "DAY" and kinds == KINDS:
            kind = "DATE"
        wanted = kind in kinds or (kind == "QUOTE" and "TEXT" in kinds)
        if not wanted:
            continue
        patterns.append(f"({look.pattern})")
        # The groups within a look have its kind, so that `lastindex` of a match gives it.
        by_group += [kind] * (1 + re.compile(look.pattern).groups)
    # One expression for all kinds reads a text once. No look begins within a word of plain letters.
    pattern = re.compile(rf"(?<![a-zA-Z])(?:{'|'.join(patterns)})", re.IGNORECASE | re.DOTALL)
    return Scanner(pattern, by_group)


def _any_of(names: Iterable[str]) -> str:
    """Return an expression for any of the names, longer ones first: an alternation takes the first that matches."""
    return f"(?:{'|'.join(sorted(names, key=len, reverse=True))})"


def _quoted() -> str:
    """Return an expression for a text in quotes, with the text as a group."""

    def between(opening: str, closing: str, space: str = "") -> str:
        return rf"{opening}{space}([^{opening}]{{1,2000}}?){space}{closing}"

    def between_equal(sign: str) -> str:
        # A third sign may only be inside a word ("don't"), so that one text is not read as two quotes.
        return rf"{sign}((?:[^{sign}]|(?<=\w){sign}(?=\w)){{1,2000}}?){sign}"

    same = [between_equal("'"), between_equal('"'), between_equal("`")]
    pairs = "|".join([*same, between("“", "”"), between("‘", "’"), between("„", "“")])
    brackets = "|".join([between("«", "»", r"\s?"), between("「", "」"), between("『", "』")])
    return rf"(?<!\w)(?:{pairs})(?!\w)|{brackets}"


def _looks() -> tuple[Look, ...]:
    """Return the looks of all kinds, in the order in which they are tried: a date is not a telephone number.

    Repeats are bounded, and a look begins only where it cannot have begun a sign earlier: otherwise a text of equal
    signs takes quadratic time (tests/unit/test_linear_expressions.py).
    """
    iso_date = r"\d{4}-\d\d?-\d\d?"
    clock = r"\d\d?:\d\d(?::\d\d(?:\.\d+)?)?"
    day_of_month = r"\d\d?(?:st|nd|rd|th)?"
    of_year = r"(?:(?:,|\s+of)?\s+\d{4}\b)?"
    month = _any_of(MONTHS)
    weekday = _any_of(WEEKDAYS)
    currency_code = _any_of(word_set("usd eur gbp jpy chf cad aud inr rmb cny"))
    currency = rf"(?:US|A|C)?[$€£¥₹]|{currency_code}\b"
    return (
        Look("QUOTE", _quoted()),
        # A secret after its name, without the mark that ends the sentence.
        Look(
            "TEXT",
            r"\b(?:password|passcode|passphrase|pin|secret|api[ _-]?key|access token|cvv|otp)(?:\s+is|\s*[:=])\s*"
            r"(?=[^\s\"'“‘`<])(\S*[^\s.,;:!?)])",
        ),
        Look("EMAIL", r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+"),
        Look("URL", r"\bhttps?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]|(?<![\w@/.])www\.[\w-]+\.[^\s,;]*[^\s,;.:!?)'\"]"),
        # ISO, figures, "3rd of May 2024", "May 3", "in May": a month alone may be a verb or a name.
        Look(
            "DATE",
            rf"(?<![\w-]){iso_date}(?:[T ]{clock}(?:Z|[+-]\d\d:?\d\d)?)?(?![\w-])"
            r"|(?<![\w.])(?:\d{4}(?P<s>[./])\d\d?(?P=s)\d\d?|\d\d?(?P<t>[./-])\d\d?(?P=t)(?:19|20)?\d\d)(?![\w/]|\.\d)"
            rf"|(?<!\w){day_of_month}\s+(?:of\s+)?{month}(?!\w)\.?{of_year}"
            rf"|(?<!\w){month}(?:\.?\s+{day_of_month}\b(?:,?\s+\d{{4}}\b)?|[.,]?\s+\d{{4}}\b)"
            rf"|(?:(?<=\bin )|(?<=\bsince )|(?<=\bof )){month}(?!\w|\s+\d)",
        ),
        Look("DAY", rf"\b{weekday}s?\b"),
        # A card's number is one value, not four numbers.
        Look("ID", r"(?<![\w.])(?:\d{4}[ -]){3}\d{4}(?!\w)"),
        Look(
            "PHONE",
            r"(?<![\w-])(?:\+\d[\d ().-]{6,16}\d|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}|0\d{1,5}[/ -]\d{5,9})(?![\w-])",
        ),
        Look("TIME", rf"\b{clock}(?:\s*[ap]\.?m\b\.?)?|\b\d{{1,2}}\s*[ap]\.?m\b\.?"),
        Look("PERCENT", r"(?<![\w.,])\d+(?:[.,]\d+)?\s*(?:%|percent\b)"),
        Look(
            "AMOUNT",
            rf"(?<!\w)(?=[a-z]{{0,3}}\W?\s?\d)(?:{currency})\s?\d[\d.,]*k?(?<![.,])(?!\w)"
            r"|(?<![\w#])(?<!\d[.,])(?<![.,][.,])\d(?:[\d.,]*\d)?k?\s?"
            rf"(?:[$€£¥₹]|(?:dollars?|euros?|pounds?|cents?|bucks|rupees?|{currency_code})\b)",
        ),
        Look(
            "FILE",
            r"(?<![\w@/.~-])(?:[\w~-]*/)*[\w~-]+\.(?=[a-z])[a-z0-9]{2,5}\b(?!@)|(?<![\w:/])~?(?:/[\w.-]+)+",
        ),
        # "30-minute" is a number with a unit, and would be an id otherwise.
        Look("NUMBER", r"(?<!\w)(?=[\w-]{3})\d+[-_]?[a-z]{1,9}(?![\w-])"),
        # Letters and digits together; below three signs in capitals only: "Q1", "12B".
        Look("ID", r"(?<!\w)#?(?=[a-z_-]{0,63}\d)(?=[\d_-]{0,63}[a-z])[\w-]{3,64}"),
        Look("ID", r"(?-i:(?<![\w#.-])#?(?:[A-Z]{1,3}\d{1,4}[A-Z]?|\d{1,3}[A-Z])(?![\w-]))"),
        Look("NUMBER", r"(?<!\w)#?\d[\d,]*(?:\.\d+)?\b"),
        Look("NAME", r"(?<![\w@.])@(\w[\w.-]{1,38}\w)"),
    )
