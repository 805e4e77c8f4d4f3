#include "gpu_worker/device/cpu/learnt_facts.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace djinn::worker {
namespace {

constexpr absl::string_view kVersion = "djinn-learnt-facts 1";
constexpr size_t kHashDigits = 32;

std::string HashOf(absl::string_view text) {
  const ContentHash hash = HashContent(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high, hash.low);
}

bool ParseHash(absl::string_view digits, ContentHash* hash) {
  return digits.size() == kHashDigits &&
         absl::SimpleHexAtoi(digits.substr(0, kHashDigits / 2), &hash->high) &&
         absl::SimpleHexAtoi(digits.substr(kHashDigits / 2), &hash->low);
}

}  // namespace

LearntFacts::Name LearntFacts::NameOf(Kind kind, absl::string_view calls) {
  return {static_cast<char>(kind), HashContent(calls.data(), calls.size())};
}

std::optional<LearntFacts::Numbers> LearntFacts::Find(const Name& name) {
  MutexLock lock(&mu_);
  const auto found = facts_.find(name);
  if (found == facts_.end()) return std::nullopt;
  found->second.used = ++uses_;
  return found->second.numbers;
}

void LearntFacts::Note(const Name& name, Numbers numbers) {
  if (numbers.size() > kMaxNumbers) return;
  MutexLock lock(&mu_);
  Fact& fact = facts_[name];
  fact.used = ++uses_;
  fact.handings = 0;
  if (fact.numbers == numbers) return;
  fact.numbers = std::move(numbers);
  ++changes_;
  MakeRoom();
}

void LearntFacts::MakeRoom() {
  if (facts_.size() <= max_facts_) return;
  // A quarter at once: it is looked for among all.
  std::vector<uint64_t> used;
  used.reserve(facts_.size());
  for (const auto& [name, fact] : facts_) used.push_back(fact.used);
  const auto kept =
      static_cast<ptrdiff_t>(facts_.size() - max_facts_ + max_facts_ / 4);
  std::nth_element(used.begin(), used.begin() + (kept - 1), used.end());
  const uint64_t last = used[static_cast<size_t>(kept - 1)];
  absl::erase_if(
      facts_, [last](const auto& entry) { return entry.second.used <= last; });
}

std::string LearntFacts::ToText(absl::string_view key) const {
  std::string text = absl::StrCat(kVersion, "\n", key, "\n");
  std::vector<std::pair<uint64_t, std::string>> lines;
  {
    MutexLock lock(&mu_);
    for (const auto& [name, fact] : facts_) {
      lines.emplace_back(
          fact.used,
          absl::StrFormat("%c %016x%016x %d %s\n", name.first, name.second.high,
                          name.second.low, fact.handings,
                          absl::StrJoin(fact.numbers, ",")));
    }
  }
  // What was used last comes last, and so it will be.
  std::sort(lines.begin(), lines.end());
  for (const auto& [used, line] : lines) text += line;
  return absl::StrCat(text, HashOf(text), "\n");
}

absl::Status LearntFacts::AddText(absl::string_view text,
                                  absl::string_view key) {
  constexpr size_t kEnd = kHashDigits + 1;
  const absl::Status damaged = absl::DataLossError("it is damaged");
  if (text.size() < kEnd || text.back() != '\n') return damaged;
  const absl::string_view body = text.substr(0, text.size() - kEnd);
  if (text.substr(body.size(), kHashDigits) != HashOf(body)) return damaged;
  std::vector<absl::string_view> lines = absl::StrSplit(body, '\n');
  if (lines.size() < 3 || !lines.back().empty()) return damaged;
  lines.pop_back();
  if (lines[0] != kVersion) {
    return absl::FailedPreconditionError("it is of another version");
  }
  if (lines[1] != key) {
    return absl::FailedPreconditionError(
        "it is of another processor, or of other libraries or threads");
  }
  std::vector<std::pair<Name, Fact>> facts;
  for (size_t i = 2; i < lines.size(); ++i) {
    const std::vector<absl::string_view> parts = absl::StrSplit(lines[i], ' ');
    Name name;
    Fact fact;
    if (parts.size() != 4 || parts[0].size() != 1 ||
        !ParseHash(parts[1], &name.second) ||
        !absl::SimpleAtoi(parts[2], &fact.handings) || fact.handings < 0) {
      return damaged;
    }
    name.first = parts[0][0];
    for (const absl::string_view number :
         absl::StrSplit(parts[3], ',', absl::SkipEmpty())) {
      int64_t value = 0;
      if (!absl::SimpleAtoi(number, &value)) return damaged;
      fact.numbers.push_back(value);
    }
    if (fact.numbers.size() > kMaxNumbers) return damaged;
    if (++fact.handings > kMaxHandings) continue;
    facts.emplace_back(name, std::move(fact));
  }
  MutexLock lock(&mu_);
  for (auto& [name, fact] : facts) {
    fact.used = ++uses_;
    facts_.try_emplace(name, std::move(fact));
  }
  // Also that they were handed on once more.
  if (!facts.empty()) ++changes_;
  MakeRoom();
  return absl::OkStatus();
}

uint64_t LearntFacts::changes() const {
  MutexLock lock(&mu_);
  return changes_;
}

size_t LearntFacts::size() const {
  MutexLock lock(&mu_);
  return facts_.size();
}

}  // namespace djinn::worker
