"""Small pieces of a sentence or of a cell."""

from __future__ import annotations

from markupsafe import Markup


def status(style: str, word: str) -> Markup:
    """A sign and its word."""
    return Markup(
        '<span class="st {}"><svg viewBox="0 0 16 16" aria-hidden="true"><use href="#i-{}"/></svg>{}</span>'
    ).format(style, style, word)


def unbroken(text: str) -> Markup:
    """A command, or a sentence with one, that breaks at blanks only: browsers break after the hyphens of an option."""
    return Markup(" ").join(
        Markup('<span class="word-block">{}</span>').format(word) for word in text.split(" ")
    )
