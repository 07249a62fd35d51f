"""What the site is built with beside MkDocs: formulas as MathML, and the help of each command, put in as it is now."""

import argparse
import html
import os
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

HELP = re.compile(r"^<!-- help: ([\w -]+) -->$", flags=re.MULTILINE)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.DOTALL)
# Browsers leave out `mathvariant`; Unicode has the letters themselves. Of each style: its capital A, its small a.
LETTERS = {"bold": (0x1D400, 0x1D41A), "bold-italic": (0x1D468, 0x1D482), "script": (0x1D49C, 0x1D4B6)}
STYLED = re.compile(rf'<mi mathvariant="({"|".join(LETTERS)})">([A-Za-z])</mi>')


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Each `<!-- help: NAME -->` becomes what `dln NAME --help` prints."""
    return HELP.sub(lambda found: f"```text\n{command_help(found[1])}\n```", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas that a browser shows without a script."""
    return FORMULA.sub(_mathml, content)


def command_help(name: str) -> str:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"  # what argparse takes for the width of the terminal
    try:
        return dict(parsers())[name].format_help().rstrip()
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands of `dln`, by name."""
    from deep_lambertian.cli import build_parser

    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, parser in action.choices.items():
                yield name, parser
                for each in parser._actions:
                    if isinstance(each, argparse._SubParsersAction):
                        yield from ((f"{name} {what}", inner) for what, inner in each.choices.items())


def _mathml(found: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    display = "inline" if found[2] == "(" else "block"
    return STYLED.sub(_letter, convert(html.unescape(found[3]).strip(), display=display))


def _letter(found: re.Match[str]) -> str:
    capital, small = LETTERS[found[1]]
    letter = found[2]
    code = capital + ord(letter) - ord("A") if letter.isupper() else small + ord(letter) - ord("a")
    if not unicodedata.name(chr(code), ""):  # Unicode has put a few script capitals elsewhere
        return f"<mi>{letter}</mi>"
    return f'<mi mathvariant="normal">&#x{code:X};</mi>'
