import os
import unittest

from third_party.tools import check_links


class CheckLinksTest(unittest.TestCase):
    def test_says_what_leads_nowhere(self):
        pages = {
            "README.md": "[a](docs/a.md) [b](docs/b.md) [s](docs/a.md#one-two) [x](src/x.h)",
            "docs/a.md": "# One, `two`\n[up](../README.md) [self](#one-two) [no](#three)\n"
                         "```\n[quoted](nowhere.md)\n```\n[w](https://x.org/a.md)",
        }
        self.assertEqual(check_links.broken(pages),
                         ["README.md: no page docs/b.md", "docs/a.md: no section #three"])

    def test_headings_are_named_as_github_names_them(self):
        self.assertEqual(check_links.headings("# A [b](c.md)'s `d_e`\n## F-g\nnot # h"),
                         {"a-bs-d_e", "f-g"})

    def test_the_projects_pages(self):
        pages = {}
        names = ["README.md"] + [os.path.join(folder, name)
                                 for folder, _, files in os.walk("docs", followlinks=True)
                                 for name in files if name.endswith(".md")]
        for name in names:
            with open(name, encoding="utf-8") as file:
                pages[name] = file.read()
        self.assertGreater(len(pages), 10)
        self.assertEqual(check_links.broken(pages), [])


if __name__ == "__main__":
    unittest.main()
