"""What sixty static drawings cost: by a library, and by the page's own templates.

Draws the same sixty time lines, a line of 200 columns over a band, as SVG with each way that is installed
(``pip install matplotlib pygal``), and prints seconds with the import and bytes of all. Part of `make bench`.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import time

import numpy as np

FIGURES, COLUMNS = 60, 200


def curves() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Mean, lowest and highest value of every column, a figure each."""
    random = np.random.default_rng(1)
    drawn = []
    for _ in range(FIGURES):
        mean = np.clip(50 + 20 * random.standard_normal(COLUMNS).cumsum() / 5, 5, 95).round(1)
        drawn.append((mean, np.maximum(mean - 5, 0), np.minimum(mean + 5, 100)))
    return drawn


def ours() -> list[str]:
    """The page's own chart template."""
    from jobreport.page.figures import chart
    from jobreport.page.kit.fragment import _environment

    x, y = chart.over_time(0, COLUMNS * 60_000_000), chart.upward(100.0)
    edges = np.arange(COLUMNS + 1) * 60e6
    macro = getattr(_environment().get_template("sections/chart.html.j2").module, "chart")  # noqa: B009 - a macro
    return [
        str(
            macro(
                chart.Drawing(
                    x=x,
                    y=y,
                    marks=(
                        chart.bars("band", x, y, (edges[:-1], edges[1:], low, high)),
                        chart.line("line", x, y, (edges[:-1] + edges[1:]) / 2, mean),
                    ),
                ),
                "GPU use over time",
            )
        )
        for mean, low, high in curves()
    ]


def matplotlib() -> list[str]:
    """matplotlib's SVG backend, text as text."""
    import matplotlib as library  # type: ignore[import-not-found]

    library.use("svg")
    library.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    drawn = []
    for mean, low, high in curves():
        figure, axes = pyplot.subplots(figsize=(6, 1.2))
        axes.fill_between(range(COLUMNS), low, high, step="mid")
        axes.plot(mean)
        axes.set_ylim(0, 100)
        text = io.StringIO()
        figure.savefig(text, format="svg")
        pyplot.close(figure)
        drawn.append(text.getvalue())
    return drawn


def pygal() -> list[str]:
    """pygal, a pure Python library of SVG charts; it draws no band, so the band is two more lines."""
    import pygal as library  # type: ignore[import-not-found]

    drawn = []
    for curve in curves():
        figure = library.Line(js=(), show_dots=False, range=(0, 100), height=120, width=600)
        for name, values in zip(("mean", "low", "high"), curve, strict=True):
            figure.add(name, [float(v) for v in values])
        drawn.append(figure.render(is_unicode=True))
    return drawn


WAYS = {"ours": ours, "matplotlib": matplotlib, "pygal": pygal}


def main() -> None:
    """Each way in a process of its own, or all of them one after the other."""
    if len(sys.argv) > 1:
        start = time.perf_counter()
        try:
            drawn = WAYS[sys.argv[1]]()
        except ImportError as error:
            print(f"{sys.argv[1]:<12} not installed ({error.name})")
            return
        text = "".join(drawn).encode()
        spent = time.perf_counter() - start
        print(
            f"{sys.argv[1]:<12} {spent:6.2f} s {len(text) / 1e3:8.0f} kB {len(gzip.compress(text, mtime=0)) / 1e3:6.0f} kB"
        )
        return
    print(f"{FIGURES} drawings  time with import    SVG   gzipped")
    for way in WAYS:
        subprocess.run([sys.executable, __file__, way], check=True)


if __name__ == "__main__":
    main()
