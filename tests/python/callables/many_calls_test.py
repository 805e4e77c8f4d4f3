"""djinn.compile(): a function that is called in more ways than are remembered."""

import enum

import torch

import djinn
from tests.python.remote_case import RemoteCase

# More than the combinations of values that a callable remembers.
WAYS = 1100
# More than the classes of enums that it remembers.
CLASSES = 66


class ManyCallsTest(RemoteCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.manual_seed(3)
        cls.x = torch.randn(4)
        cls.there = cls.x.to(cls.device)
        cls.compiled = djinn.compile(lambda x, number: {"sum": x + number, "number": number})
        for number in range(WAYS):
            for _ in range(3):
                cls.call(number)

    @classmethod
    def call(cls, number):
        """Returns the result, and whether the call was replayed."""
        before = cls.compiled.statistics()["replays"]
        result = cls.compiled(cls.there, number)
        return result, cls.compiled.statistics()["replays"] > before

    def check(self, number, result):
        self.assert_same(result["sum"], self.x + number)
        self.assertEqual(result["number"], number)

    def test_each_way_was_replayed_at_its_third_call(self):
        self.assertEqual(self.compiled.statistics()["replays"], WAYS)
        self.assertEqual(self.compiled.statistics()["refusal"], "")

    def test_only_the_newest_capture_of_a_form_is_kept(self):
        # Each form was captured twice, and the second captured graph replaced
        # the first one.
        self.assertLess(len(self.compiled._forms), 2 * WAYS)

    def test_the_newest_forms_are_still_replayed(self):
        # The newest forms are still known: not all are forgotten together.
        for number in (WAYS - 1, WAYS - 2, WAYS // 2):
            result, is_replay = self.call(number)
            self.assertTrue(is_replay, number)
            self.check(number, result)

    def test_the_first_form_is_forgotten_and_captured_again(self):
        for call in range(4):
            result, is_replay = self.call(0)
            self.assertEqual(is_replay, call >= 2, call)
            self.check(0, result)

    def test_classes_of_enums_are_forgotten_one_by_one(self):
        compiled = djinn.compile(lambda x, scale: x * scale.value)
        members = [enum.Enum(f"Scale{i}", {"BY": i}).BY for i in range(CLASSES)]
        for member in members:
            for _ in range(3):
                compiled(self.there, member)
        self.assertEqual(compiled.statistics()["replays"], CLASSES)
        for member in (members[-1], members[CLASSES // 2]):
            self.assert_same(compiled(self.there, member), self.x * member.value)
        self.assertEqual(compiled.statistics()["replays"], CLASSES + 2)
