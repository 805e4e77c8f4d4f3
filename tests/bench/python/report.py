"""Rows of measurements: their numbers, a table, JSON."""

import math
import statistics
from dataclasses import dataclass, field


@dataclass
class Row:
    benchmark: str
    variant: str
    # Seconds, one per round. The rounds of both alternate.
    djinn: list = field(default_factory=list)
    local: list = field(default_factory=list)
    # Description of the comparison, and its result.
    checked: str = ""
    # Error in the outputs; empty if they are right.
    error: str = ""
    notes: list = field(default_factory=list)

    def ratios(self):
        return [one / other for one, other in zip(self.djinn, self.local)]


def worst(*differences):
    """The largest; infinite where one is no number, which max() would pass over."""
    return max(math.inf if math.isnan(d) else d for d in differences)


def median_interval(values):
    """The median with its 95 % confidence interval, by ranks; of fewer than six
    values, all of them lie in the interval."""
    ordered = sorted(values)
    count = len(ordered)
    rank = 0
    if count >= 6:
        rank = max(0, int(math.floor(count / 2 - 0.98 * math.sqrt(count))))
    return statistics.median(ordered), ordered[rank], ordered[count - 1 - rank]


def seconds(value):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def ratio(row):
    return "{:.2f} [{:.2f}, {:.2f}]".format(*median_interval(row.ratios()))


def table(rows):
    """The rows as aligned lines."""
    cells = [("benchmark", "variant", "Djinn", "local", "ratio [95 %]", "checked")]
    for row in rows:
        outcome = f"WRONG: {row.error}" if row.error else row.checked
        if not row.djinn:
            cells.append((row.benchmark, row.variant, "-", "-", "-", outcome))
            continue
        cells.append((row.benchmark, row.variant, seconds(statistics.median(row.djinn)),
                      seconds(statistics.median(row.local)), ratio(row), outcome))
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]) - 1)]
    lines, notes = [], [()] + [row.notes for row in rows]
    for line, below in zip(cells, notes):
        shown = [text.ljust(width) if i < 2 else text.rjust(width)
                 for i, (text, width) in enumerate(zip(line, widths))]
        lines.append("  ".join([*shown, line[-1]]))
        lines.extend(f"    {note}" for note in below)
    return "\n".join(lines)


def as_json(rows):
    return [
        {"benchmark": row.benchmark, "variant": row.variant, "unit": "seconds",
         "djinn": row.djinn, "baseline": row.local, "checked": row.checked,
         "error": row.error, "notes": row.notes,
         **({"ratio": median_interval(row.ratios())} if row.djinn else {})}
        for row in rows
    ]
