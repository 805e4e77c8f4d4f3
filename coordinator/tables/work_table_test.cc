#include "coordinator/tables/work_table.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using semantics::OpClass;
using semantics::Phase;

SharedWork Products(uint64_t flops) {
  auto work = std::make_shared<scheduler::Work>();
  work->Add({OpClass::kMatmul, Phase::kForward, {flops, 0, 0}, 1});
  return work;
}

TEST(TenantMapTest, ForgetsWhatWasToldLeastRecently) {
  TenantMap<int> map(2);
  map.Put("red", "a", 1);
  map.Put("red", "b", 2);
  map.Put("red", "a", 3);
  EXPECT_EQ(*map.Find("a"), 3);
  map.Put("red", "c", 4);
  EXPECT_EQ(map.Find("b"), nullptr);
  EXPECT_EQ(*map.Find("a"), 3);
  EXPECT_EQ(*map.Find("c"), 4);
  EXPECT_EQ(map.size(), 2u);
}

TEST(TenantMapTest, EntryHeldByAnotherTenantStays) {
  TenantMap<int> map(4);
  map.Put("red", "shared", 1);
  map.Put("blue", "shared", 1);
  for (int i = 0; i < 10; ++i) map.Put("red", absl::StrCat(i), i);
  EXPECT_EQ(map.size(), 4u);
  EXPECT_NE(map.Find("shared"), nullptr);
  // The entry is removed once the second holder has added others, too.
  for (int i = 20; i < 30; ++i) map.Put("blue", absl::StrCat(i), i);
  EXPECT_EQ(map.Find("shared"), nullptr);
  EXPECT_EQ(map.size(), 4u);
}

TEST(TenantMapTest, IsBoundInBytes) {
  TenantMap<int> map(10, 100);
  map.Put("blue", "mine", 1, 30);
  map.Put("red", "a", 1, 40);
  map.Put("red", "b", 2, 30);
  EXPECT_EQ(map.size(), 3u);
  // The entry has grown.
  map.Put("red", "b", 3, 40);
  EXPECT_EQ(map.Find("a"), nullptr);
  EXPECT_EQ(*map.Find("b"), 3);
  // Removed entries no longer count.
  map.Put("red", "c", 4, 30);
  EXPECT_EQ(map.size(), 3u);
  EXPECT_NE(map.Find("mine"), nullptr);
}

TEST(WorkTableTest, ATenantDoesNotCrowdOutWhatIsKnownOfAnother) {
  WorkTable table;
  const SharedWork mine = Products(1000);
  table.AddGraph("blue", "mine", mine);
  table.NoteProgram({"blue", "train", mine, 1});
  const SharedWork junk = Products(1);
  for (size_t i = 0; i < WorkTable::kMaxGraphs + 10; ++i) {
    table.AddGraph("red", absl::StrCat(i), junk);
  }
  for (size_t i = 0; i < WorkTable::kMaxPrograms + 10; ++i) {
    table.NoteProgram({"red", absl::StrCat(i), junk, 1});
  }
  EXPECT_EQ(table.OfGraph("mine"), mine);
  EXPECT_EQ(table.OfProgram("blue", "train"), mine);
  EXPECT_EQ(table.OfGraph("0"), nullptr);
  EXPECT_EQ(table.OfProgram("red", "0"), nullptr);
}

TEST(WorkTableTest, EachTenantHasTheWorkThatItReported) {
  WorkTable table;
  const SharedWork red = Products(1000);
  EXPECT_TRUE(table.AddGraph("red", "s", red));
  EXPECT_EQ(table.OfGraph("s"), red);
  EXPECT_EQ(table.OfGraphTo("red", "s"), red);
  EXPECT_EQ(table.OfGraphTo("blue", "s"), nullptr);
  EXPECT_EQ(table.OfGraphTo("red", "t"), nullptr);
  EXPECT_EQ(table.FindGraph("t"), nullptr);
  // The tenants agree.
  const SharedWork blue = Products(1000);
  const SharedWork shown = std::make_shared<const scheduler::Work>();
  EXPECT_TRUE(table.AddGraph("blue", "s", blue, shown));
  EXPECT_FALSE(table.AddGraph("blue", "s", blue, shown));
  EXPECT_EQ(table.OfGraphTo("blue", "s"), blue);
  EXPECT_EQ(table.OfGraphTo("red", "s"), red);
  EXPECT_EQ(table.OfGraph("s")->phase(), Phase::kForward);
  // The tenants disagree: for all others, the graph is what it shows by itself.
  auto training = std::make_shared<scheduler::Work>();
  training->Add({OpClass::kMatmul, Phase::kTraining, {1000, 0, 0}, 1});
  EXPECT_TRUE(table.AddGraph("blue", "s", training));
  EXPECT_EQ(table.OfGraphTo("blue", "s"), training);
  EXPECT_EQ(table.OfGraphTo("red", "s"), red);
  EXPECT_EQ(table.OfGraph("s"), shown);
  // Another cache is news, too.
  auto keeps = std::make_shared<scheduler::Work>(*red);
  keeps->SetCacheSlots({1});
  EXPECT_TRUE(table.AddGraph("red", "s", keeps));
}

TEST(WorkTableTest, ASharedGraphCountsForEachTenant) {
  GraphWorks works(4);
  const SharedWork work = Products(1);
  works.Put("blue", "shared", work, nullptr);
  works.Put("red", "shared", work, nullptr);
  works.Put("blue", "mine", work, nullptr);
  for (int i = 0; i < 10; ++i) {
    works.Put("red", absl::StrCat(i), work, nullptr);
  }
  // A tenant's release does not affect the other's hold.
  ASSERT_NE(works.Find("shared"), nullptr);
  EXPECT_EQ(works.Find("shared")->own.size(), 1u);
  EXPECT_TRUE(works.Find("shared")->own.contains("blue"));
  EXPECT_NE(works.Find("mine"), nullptr);
  EXPECT_EQ(works.Find("7"), nullptr);
  EXPECT_NE(works.Find("8"), nullptr);
  EXPECT_NE(works.Find("9"), nullptr);
}

TEST(WorkTableTest, ASessionThatBeginsDoesNotHideAWholeOne) {
  WorkTable table;
  const SharedWork whole = Products(1000);
  table.NoteProgram({"red", "train", whole, 3});
  table.NoteProgram({"red", "train", Products(1), 1});
  EXPECT_EQ(table.OfProgram("red", "train"), whole);
  const SharedWork newer = Products(2000);
  table.NoteProgram({"red", "train", newer, 3});
  EXPECT_EQ(table.OfProgram("red", "train"), newer);
}

TEST(WorkTableTest, ASessionThatEndedWithLessIsTheLastOne) {
  WorkTable table;
  table.NoteProgram({"red", "train", Products(1000), 3});
  const SharedWork less = Products(1);
  table.NoteEnded({"red", "train", less, 1});
  EXPECT_EQ(table.OfProgram("red", "train"), less);
}

TEST(WorkTableTest, ProgramsAreOfATenantAndHaveNames) {
  WorkTable table;
  table.NoteProgram({"red", "", Products(1), 1});
  table.NoteProgram({"red", "train", Products(1), 1});
  EXPECT_EQ(table.OfProgram("red", ""), nullptr);
  EXPECT_EQ(table.OfProgram("blue", "train"), nullptr);
  EXPECT_EQ(table.OfProgram("redt", "rain"), nullptr);
}

TEST(WorkTableTest, LearnsFromWhatIsMostOfTheTime) {
  WorkTable table;
  auto work = std::make_shared<scheduler::Work>();
  work->Add({OpClass::kMatmul, Phase::kForward, {950, 0, 0}, 1});
  work->Add({OpClass::kLayout, Phase::kForward, {50, 0, 0}, 1});
  table.AddGraph("red", "s", work);
  const semantics::DeviceSpeed speed = {1000, 1000, 0};
  // The roofline predicts one second; the run took three.
  table.Learn("s", "cpu", speed, 10, absl::Seconds(30));
  EXPECT_NEAR(table.factors().Factor(OpClass::kMatmul, Phase::kForward, "cpu"),
              3, 1e-9);
  EXPECT_EQ(table.factors().Factor(OpClass::kLayout, Phase::kForward, "cpu"),
            1);
  EXPECT_EQ(table.factors().Factor(OpClass::kMatmul, Phase::kForward, "cuda"),
            1);
  // These measurements teach nothing.
  table.Learn("unknown", "cpu", speed, 1, absl::Hours(1));
  table.Learn("s", "cpu", speed, 0, absl::Hours(1));
  table.Learn("s", "cpu", {}, 1, absl::Hours(1));
  EXPECT_NEAR(table.factors().Factor(OpClass::kMatmul, Phase::kForward, "cpu"),
              3, 1e-9);
}

TEST(WorkTableTest, HandsOutWhatItLearnedWhenThatHasChanged) {
  WorkTable table;
  EXPECT_FALSE(table.TakeProgramMemory().has_value());
  table.AddGraph("red", "s", Products(1000));
  EXPECT_FALSE(table.TakeProgramMemory().has_value());
  table.NoteProgram({"red", "train", Products(1000), 1});
  EXPECT_EQ(table.TakeProgramMemory()->programs.size(), 1u);
  EXPECT_FALSE(table.TakeProgramMemory().has_value());
  table.Learn("s", "cpu", {1000, 1000, 0}, 1, absl::Seconds(3));
  std::optional<WorkTable::ProgramMemory> memory = table.TakeProgramMemory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_FALSE(table.TakeProgramMemory().has_value());
  WorkTable after;
  after.Restore(*std::move(memory));
  EXPECT_EQ(after.OfProgram("red", "train"), table.OfProgram("red", "train"));
  EXPECT_EQ(after.factors().Factor(OpClass::kMatmul, Phase::kForward, "cpu"),
            table.factors().Factor(OpClass::kMatmul, Phase::kForward, "cpu"));
  // Another store may ask for it.
  EXPECT_TRUE(after.TakeProgramMemory().has_value());
}

}  // namespace
}  // namespace djinn::coordinator
