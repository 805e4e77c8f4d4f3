import unittest

from third_party.tools import check_glossary


class CheckGlossaryTest(unittest.TestCase):

    RULES = check_glossary.read_table(
        "# a comment\n\n\\bold_name\\b => new_name except kept/*.cc\n")

    def test_the_report_names_the_place_and_the_word(self):
        self.assertEqual(
            check_glossary.retired_in(self.RULES, "a/b.cc", "x\ny old_name z\n"),
            ['a/b.cc:2: "old_name", use: new_name'])

    def test_looks_at_paths(self):
        self.assertEqual(
            check_glossary.retired_in(self.RULES, "a/old_name", ""),
            ['a/old_name: the path has "old_name", use: new_name'])

    def test_allows_where_the_rule_says(self):
        self.assertEqual(check_glossary.retired_in(self.RULES, "kept/b.cc", "old_name"), [])
        self.assertEqual(check_glossary.retired_in(self.RULES, "docs/glossary.md", "old_name"), [])
        self.assertEqual(check_glossary.retired_in(self.RULES, "a.cc", "old_names"), [])

    def test_a_line_without_a_word_is_refused(self):
        with self.assertRaises(ValueError):
            check_glossary.read_table("old_name\n")

    def test_the_projects_table_can_be_read(self):
        with open(check_glossary.TABLE, encoding="utf-8") as file:
            self.assertTrue(check_glossary.read_table(file.read()))


if __name__ == "__main__":
    unittest.main()
