"""The manifests are what the chart renders."""

import unittest

from deploy.kubernetes import render


class RenderTest(unittest.TestCase):

    def test_manifests_are_current(self):
        for name in render.NAMES:
            with self.subTest(name), open(render.path(name), encoding="utf-8") as file:
                self.assertEqual(file.read(), render.text(name), "run ./djinn chart")


if __name__ == "__main__":
    unittest.main()
