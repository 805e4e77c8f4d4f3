// Tests how a run's message is bound to storages, and which messages contradict
// the plan or what is remembered.
#include "gpu_worker/plan/bound_run.h"

#include <functional>
#include <vector>

#include "common/base/error.h"
#include "gpu_worker/plan/run_fixture.h"

namespace djinn::worker {
namespace {

using Change = std::function<void(v1::Run*)>;

class BoundRunTest : public RunFixture {
 protected:
  // Expects that the run is refused after each of the changes.
  void ExpectRefused(const Plan& plan, const v1::Run& good,
                     const std::vector<Change>& changes,
                     absl::Span<const RememberedRun> remembered = {}) {
    ASSERT_TRUE(Check(plan, good, remembered).ok());
    for (size_t i = 0; i < changes.size(); ++i) {
      v1::Run run = good;
      changes[i](&run);
      EXPECT_EQ(ErrorReason(Check(plan, run, remembered)), "PROTOCOL_VIOLATION")
          << "change " << i;
    }
  }
};

TEST_F(BoundRunTest, ContradictionsAreViolationsAndChangeNothing) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  s.AddInPlace(x, y, 2);
  const auto plan = Admit(s);
  const uint64_t a = Tensor({1, 2});
  const uint64_t b = Tensor({3, 4});
  const v1::Run good = MakeRun(*plan, {a, b});
  const uint64_t g = SeededGenerator(1);
  const std::vector<Change> kRefused = {
      [](v1::Run* r) { r->mutable_bindings()->RemoveLast(); },
      [](v1::Run* r) { r->mutable_bindings(0)->set_storage(99); },
      [](v1::Run* r) { r->mutable_bindings(0)->set_storage(0); },
      [b](v1::Run* r) { r->mutable_bindings(0)->set_storage(b); },
      [g](v1::Run* r) { r->mutable_bindings(0)->set_storage(g); },
      [](v1::Run* r) { r->mutable_bindings(0)->set_base_version(2); },
      [](v1::Run* r) { r->mutable_bindings(0)->set_base_version(0); },
      [](v1::Run* r) { r->mutable_bindings(0)->set_writes(2); },
      [](v1::Run* r) { r->mutable_bindings(1)->set_writes(1); },
      [](v1::Run* r) { r->mutable_bindings(1)->set_reads(false); },
      [](v1::Run* r) { r->add_float_holes(1); },
      [](v1::Run* r) { r->add_scalar_tensors("1234"); },
      [](v1::Run* r) { r->add_final_slots(2); },
      [](v1::Run* r) { r->set_reply_metadata(true); },
      [](v1::Run* r) {
        r->mutable_switches()->set_cuda_conv(v1::FLOAT32_PRECISION_BF16);
      },
  };
  ExpectRefused(*plan, good, kRefused);
}

TEST_F(BoundRunTest, RepeatBindsAsBeforeWhatItLeavesOut) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  const uint32_t c = s.Created(8);
  s.AddInPlace(c, x, 2);
  s.AddInPlace(c, y, 2);
  s.AddInPlace(y, x, 2);
  const auto plan = Admit(s);
  const uint64_t a = Tensor({1, 2});
  const uint64_t b = Tensor({3, 4});
  const v1::Run first = MakeRun(*plan, {a, b});
  Execute(*plan, first);
  RememberedRun last;
  last.storages = {a, b, first.bindings(2).storage()};

  // The repeat replaces the first operand and keeps the second, which has
  // changed since.
  const uint64_t other = Tensor({10, 20});
  v1::Run repeat;
  repeat.mutable_repeat()->add_slot_gaps(x);
  repeat.mutable_repeat()->set_first_new_storage(next_id_++);
  repeat.mutable_repeat()->set_version_sum(storages_.Find(b)->version);
  repeat.mutable_repeat()->add_storages(static_cast<int64_t>(other));
  ASSERT_EQ(storages_.Find(other)->version, 1u);
  const std::vector<Change> kRefused = {
      [](v1::Run* r) { r->mutable_repeat()->set_first_new_storage(0); },
      [a](v1::Run* r) { r->mutable_repeat()->set_first_new_storage(a); },
      [](v1::Run* r) { r->mutable_repeat()->set_version_sum(1); },
      [](v1::Run* r) { r->mutable_repeat()->set_slot_gaps(0, 3); },
      [](v1::Run* r) { r->mutable_repeat()->add_slot_gaps(0); },
      [b](v1::Run* r) {
        r->mutable_repeat()->set_storages(0, static_cast<int64_t>(b));
      },
      [](v1::Run* r) { r->mutable_repeat()->add_base_versions(9); },
      [](v1::Run* r) { r->add_float_holes(1); },
      [](v1::Run* r) { r->mutable_repeat()->add_float_gaps(0); },
      [](v1::Run* r) {
        r->mutable_repeat()->set_same_final_slots(true);
        r->add_final_slots(0);
      },
      [](v1::Run* r) { r->mutable_repeat()->set_place(1); },
  };
  ExpectRefused(*plan, repeat, kRefused, {&last, 1});
  EXPECT_EQ(ErrorReason(Check(*plan, repeat)), "PROTOCOL_VIOLATION")
      << "nothing is remembered";

  ASSERT_TRUE(Check(*plan, repeat, {&last, 1}).ok());
  ExecuteBound(*plan);
  EXPECT_EQ(Values(repeat.repeat().first_new_storage()), (Floats{14, 26}));
  EXPECT_EQ(Values(b), (Floats{14, 26}));
  EXPECT_EQ(Values(a), (Floats{1, 2}));
}

TEST_F(BoundRunTest, RepeatKeepsTheFloatsThatItLeavesOut) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.FillInPlace(x, 1, 0);
  s.FillInPlace(x, 1, 1);
  s.FillInPlace(x, 1, 2);
  const auto plan = Admit(s);
  const uint64_t id = Tensor({0, 0, 0});
  RememberedRun last;
  last.storages = {id};
  last.floats = {1, 2, 3};
  v1::Run repeat;
  repeat.mutable_repeat()->set_version_sum(1);
  repeat.mutable_repeat()->add_float_gaps(0);
  repeat.mutable_repeat()->add_float_gaps(1);
  repeat.add_float_holes(7);
  repeat.add_float_holes(9);
  ASSERT_TRUE(Check(*plan, repeat, {&last, 1}).ok());
  EXPECT_EQ(bound_.floats, (std::vector<double>{7, 2, 9}));

  repeat.mutable_repeat()->set_float_gaps(1, 2);
  EXPECT_EQ(ErrorReason(Check(*plan, repeat, {&last, 1})),
            "PROTOCOL_VIOLATION");
  repeat.mutable_repeat()->set_float_gaps(1, UINT32_MAX);
  EXPECT_EQ(ErrorReason(Check(*plan, repeat, {&last, 1})),
            "PROTOCOL_VIOLATION");
}

}  // namespace
}  // namespace djinn::worker
