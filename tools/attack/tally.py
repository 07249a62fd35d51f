"""What an attempt may end in, and the table of all of them."""

from collections import Counter
from dataclasses import dataclass, field

# Unharmed: nothing was noticed, and rightly so. Clean: refused in a sentence, or mended. The rest are defects.
UNHARMED, CLEAN, TRACEBACK, WRONG, HANG, SKIPPED = (
    "unharmed",
    "clean error",
    "traceback",
    "wrong result",
    "hang",
    "skipped",
)
DEFECTS = (TRACEBACK, WRONG, HANG)
COLUMNS = (UNHARMED, CLEAN, *DEFECTS)


@dataclass
class Tally:
    """Attempts by what was attacked, and a line for each defect, by which it can be done again."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    defects: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, target: str, outcome: str, told: str = "", count: int = 1) -> None:
        self.counts.setdefault(target, Counter())[outcome] += count
        if outcome in DEFECTS:
            self.defects.append(f"{target}: {outcome}: {told}")
        elif outcome == SKIPPED:
            self.notes.append(f"{target}: skipped ({told})")

    def table(self) -> str:
        """The table, as Markdown has it."""
        rows = [["target", "attempts", *COLUMNS]]
        total: Counter[str] = Counter()
        for target, found in self.counts.items():
            if tried := sum(found[each] for each in COLUMNS):
                rows.append([target, f"{tried:,}", *(f"{found[each]:,}" for each in COLUMNS)])
                total.update(found)
        rows.append(["in all", f"{sum(total[each] for each in COLUMNS):,}", *(f"{total[each]:,}" for each in COLUMNS)])
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
        ]
        return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
