import unittest

from tests.operating import recipes

_DOCUMENT = """# Title

## First

```sh
other
```

## Recipes

Text.

```sh
list
```
```
one
…
```

## Last
"""


class RecipesTest(unittest.TestCase):

    def test_finds_commands_and_outputs_of_a_section(self):
        text = recipes.section(_DOCUMENT, "Recipes")
        self.assertEqual(recipes.recipes(text), [("list\n", "one\n…\n")])
        with self.assertRaises(ValueError):
            recipes.section(_DOCUMENT, "Second")

    def test_refuses_blocks_that_belong_to_no_recipe(self):
        for text in ("", "```sh\na\n```\n", "```\na\n```\n```\nb\n```\n",
                     "```sh\na\n```\n```sh\nb\n```\n"):
            with self.assertRaises(ValueError):
                recipes.recipes(text)

    def test_text_without_dots_matches_literally(self):
        self.assertTrue(recipes.matches("a.b\n", "a.b\n"))
        self.assertFalse(recipes.matches("a.b\n", "axb\n"))
        self.assertFalse(recipes.matches("a\n", "a\nb\n"))
        self.assertFalse(recipes.matches("a\nb\n", "a\n"))
        self.assertTrue(recipes.matches("  a\n", "a"))

    def test_an_ellipsis_matches_any_text(self):
        self.assertTrue(recipes.matches('"id": "…",', '  "id": "w0",'))
        self.assertFalse(recipes.matches('"id": "…"', '"id": "a\nb"'))
        self.assertTrue(recipes.matches("{\n…\nx\n…\n}", "{\ny\nx\n}"))
        self.assertFalse(recipes.matches("{\n…\nx\n…\n}", "{\ny\n}"))
        self.assertTrue(recipes.matches("…", ""))


if __name__ == "__main__":
    unittest.main()
