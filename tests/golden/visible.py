"""The text that a reader of a section sees, line by line."""

from __future__ import annotations

from html.parser import HTMLParser

from jobreport.page.sections import Fragment

#: Rows of a table that are kept at its head and at its end.
HEAD, TAIL = 5, 2
UNSEEN = ("script", "style", "template")
VOID = {"br", "hr", "img", "input", "link", "meta", "col"}
#: What stands in front of the text of an element; elements without a mark end the line before them.
MARKS = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "li": "- ", "summary": "[+] ", "dd": "  "}
MARKS |= dict.fromkeys(
    ("p", "div", "dt", "table", "caption", "figcaption", "section", "figure", "ul", "ol"), ""
)


class Visible(HTMLParser):
    """Lines of text; a table has one a row, its middle left out, and a drawing is its text alternative."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self._text = ""
        self._unseen: list[str] = []
        self._rows: list[str] = []
        self._cells: list[str] = []

    @classmethod
    def of(cls, section: Fragment) -> str:
        """The text of a section, which must not have failed."""
        assert "failed" not in section.facts, section.facts
        parser = cls()
        parser.feed(section.html)
        parser.close()
        parser._end_line()
        return "\n".join(parser.lines) + "\n"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        is_drawing = tag == "svg" or known.get("role") == "img"
        if is_drawing and not self._unseen and known.get("aria-label"):
            self._end_line()
            self.lines.append(f"[drawing] {' '.join(str(known['aria-label']).split())}")
        if self._unseen or is_drawing or tag in UNSEEN:
            if tag not in VOID:
                self._unseen.append(tag)
        elif tag in MARKS:
            self._end_line()
            self._text = MARKS[tag]

    def handle_endtag(self, tag: str) -> None:
        if self._unseen:
            if tag not in VOID:
                self._unseen.pop()
        elif tag in ("td", "th"):
            self._cells.append(" ".join(self._text.split()))
            self._text = ""
        elif tag == "tr":
            self._rows.append(" | ".join(self._cells))
            self._cells = []
        elif tag == "table":
            left_out = len(self._rows) - HEAD - TAIL
            if left_out > 1:
                self._rows[HEAD:-TAIL] = [f"… {left_out} rows …"]
            self.lines += self._rows
            self._rows = []
        elif tag in MARKS:
            self._end_line()

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._text += data

    def _end_line(self) -> None:
        in_cell = bool(self._cells)
        if text := " ".join(self._text.split()):
            mark = next((m for m in MARKS.values() if m and self._text.startswith(m)), "")
            if in_cell:
                self._text = f"{text} "
                return
            self.lines.append(mark + text.removeprefix(mark.strip()).strip())
        self._text = ""
