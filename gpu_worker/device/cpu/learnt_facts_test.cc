#include "gpu_worker/device/cpu/learnt_facts.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/patience.h"
#include "gpu_worker/device/cpu/facts_file.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Kind = LearntFacts::Kind;
using Numbers = LearntFacts::Numbers;

constexpr char kKey[] = "cpu-1234 2 threads";

LearntFacts::Name NameOf(const std::string& call, Kind kind = Kind::kChoice) {
  return LearntFacts::NameOf(kind, call);
}

TEST(LearntFactsTest, AreHandedOn) {
  LearntFacts before, after;
  before.Note(NameOf("mm"), {1, -1});
  before.Note(NameOf("mm", Kind::kProduct), {1, 1, 2, 196, 0, 3});
  before.Note(NameOf("add", Kind::kThreads), {});
  ASSERT_TRUE(after.AddText(before.ToText(kKey), kKey).ok());
  EXPECT_EQ(after.size(), 3u);
  EXPECT_EQ(after.Find(NameOf("mm")), (Numbers{1, -1}));
  EXPECT_EQ(after.Find(NameOf("mm", Kind::kProduct)),
            (Numbers{1, 1, 2, 196, 0, 3}));
  EXPECT_EQ(after.Find(NameOf("add", Kind::kThreads)), Numbers());
  EXPECT_EQ(after.Find(NameOf("add")), std::nullopt);
}

TEST(LearntFactsTest, WhatIsKnownAnywayIsNotReplaced) {
  LearntFacts before, after;
  before.Note(NameOf("mm"), {1});
  after.Note(NameOf("mm"), {2});
  ASSERT_TRUE(after.AddText(before.ToText(kKey), kKey).ok());
  EXPECT_EQ(after.Find(NameOf("mm")), Numbers{2});
}

TEST(LearntFactsTest, NothingIsTakenOfWhatIsDamaged) {
  LearntFacts before;
  before.Note(NameOf("mm"), {1, -1});
  before.Note(NameOf("bmm"), {0, 3});
  const std::string text = before.ToText(kKey);
  for (size_t at = 0; at < text.size(); ++at) {
    LearntFacts after;
    std::string other = text;
    other[at] ^= 1;
    EXPECT_FALSE(after.AddText(other, kKey).ok()) << at;
    EXPECT_FALSE(after.AddText(text.substr(0, at), kKey).ok()) << at;
    EXPECT_EQ(after.size(), 0u);
  }
  LearntFacts after;
  EXPECT_EQ(after.AddText("", kKey).message(), "it is damaged");
  EXPECT_TRUE(after.AddText(text, kKey).ok());
}

TEST(LearntFactsTest, NothingIsTakenOfAnotherProcessorOrVersion) {
  LearntFacts before, after;
  before.Note(NameOf("mm"), {1});
  EXPECT_EQ(after.AddText(before.ToText(kKey), "cpu-5678 2 threads").message(),
            "it is of another processor, or of other libraries or threads");
  // As a later version might write it: whole, but not known here.
  std::string text = before.ToText(kKey);
  text = text.substr(0, text.size() - 33);
  text.replace(text.find(" 1\n"), 3, " 2\n");
  const ContentHash hash = HashContent(text.data(), text.size());
  absl::StrAppend(&text, absl::Hex(hash.high, absl::kZeroPad16),
                  absl::Hex(hash.low, absl::kZeroPad16), "\n");
  EXPECT_EQ(after.AddText(text, kKey).message(), "it is of another version");
  EXPECT_EQ(after.size(), 0u);
}

TEST(LearntFactsTest, WhatNobodyAskedForIsForgottenFirst) {
  LearntFacts facts(/*max_facts=*/8);
  for (int i = 0; i < 8; ++i) facts.Note(NameOf(absl::StrCat(i)), {i});
  EXPECT_TRUE(facts.Find(NameOf("0")).has_value());
  facts.Note(NameOf("new"), {8});
  EXPECT_LE(facts.size(), 8u);
  EXPECT_TRUE(facts.Find(NameOf("0")).has_value());
  EXPECT_TRUE(facts.Find(NameOf("new")).has_value());
  EXPECT_FALSE(facts.Find(NameOf("1")).has_value());
  // Those that come from a file, too.
  LearntFacts small(/*max_facts=*/4);
  ASSERT_TRUE(small.AddText(facts.ToText(kKey), kKey).ok());
  EXPECT_LE(small.size(), 4u);
  EXPECT_TRUE(small.Find(NameOf("new")).has_value());
}

TEST(LearntFactsTest, NothingIsHandedOnForEver) {
  LearntFacts first;
  first.Note(NameOf("old"), {1});
  first.Note(NameOf("measured"), {1});
  std::string text = first.ToText(kKey);
  for (int process = 0; process < LearntFacts::kMaxHandings; ++process) {
    LearntFacts facts;
    ASSERT_TRUE(facts.AddText(text, kKey).ok());
    ASSERT_TRUE(facts.Find(NameOf("old")).has_value()) << process;
    // Once more, with the same outcome.
    facts.Note(NameOf("measured"), {1});
    text = facts.ToText(kKey);
  }
  LearntFacts last;
  ASSERT_TRUE(last.AddText(text, kKey).ok());
  EXPECT_FALSE(last.Find(NameOf("old")).has_value());
  EXPECT_TRUE(last.Find(NameOf("measured")).has_value());
}

class FactsFileTest : public testing::Test {
 protected:
  FactsFileTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }

  // What a process that begins now knows, of which nothing is written.
  std::shared_ptr<LearntFacts> Begin(const std::string& key = kKey) {
    facts_ = std::make_shared<LearntFacts>();
    file_ = std::make_unique<FactsFile>(path_, key, facts_, &clock_);
    return facts_;
  }
  void End() { file_.reset(); }
  std::string Text() {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  size_t Files() {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_),
                      std::filesystem::directory_iterator()));
  }

  const std::string folder_ = testing::TempDir() + "/facts";
  const std::string path_ = folder_ + "/processor_facts";
  FakeClock clock_;
  std::shared_ptr<LearntFacts> facts_;
  std::unique_ptr<FactsFile> file_;
};

TEST_F(FactsFileTest, TheNextProcessKnowsWhatTheLastOneLearnt) {
  Begin()->Note(NameOf("mm"), {1});
  End();
  EXPECT_EQ(Begin()->Find(NameOf("mm")), Numbers{1});
  // No draft is left, and others do not see it.
  EXPECT_EQ(Files(), 1u);
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(FactsFileTest, IsWrittenNowAndThen) {
  Begin()->Note(NameOf("mm"), {1});
  file_->Tick();
  clock_.Advance(FactsFile::kInterval);
  file_->Tick();
  for (Patience patience; file_->written_changes() != facts_->changes();) {
    patience.Yield();
  }
  const std::string text = Text();
  EXPECT_EQ(LearntFacts().AddText(text, kKey), absl::OkStatus());
  // Not before it is due again, and not for nothing.
  facts_->Note(NameOf("bmm"), {1});
  file_->Tick();
  EXPECT_NE(file_->written_changes(), facts_->changes());
  End();
  EXPECT_NE(Text(), text);
}

TEST_F(FactsFileTest, WhatCannotBeUsedIsReplaced) {
  std::ofstream(path_) << "something else";
  Begin()->Note(NameOf("mm"), {1});
  EXPECT_EQ(facts_->size(), 1u);
  End();
  EXPECT_EQ(Begin("another key")->size(), 0u);
  facts_->Note(NameOf("mm"), {2});
  End();
  EXPECT_EQ(Begin()->size(), 0u);
}

TEST_F(FactsFileTest, WhatIsTooLargeIsNotRead) {
  std::ofstream(path_) << std::string(FactsFile::kMaxBytes + 1, 'x');
  EXPECT_EQ(Begin()->size(), 0u);
  // As many as there may be are not too large.
  for (size_t i = 0; i < LearntFacts::kMaxFacts; ++i) {
    facts_->Note(NameOf(absl::StrCat(i)),
                 Numbers(LearntFacts::kMaxNumbers, int64_t{1} << 40));
  }
  EXPECT_EQ(facts_->size(), LearntFacts::kMaxFacts);
  End();
  EXPECT_LT(std::filesystem::file_size(path_), FactsFile::kMaxBytes);
  EXPECT_EQ(Begin()->size(), LearntFacts::kMaxFacts);
}

TEST_F(FactsFileTest, AFolderThatIsNotThereStopsNobody) {
  std::filesystem::remove_all(folder_);
  Begin()->Note(NameOf("mm"), {1});
  End();
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::filesystem::create_directory(folder_);
  // What is no file is not waited for.
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Begin()->size(), 0u);
}

}  // namespace
}  // namespace djinn::worker
