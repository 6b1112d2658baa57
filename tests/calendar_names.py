"""How the tables of `langgraph_toolmem.words.calendar` were made: from Unicode's CLDR, by Babel.

    python -m venv /tmp/cldr && /tmp/cldr/bin/pip install babel==2.18.0
    /tmp/cldr/bin/python tests/calendar_names.py              # prints both tables
    /tmp/cldr/bin/python tests/calendar_names.py --check      # says whether the checked-in ones are these

Of each month the full names (as a date has them, and by themselves) and the abbreviations; of each weekday the full
names, and Chinese 周一. Left out: what is shorter than three letters ("Mo", "Do"), and abbreviations that are words of
English or German, since "10 out of 12" is no day of October.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

LANGUAGES = "en de fr es it pt nl sv pl tr ru ar hi ja zh ko"
WORDS = {"set", "out", "ago", "mag", "gen", "lug", "ara", "tem", "lip", "sie"}
FURTHER = {("en", 9): ["sept"]}
"""What English texts have beside CLDR's."""
ONE = """
import json, sys
from babel import Locale
locale = Locale(sys.argv[1])
said = {}
for sort, names in (("MONTHS", locale.months), ("WEEKDAYS", locale.days)):
    said[sort] = [
        sorted(names[how][width].items()) for width in ("wide", "abbreviated") for how in ("stand-alone", "format")
    ]
print(json.dumps(said))
"""
"""For one language, in a process of its own: names that a language lacks are resolved to those that were read last."""


def names(language: str) -> dict[str, str]:
    """The names of a language, those of one month or weekday joined by "/"."""
    said = json.loads(subprocess.check_output([sys.executable, "-c", ONE, language]))
    found = {}
    for sort, tables in said.items():
        kept: dict[int, dict[str, None]] = {}
        for which, table in enumerate(tables):
            for number, name in table:
                name = name.rstrip(".॰").casefold()
                short = len(name) < 3 and "a" <= name[0] < "\u0530"
                abbreviated = which > 1 and (name in WORDS or (sort == "WEEKDAYS" and name[0] != "周"))
                if not short and not abbreviated:
                    kept.setdefault(number, {})[name] = None
        for (where, number), further in FURTHER.items():
            if (where, sort) == (language, "MONTHS"):
                kept[number] |= dict.fromkeys(further)
        found[sort] = " ".join("/".join(kept[number]) for number in sorted(kept))
    return found


def tables() -> dict[str, dict[str, str]]:
    """Both tables."""
    made: dict[str, dict[str, str]] = {"MONTHS": {}, "WEEKDAYS": {}}
    for language in LANGUAGES.split():
        for sort, text in names(language).items():
            made[sort][language] = text
    return made


def main() -> None:
    """Prints the tables, or checks them."""
    module = Path(__file__).parents[1] / "langgraph_toolmem" / "words" / "calendar.py"
    said = re.sub(r'"\s*\n\s*"', "", module.read_text(encoding="utf-8"))  # a long text is written on two lines
    missing = []
    for sort, table in tables().items():
        for language, text in table.items():
            line = f'"{language}": "{text}",'
            if "--check" not in sys.argv:
                sys.stdout.write(f"{sort} {line}\n")
            elif line not in said:
                missing.append(line)
    sys.exit("\n".join(["not in the module:", *missing]) if missing else 0)


if __name__ == "__main__":
    main()
