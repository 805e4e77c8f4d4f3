"""Counts what a run over the operator database found."""

import collections
import itertools
import re

# Required shares of all samples that pass on the CPU, and of all overloads.
SAMPLES_NEEDED = 0.99
OVERLOADS_NEEDED = 0.98


def read_exceptions(page):
    """Reads docs/user/operator-coverage.md: (operator, dtype, variant) -> reason.

    Rows of the table below "## Not covered": operator, dtypes, variants, reason;
    `*` stands for all.
    """
    section = page.split("## Not covered", 1)[1].split("\n## ", 1)[0]
    exceptions = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip()[1:-1].split("|")]
        if not line.startswith("| `") or len(cells) != 4:
            continue
        operators, dtypes, variants = (
            re.findall(r"`([^`]+)`", cell) for cell in cells[:3]
        )
        reason = cells[3]
        if not reason:
            raise ValueError(f"no reason is given for {cells[0]}")
        exceptions += [
            (place, reason) for place in itertools.product(operators, dtypes, variants)
        ]
    return exceptions


def is_excepted(record, exceptions):
    place = (record["operator"], record["dtype"], record["variant"])
    return any(
        all(pattern in ("*", value) for pattern, value in zip(patterns, place))
        for patterns, _ in exceptions
    )


class Summary:
    """Counts over records, one per operator, dtype and variant."""

    def __init__(self, records, exceptions):
        self._excepted = [r for r in records if is_excepted(r, exceptions)]
        self._records = [
            r for r in records if not is_excepted(r, exceptions) and r["samples"]
        ]

    def samples(self, records=None):
        """Returns the number of equal samples, and of all samples."""
        records = self._records if records is None else records
        return sum(r["equal"] for r in records), sum(r["samples"] for r in records)

    def overloads(self, records=None):
        """Returns the number of overloads that pass fully, and of all overloads.

        An overload is an entry of the database in one variant, with all dtypes.
        """
        records = self._records if records is None else records
        passed = collections.defaultdict(lambda: True)
        for record in records:
            key = record["operator"], record["variant"]
            passed[key] &= record["equal"] == record["samples"]
        return sum(passed.values()), len(passed)

    def passed(self):
        equal, total = self.samples()
        full, overloads = self.overloads()
        return (
            total > 0
            and equal >= SAMPLES_NEEDED * total
            and full >= OVERLOADS_NEEDED * overloads
        )

    def as_dict(self):
        return {
            "samples": self.samples(),
            "overloads": self.overloads(),
            "listed_samples": sum(r["samples"] for r in self._excepted),
            "by_dtype_and_variant": {
                " ".join(key): {
                    "samples": self.samples(records),
                    "overloads": self.overloads(records),
                }
                for key, records in self._groups().items()
            },
            "failures_by_kind": self._failures(),
            "synchronous": self._synchronous(),
        }

    def text(self):
        lines = [f"{'dtype':<10} {'variant':<12} {'samples':>15} {'overloads':>11}"]
        groups = dict(self._groups())
        groups["all", ""] = self._records
        for (dtype, variant), records in groups.items():
            samples = "/".join(map(str, self.samples(records)))
            overloads = "/".join(map(str, self.overloads(records)))
            lines.append(f"{dtype:<10} {variant:<12} {samples:>15} {overloads:>11}")
        for title, counts in (
            ("samples that differ, by kind", self._failures()),
            ("synchronous executions, by operator", self._synchronous()),
        ):
            lines.append(f"{title}: {sum(counts.values())}")
            lines += [f"  {name} {count}" for name, count in counts.items()]
        lines.append("overloads that differ, with the first sample that does:")
        lines += [
            f"  {r['operator']} {r['dtype']} {r['variant']} {r['equal']}/{r['samples']}"
            f" {r['failures'][0]['kind']}: {r['failures'][0]['message'][:200]}"
            for r in self._records
            if r["failures"]
        ]
        equal, total = self.samples()
        full, overloads = self.overloads()
        lines.append(
            f"{equal} of {total} samples equal ({_percent(equal, total)}), "
            f"{full} of {overloads} overloads pass ({_percent(full, overloads)})"
        )
        return "\n".join(lines)

    def _groups(self):
        groups = collections.defaultdict(list)
        for record in self._records:
            groups[record["dtype"], record["variant"]].append(record)
        return groups

    def _failures(self):
        counts = collections.Counter(
            failure["kind"] for r in self._records for failure in r["failures"]
        )
        return dict(counts.most_common())

    def _synchronous(self):
        counts = collections.Counter()
        for record in self._records:
            counts.update(record["synchronous"])
        return dict(counts.most_common())


def _percent(part, whole):
    return f"{100 * part / whole:.2f} %" if whole else "none"
