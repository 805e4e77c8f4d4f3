// Compares what a lineage keeps of random programs with what is needed.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "client_lib/session/lineage/lineage.h"
#include "client_lib/session/lineage/lineage_testing.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// A random program that is played on a lineage and, beside it, kept whole.
class Program {
 public:
  explicit Program(uint64_t seed, bool anchors = false,
                   uint64_t budget = kAmple)
      : random_(seed), anchors_(anchors), lineage_(budget) {}
  ~Program() {
    for (const Lineage::Value& read : reads_) lineage_.Release(read.producer);
  }

  void Step() {
    switch (Draw(10)) {
      case 0:
      case 1:
      case 2:
        if (!live_.empty()) return Free(PickLive());
        [[fallthrough]];
      case 3:
      case 4:
        return Execute();
      case 5:
        return Answer();
      case 6:
        if (anchors_) return Draw(2) == 0 ? BeginReads() : EndReads();
        [[fallthrough]];
      default:
        return Send();
    }
  }

  // Computes the kept set from the whole history.
  std::set<uint64_t> BruteForce() const {
    std::vector<std::set<size_t>> operands(history_.size());
    std::map<uint64_t, size_t> producer;
    for (size_t i = 0; i < history_.size(); ++i) {
      const Sent& sent = history_[i];
      for (const Lineage::Use& use : sent.uses) {
        // An anchor needs nothing.
        if (use.reads && !anchored_.contains({use.storage, use.base_version})) {
          operands[i].insert(producer.at(use.storage));
        }
      }
      for (const Lineage::Use& use : sent.uses) {
        if (use.writes > 0) producer[use.storage] = i;
      }
    }
    std::vector<size_t> found;
    for (const auto& [storage, version] : live_) {
      if (anchored_.contains({storage, version})) continue;
      found.push_back(producer.at(storage));
    }
    for (const Lineage::Value& read : reads_) {
      for (size_t i = 0; i < history_.size(); ++i) {
        for (const Lineage::Use& use : history_[i].uses) {
          if (use.storage == read.storage && use.writes > 0 &&
              use.base_version + use.writes == read.version) {
            found.push_back(i);
          }
        }
      }
    }
    for (size_t i = 0; i < history_.size(); ++i) {
      if (!history_[i].executed || history_[i].awaits_answer) {
        found.push_back(i);
      }
    }
    std::set<uint64_t> needed;
    while (!found.empty()) {
      const size_t i = found.back();
      found.pop_back();
      if (!needed.insert(i + 1).second) continue;
      found.insert(found.end(), operands[i].begin(), operands[i].end());
    }
    return needed;
  }

  // Returns the numbers of the kept messages.
  std::set<uint64_t> KeptMessages() {
    std::set<uint64_t> sequences;
    for (const Lineage::Node& node : lineage_.nodes()) {
      if (!node.anchor) sequences.insert(node.sequence);
    }
    return sequences;
  }

  // Computes the live values from what is kept.
  std::map<uint64_t, uint64_t> KeptValues() {
    std::map<uint64_t, uint64_t> values;
    for (const Lineage::Node& node : lineage_.nodes()) {
      if (node.incomplete) {
        for (const Lineage::Use& use : history_[node.sequence - 1].uses) {
          if (use.writes > 0) values.erase(use.storage);
        }
      } else if (node.anchor) {
        const Lineage::Use& use = node.uses.front();
        values[use.storage] = ValuesAfter(node.sequence, All()).at(use.storage);
      } else {
        Compute(node.sequence, &values);
      }
    }
    return OfLive(std::move(values));
  }

  // Computes the live values with the given messages only.
  std::map<uint64_t, uint64_t> Values(
      const std::set<uint64_t>& sequences) const {
    return OfLive(ValuesAfter(history_.size(), sequences));
  }

  std::set<uint64_t> All() const {
    std::set<uint64_t> all;
    for (size_t i = 1; i <= history_.size(); ++i) all.insert(i);
    return all;
  }

  Lineage& lineage() { return lineage_; }
  size_t anchored() const { return anchored_.size(); }

 private:
  struct Sent {
    std::vector<Lineage::Use> uses;
    bool executed = false;
    bool awaits_answer = false;
  };

  void Compute(uint64_t sequence, std::map<uint64_t, uint64_t>* values) const {
    uint64_t mixed = sequence;
    for (const Lineage::Use& use : history_[sequence - 1].uses) {
      if (!use.reads) continue;
      mixed = mixed * 0x9E3779B97F4A7C15u + values->at(use.storage);
    }
    for (const Lineage::Use& use : history_[sequence - 1].uses) {
      if (use.writes > 0) (*values)[use.storage] = mixed + use.storage;
    }
  }

  std::map<uint64_t, uint64_t> ValuesAfter(
      uint64_t last, const std::set<uint64_t>& sequences) const {
    std::map<uint64_t, uint64_t> values;
    for (const uint64_t sequence : sequences) {
      if (sequence <= last) Compute(sequence, &values);
    }
    return values;
  }

  std::map<uint64_t, uint64_t> OfLive(
      std::map<uint64_t, uint64_t> values) const {
    std::erase_if(values, [&](const auto& value) {
      return !live_.contains(value.first);
    });
    return values;
  }

  uint64_t Draw(uint64_t bound) { return random_() % bound; }
  uint64_t PickLive() {
    auto picked = live_.begin();
    std::advance(picked, Draw(live_.size()));
    return picked->first;
  }

  void Send() {
    Sent sent;
    std::set<uint64_t> used;
    for (uint64_t i = Draw(4); i > 0 && !live_.empty(); --i) {
      const uint64_t storage = PickLive();
      if (!used.insert(storage).second) continue;
      const uint64_t version = live_.at(storage);
      switch (Draw(3)) {
        case 0:
          sent.uses.push_back(Updates(storage, version));
          break;
        case 1:
          sent.uses.push_back(Overwrites(storage, version));
          break;
        default:
          sent.uses.push_back(Reads(storage, version));
      }
    }
    for (uint64_t i = Draw(3); i > 0; --i) {
      sent.uses.push_back(Creates(next_storage_++));
    }
    for (const Lineage::Use& use : sent.uses) {
      live_[use.storage] = use.base_version + use.writes;
    }
    std::vector<uint64_t> freed;
    for (const Lineage::Use& use : sent.uses) {
      if (Draw(4) == 0) freed.push_back(use.storage);
    }
    sent.awaits_answer = Draw(4) == 0;
    history_.push_back(sent);
    lineage_.Add(history_.size(), MessageOf(sent.uses, sent.awaits_answer),
                 freed);
    for (const uint64_t storage : freed) live_.erase(storage);
  }

  void Free(uint64_t storage) {
    live_.erase(storage);
    lineage_.Free({storage});
  }

  void Execute() {
    const uint64_t most = history_.size() - executed_;
    for (uint64_t i = Draw(most + 1); i > 0; --i) {
      history_[executed_++].executed = true;
    }
    lineage_.Executed(executed_);
  }

  void Answer() {
    // Answers may arrive in any order.
    const uint64_t from = Draw(history_.size() + 1);
    for (uint64_t i = from; i < history_.size() && i < from + 10; ++i) {
      history_[i].awaits_answer = false;
      lineage_.Answered(i + 1);
    }
  }

  // Begins to read some values, at one point of the order.
  void BeginReads() {
    if (!reads_.empty()) return;
    for (const auto& [storage, version] : live_) {
      if (Draw(3) == 0) continue;
      const Lineage::Value value = lineage_.Find(storage);
      ASSERT_EQ(value.version, version);
      if (!value.WorthReading()) continue;
      Lineage::Hold(value.producer);
      reads_.push_back(value);
    }
  }

  // The values that were read arrive.
  void EndReads() {
    // By then the worker has executed what produced them.
    while (executed_ < history_.size()) history_[executed_++].executed = true;
    lineage_.Executed(executed_);
    const std::vector<Lineage::Value> reads = std::exchange(reads_, {});
    // They arrive in two parts, in any order.
    std::vector<Lineage::Anchored> values[2];
    for (const Lineage::Value& read : reads) {
      values[Draw(2)].push_back({read, std::make_unique<TestPayload>(), 1});
      anchored_.insert({read.storage, read.version});
    }
    for (auto& part : values) lineage_.Anchor(std::move(part));
    for (const Lineage::Value& read : reads) lineage_.Release(read.producer);
  }

  std::mt19937_64 random_;
  const bool anchors_;
  Lineage lineage_;
  std::vector<Lineage::Value> reads_;                 // held
  std::set<std::pair<uint64_t, uint64_t>> anchored_;  // (id, version)
  std::vector<Sent> history_;
  uint64_t executed_ = 0;
  uint64_t next_storage_ = 1;
  std::map<uint64_t, uint64_t> live_;  // id → version
};

TEST(LineageTest, RandomProgramsKeepTheMinimalSetWhichComputesEveryLiveValue) {
  uint64_t kept = 0;
  uint64_t sent = 0;
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    Program program(seed);
    for (int step = 0; step < 60; ++step) {
      program.Step();
      if (step % 20 != 19) continue;
      const std::vector<uint64_t> sequences = Kept(program.lineage());
      const std::set<uint64_t> as_set(sequences.begin(), sequences.end());
      ASSERT_TRUE(std::is_sorted(sequences.begin(), sequences.end()));
      ASSERT_EQ(as_set, program.BruteForce()) << "seed " << seed;
      ASSERT_EQ(program.Values(as_set), program.Values(program.All()))
          << "seed " << seed;
      ASSERT_TRUE(program.lineage().complete());
      kept += as_set.size();
      sent += program.All().size();
    }
  }
  // The programs must leave something to forget.
  EXPECT_LT(kept * 3, sent * 2);
}

TEST(LineageTest, RandomProgramsWithAnchorsKeepTheMinimalSet) {
  uint64_t anchored = 0;
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    Program program(seed, /*anchors=*/true);
    for (int step = 0; step < 100; ++step) {
      program.Step();
      if (step % 20 != 19) continue;
      const std::vector<uint64_t> sequences = Kept(program.lineage());
      ASSERT_TRUE(std::is_sorted(sequences.begin(), sequences.end()));
      ASSERT_EQ(program.KeptMessages(), program.BruteForce())
          << "seed " << seed;
      ASSERT_EQ(program.KeptValues(), program.Values(program.All()))
          << "seed " << seed;
      ASSERT_TRUE(program.lineage().complete());
    }
    anchored += program.anchored();
  }
  EXPECT_GT(anchored, 2000);
}

TEST(LineageTest, RandomProgramsStayWithinASmallBudget) {
  uint64_t complete = 0;
  uint64_t incomplete = 0;
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    // Between a single message and most of what such a program keeps.
    const uint64_t budget = 300 * (1 + seed % 8);
    Program program(seed, /*anchors=*/seed % 2 == 0, budget);
    for (int step = 0; step < 60; ++step) {
      program.Step();
      const Lineage& lineage = program.lineage();
      ASSERT_LE(lineage.bytes(), budget) << "seed " << seed << " step " << step;
      if (step % 20 != 19) continue;
      // Each value that it still keeps is right, as with an ample budget.
      const std::map<uint64_t, uint64_t> right = program.Values(program.All());
      for (const auto& [storage, value] : program.KeptValues()) {
        ASSERT_EQ(value, right.at(storage)) << "seed " << seed;
        ++complete;
      }
      incomplete += lineage.incomplete_storages();
      ASSERT_EQ(program.KeptValues().size() + lineage.incomplete_storages(),
                lineage.Values().size())
          << "seed " << seed;
    }
  }
  EXPECT_GT(complete, 20'000);
  EXPECT_GT(incomplete, 10'000);
}

}  // namespace
}  // namespace djinn
