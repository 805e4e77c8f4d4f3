import unittest

from tests.operator_database import report

PAGE = """# Operator coverage

| `elsewhere` | `*` | `*` | not in the section |

## Not covered

| Operator | Dtypes | Variants | Reason |
|---|---|---|---|
| `to_sparse` | `*` | `*` | Sparse tensors. |
| `lstsq` | `float32`, `float64` | `out` | Strides. |

## Next

| `late` | `*` | `*` | not in the section either |
"""


def record(operator="add", dtype="float32", variant="forward", equal=2, samples=2):
    return {
        "operator": operator,
        "dtype": dtype,
        "variant": variant,
        "equal": equal,
        "samples": samples,
        "failures": [
            {"sample": i, "kind": "value", "message": ""}
            for i in range(samples - equal)
        ],
        "synchronous": {"aten::nonzero": 3},
    }


class ReadExceptionsTest(unittest.TestCase):
    def test_reads_the_table_of_its_section(self):
        exceptions = report.read_exceptions(PAGE)
        self.assertEqual(
            exceptions,
            [
                (("to_sparse", "*", "*"), "Sparse tensors."),
                (("lstsq", "float32", "out"), "Strides."),
                (("lstsq", "float64", "out"), "Strides."),
            ],
        )

    def test_matches_by_pattern(self):
        exceptions = report.read_exceptions(PAGE)
        self.assertTrue(report.is_excepted(record("to_sparse"), exceptions))
        self.assertTrue(report.is_excepted(record("lstsq", variant="out"), exceptions))
        self.assertFalse(report.is_excepted(record("lstsq"), exceptions))
        self.assertFalse(
            report.is_excepted(record("lstsq", "int64", "out"), exceptions)
        )

    def test_refuses_a_row_without_a_reason(self):
        with self.assertRaises(ValueError):
            report.read_exceptions("## Not covered\n| `add` | `*` | `*` | |\n")


class SummaryTest(unittest.TestCase):
    def test_an_overload_passes_with_all_its_dtypes(self):
        summary = report.Summary(
            [record(), record(dtype="int64", equal=1), record(variant="out")], []
        )
        self.assertEqual(summary.samples(), (5, 6))
        self.assertEqual(summary.overloads(), (1, 2))

    def test_leaves_out_what_is_listed_and_what_the_cpu_does_not_pass(self):
        summary = report.Summary(
            [record(), record("to_sparse", equal=0), record("mul", equal=0, samples=0)],
            report.read_exceptions(PAGE),
        )
        self.assertEqual(summary.samples(), (2, 2))
        self.assertEqual(summary.as_dict()["listed_samples"], 2)

    def test_needs_enough_samples_and_overloads(self):
        good = [record(f"op{i}") for i in range(99)]
        almost = record("bad", equal=1)
        self.assertTrue(report.Summary(good + [almost], []).passed())
        worse = [record(f"bad{i}", equal=0) for i in range(2)]
        self.assertFalse(report.Summary(good + worse, []).passed())

    def test_an_empty_report_does_not_pass(self):
        self.assertFalse(report.Summary([], []).passed())

    def test_adds_up_synchronous_executions(self):
        summary = report.Summary([record(), record("mul")], [])
        self.assertEqual(summary.as_dict()["synchronous"], {"aten::nonzero": 6})
        self.assertIn("aten::nonzero 6", summary.text())
