#include "coordinator/persistence/program_memory.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using semantics::OpClass;
using semantics::Phase;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

using State = std::map<std::string, std::string>;

constexpr char kTrain[] = "program/3/red/train";

SharedWork Products(uint64_t flops) {
  auto work = std::make_shared<scheduler::Work>();
  work->Add({OpClass::kMatmul, Phase::kForward, {flops, 20, 30}, 4});
  return work;
}

// Returns the saved form of a table's program memory.
State Kept(WorkTable* table) {
  const std::optional<WorkTable::ProgramMemory> memory =
      table->TakeProgramMemory();
  return memory.has_value() ? EncodeProgramMemory(*memory) : State();
}

// Returns the saved form for one program and one kind of device.
State KeptOfOne() {
  WorkTable table;
  table.AddGraph("red", "s", Products(1000));
  table.NoteProgram({"red", "train", Products(1000), 2});
  table.Learn("s", "cpu", {1000, 1000, 0}, 1, absl::Seconds(3));
  return Kept(&table);
}

class ProgramMemoryTest : public testing::Test {
 protected:
  // Decodes the state; `log_` holds the messages about what was left out.
  WorkTable::ProgramMemory Decode(const State& state) {
    testing::internal::CaptureStderr();
    WorkTable::ProgramMemory memory = DecodeProgramMemory(state);
    log_ = testing::internal::GetCapturedStderr();
    return memory;
  }
  static size_t Devices(const WorkTable::ProgramMemory& memory) {
    size_t count = 0;
    memory.factors.ForEach([&](absl::string_view, const auto&) { ++count; });
    return count;
  }
  // Expects that only this entry is left out, and named in the log.
  void ExpectLeftOut(const std::string& key, const std::string& value) {
    State state = KeptOfOne();
    state["program/4/blue/good"] = [] {
      WorkTable table;
      table.NoteProgram({"blue", "good", Products(1), 1});
      return Kept(&table).begin()->second;
    }();
    state["factors/good"] = state["factors/cpu"];
    state[key] = value;
    const WorkTable::ProgramMemory memory = Decode(state);
    const bool program = absl::StartsWith(key, "program/");
    EXPECT_THAT(memory.programs, SizeIs(program ? 1 : 2));
    EXPECT_EQ(Devices(memory), program ? 2u : 1u);
    EXPECT_EQ(log_.find(key), log_.rfind(key));
    EXPECT_NE(log_.find(key), std::string::npos) << log_;
  }
  void ExpectLeftOut(const v1::StoredProgram& stored) {
    ExpectLeftOut(kTrain, stored.SerializeAsString());
  }
  void ExpectLeftOut(const v1::StoredFactors& stored) {
    ExpectLeftOut("factors/cpu", stored.SerializeAsString());
  }

  std::string log_;
};

TEST_F(ProgramMemoryTest, HasOneEntryForEachProgramAndKindOfDevice) {
  EXPECT_THAT(KeptOfOne(), ElementsAre(Pair("factors/cpu", testing::_),
                                       Pair(kTrain, testing::_)));
}

TEST_F(ProgramMemoryTest, ComesBackAsItWas) {
  const State state = KeptOfOne();
  WorkTable table;
  table.Restore(Decode(state));
  EXPECT_EQ(log_, "");
  const SharedWork work = table.OfProgram("red", "train");
  ASSERT_NE(work, nullptr);
  ASSERT_THAT(work->parts(), SizeIs(1));
  const scheduler::Work::Part& part = work->parts()[0];
  EXPECT_EQ(part.op_class, OpClass::kMatmul);
  EXPECT_EQ(part.phase, Phase::kForward);
  EXPECT_EQ(part.cost.flops, 1000u);
  EXPECT_EQ(part.cost.read_bytes, 20u);
  EXPECT_EQ(part.cost.written_bytes, 30u);
  EXPECT_EQ(part.calls, 4u);
  EXPECT_NEAR(table.factors().Factor(OpClass::kMatmul, Phase::kForward, "cpu"),
              3, 1e-9);
  // None of it is written again.
  EXPECT_EQ(Kept(&table), state);
  // A session that begins does not replace the work of a complete one.
  table.NoteProgram({"red", "train", Products(1), 1});
  EXPECT_EQ(table.OfProgram("red", "train"), work);
}

TEST_F(ProgramMemoryTest, OtherEntriesOfTheStateAreNotItsOwn) {
  const WorkTable::ProgramMemory memory =
      Decode({{"key/1", "x"}, {"tenant/t", "x"}, {"programs", "x"}});
  EXPECT_THAT(memory.programs, IsEmpty());
  EXPECT_EQ(log_, "");
}

TEST_F(ProgramMemoryTest, RemovedProgramIsRemovedFromTheState) {
  WorkTable table;
  const SharedWork work = Products(1);
  for (size_t i = 0; i < WorkTable::kMaxPrograms; ++i) {
    table.NoteProgram({"red", absl::StrCat(i), work, 1});
  }
  EXPECT_THAT(Kept(&table), Contains(Key("program/3/red/0")));
  table.NoteProgram({"red", "new", work, 1});
  const State kept = Kept(&table);
  EXPECT_THAT(kept, SizeIs(WorkTable::kMaxPrograms));
  EXPECT_THAT(kept, Not(Contains(Key("program/3/red/0"))));
  EXPECT_THAT(kept, Contains(Key("program/3/red/new")));
}

TEST_F(ProgramMemoryTest, NoProgramOfOneTenantIsAnothers) {
  // Names may contain the separator of the keys.
  const std::pair<std::string, std::string> names[] = {
      {"red", "a/b"}, {"red/a", "b"}, {"3/red", "a/b"}, {"blue", "a/b"}};
  WorkTable table;
  uint64_t flops = 0;
  for (const auto& [tenant, name] : names) {
    table.NoteProgram({tenant, name, Products(++flops), 1});
  }
  const State state = Kept(&table);
  EXPECT_THAT(state, SizeIs(4));
  WorkTable after;
  after.Restore(Decode(state));
  flops = 0;
  for (const auto& [tenant, name] : names) {
    EXPECT_EQ(after.OfProgram(tenant, name)->parts()[0].cost.flops, ++flops);
  }
  EXPECT_EQ(after.OfProgram("blue", "b"), nullptr);
  // The same holds when an entry is stored under another tenant's key.
  EXPECT_THAT(
      Decode({{"program/4/blue/train", KeptOfOne().at(kTrain)}}).programs,
      IsEmpty());
  EXPECT_NE(log_.find("program/4/blue/train"), std::string::npos) << log_;
}

TEST_F(ProgramMemoryTest, LeavesOutWhatItCannotRead) {
  for (const char* value : {"", "\xff", "\x08\x01"}) {
    ExpectLeftOut(kTrain, value);
  }
  for (const char* value : {"", "\xff"}) ExpectLeftOut("factors/cpu", value);
  // An incomplete write.
  const std::string whole = KeptOfOne().at(kTrain);
  ExpectLeftOut(kTrain, whole.substr(0, whole.size() / 2));
}

TEST_F(ProgramMemoryTest, LeavesOutProgramsThatCannotBe) {
  v1::StoredProgram good;
  ASSERT_TRUE(good.ParseFromString(KeptOfOne().at(kTrain)));
  v1::StoredProgram stored = good;
  stored.set_version(2);
  ExpectLeftOut(stored);
  stored = good;
  stored.set_graphs(0);
  ExpectLeftOut(stored);
  stored.set_graphs(uint64_t{1} << 40);
  ExpectLeftOut(stored);
  stored = good;
  stored.mutable_parts(0)->set_op_class("magic");
  ExpectLeftOut(stored);
  stored = good;
  stored.mutable_parts(0)->set_phase(static_cast<v1::Phase>(99));
  ExpectLeftOut(stored);
}

TEST_F(ProgramMemoryTest, LeavesOutFactorsThatCannotBe) {
  v1::StoredFactors good;
  ASSERT_TRUE(good.ParseFromString(KeptOfOne().at("factors/cpu")));
  v1::StoredFactors stored = good;
  stored.set_version(0);
  ExpectLeftOut(stored);
  stored = good;
  stored.mutable_factors(0)->set_op_class("");
  ExpectLeftOut(stored);
  // Logarithms that are NaN, infinite or out of range.
  for (const double logarithm :
       {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e3, -1e3}) {
    stored = good;
    stored.mutable_factors(0)->set_natural_logarithm(logarithm);
    ExpectLeftOut(stored);
  }
}

}  // namespace
}  // namespace djinn::coordinator
