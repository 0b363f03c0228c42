"""The phases of steps by rank, on the page."""

from __future__ import annotations

from jobreport.page.figures.steps import Unit
from jobreport.page.kit import Figure, Note, Table
from jobreport.page.sections.parts.rank_phases import phases_of_ranks
from jobrules.analyses.rank_waits import rank_waits
from tests.rules.rank_jobs import FORWARD, in_step, slow

MS = Unit(name="ms", us=1000, digits=1)


def test_late_ranks_come_first_and_all_ranks_have_a_row() -> None:
    waits = rank_waits(in_step(64, {FORWARD: slow(30, 17, 40)}))
    assert waits
    figure = phases_of_ranks(waits, MS)
    assert isinstance(figure, Figure)
    (table,) = figure.tables
    assert isinstance(table, Table)

    assert figure.finding.replace("\u00a0", " ").startswith("The others wait 30.")
    assert "for rank 17 and rank 40, 61." in figure.finding
    assert [name for _, name, _ in figure.key] == [
        "Batch fetch",
        "Forward pass",
        "Backward pass",
        "Optimizer",
    ]
    assert [row[0] for row in table.rows[:3]] == ["17", "40", "0"]
    assert len(table.rows) == 64
    assert float(str(table.rows[0][4])) > 36 > 8 > float(str(table.rows[2][4]))


def test_without_a_late_rank_a_sentence_says_so() -> None:
    waits = rank_waits(in_step(2))

    assert waits
    assert waits.late == 0
    note = phases_of_ranks(waits, MS)
    assert isinstance(note, Note)
    assert note.text.startswith("No rank is late")
