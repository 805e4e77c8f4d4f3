import os
import tempfile
import unittest

from third_party.tools import check_links


class CheckLinksTest(unittest.TestCase):
    def test_links_that_lead_nowhere_are_reported(self):
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

    def test_says_which_files_are_not_there(self):
        with tempfile.TemporaryDirectory() as root:
            for name in ("src/a.h", "src/b_test.py", "docs/a.md"):
                os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                with open(os.path.join(root, name), "w", encoding="utf-8"):
                    pass
            pages = {"docs/a.md": "`src/a.h` `src/` `src/b_test` [a](../src/a.h) `n/a` `src/*.h`\n"
                                  "```\n`src/quoted.h`\n```\n"
                                  "`src/gone.h` [gone](../src/gone.cc#part) [w](https://x.org)"}
            self.assertEqual(check_links.missing_files(pages, root),
                             ["docs/a.md: no file src/gone.h", "docs/a.md: no file ../src/gone.cc"])

    def test_says_which_functions_are_not_there(self):
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "src"))
            with open(os.path.join(root, "src/a.cc"), "w", encoding="utf-8") as file:
                file.write("void A::Run() {}")
            pages = {"a.md": "`A::Run` in `src/a.cc` `A::Ru` in\n`src/a.cc` `B` in `src/b.cc`"}
            self.assertEqual(check_links.missing_functions(pages, root),
                             ["a.md: no A::Ru in src/a.cc"])

    def test_says_which_pages_are_not_there(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "docs/design"))
            with open(os.path.join(root, "docs/design/a.md"), "w", encoding="utf-8"):
                pass
            sources = {"a.h": "// See docs/design/a.md. docs/a.md has more.",
                       "b.py": "x = 'mydocs/b.md'"}
            self.assertEqual(check_links.missing_pages(sources, root), ["a.h: no page docs/a.md"])

    def test_says_which_commands_no_test_runs(self):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "a_test.py"), "w", encoding="utf-8") as file:
                file.write("open('a.md')")
            block = "```sh\nmake\n```\n"
            pages = {
                "docs/user/a.md": "<!-- Run by a_test. -->\n" + block + "## Next\n" + block +
                                  "<!-- Not run by a test: it needs a GPU. -->\n" + block,
                "docs/user/b.md": "<!-- Run by a_test. -->\n" + block,
                "docs/user/c.md": "## One\n<!-- Not run by a test: no. -->\n## Two\n" + block +
                                  "```yaml\na: b\n```\n",
                "docs/user/d.md": "<!-- Run by b_test. -->\n" + block,
                "docs/design/e.md": block}
            self.assertEqual(check_links.unclaimed_commands(pages, root), [
                "docs/user/b.md: a_test does not name this page: make",
                "docs/user/c.md: no test is said to run: make",
                "docs/user/d.md: no test b_test: make"])

    def test_the_projects_pages(self):
        # The checkout, from the folder of links to it that Bazel makes for a test.
        root = os.path.dirname(os.path.realpath("README.md"))
        pages = check_links.read_pages(root)
        self.assertGreater(len(pages), 10)
        self.assertEqual(check_links.broken(pages), [])
        self.assertEqual(check_links.missing_files(pages, root), [])
        self.assertEqual(check_links.missing_functions(pages, root), [])
        self.assertEqual(check_links.unclaimed_commands(pages, root), [])
        sources = check_links.read_sources(root)
        self.assertGreater(len(sources), 1000)
        self.assertEqual(check_links.missing_pages(sources, root), [])


if __name__ == "__main__":
    unittest.main()
