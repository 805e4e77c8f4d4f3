#include "client_lib/session/stream/size_families.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/recording/recording.h"

namespace djinn {
namespace {

// These bytes mark a family's name. In a key, they would be the number of
// calls; no graph has so many, so no key equals a name.
constexpr absl::string_view kMark("\xff\xff\xff\xff", 4);

// Limit on families of calls with the same operators. It suffices for programs
// whose loops grow in several ways.
constexpr size_t kMaxFamilies = 8;
// Limit on keys that may start a family.
constexpr size_t kMaxAlone = 3;

int64_t IntegerAt(absl::string_view key, size_t position) {
  int64_t value;
  std::memcpy(&value, key.data() + position, sizeof(value));
  return value;
}

// Returns `to` - `from`, or nothing if the difference or its negation
// overflows.
std::optional<int64_t> Growth(int64_t from, int64_t to) {
  int64_t growth;
  if (__builtin_sub_overflow(to, from, &growth) ||
      growth == std::numeric_limits<int64_t>::min()) {
    return std::nullopt;
  }
  return growth;
}

// Returns how much an integer grows from size 0 to this size. Returns nothing
// if this overflows.
std::optional<int64_t> DistanceAt(int64_t size, int64_t slope) {
  int64_t distance;
  if (__builtin_mul_overflow(slope, size, &distance) ||
      distance == std::numeric_limits<int64_t>::min()) {
    return std::nullopt;
  }
  return distance;
}

bool EqualBetween(absl::string_view a, absl::string_view b, size_t begin,
                  size_t end) {
  return std::memcmp(a.data() + begin, b.data() + begin, end - begin) == 0;
}

}  // namespace

size_t SizeFamilies::Family::bytes() const {
  // The hole holds as much again for each integer.
  return name.size() + varying.size() * 2 * sizeof(Varying);
}

absl::string_view SizeFamilies::Family::base() const {
  return absl::string_view(name).substr(kMark.size(), key_bytes);
}

std::optional<int64_t> SizeFamilies::Family::SizeOf(
    absl::string_view key) const {
  const absl::string_view at_zero = base();
  if (key.size() != at_zero.size()) return std::nullopt;
  const Varying& first = varying.front();
  const std::optional<int64_t> growth = Growth(
      IntegerAt(at_zero, first.position), IntegerAt(key, first.position));
  if (!growth.has_value() || *growth % first.slope != 0) return std::nullopt;
  const int64_t size = *growth / first.slope;
  size_t begin = 0;
  for (const Varying& integer : varying) {
    const std::optional<int64_t> distance = DistanceAt(size, integer.slope);
    int64_t expected;
    if (!EqualBetween(key, at_zero, begin, integer.position) ||
        !distance.has_value() ||
        __builtin_add_overflow(IntegerAt(at_zero, integer.position), *distance,
                               &expected) ||
        IntegerAt(key, integer.position) != expected) {
      return std::nullopt;
    }
    begin = integer.position + sizeof(int64_t);
  }
  if (!EqualBetween(key, at_zero, begin, key.size())) return std::nullopt;
  return size;
}

std::unique_ptr<SizeFamilies::Family> SizeFamilies::MakeFamily(
    absl::string_view first, absl::string_view second) {
  auto family = std::make_unique<Family>();
  const std::vector<uint32_t> positions = FindKeyIntegers(first);
  int64_t step = 0;
  size_t begin = 0;
  for (uint32_t i = 0; i < positions.size(); ++i) {
    // The bytes between the integers must be equal; otherwise the positions of
    // integers do not correspond.
    if (!EqualBetween(first, second, begin, positions[i])) return nullptr;
    begin = positions[i] + sizeof(int64_t);
    const std::optional<int64_t> growth =
        Growth(IntegerAt(first, positions[i]), IntegerAt(second, positions[i]));
    if (!growth.has_value()) return nullptr;
    if (*growth == 0) continue;
    family->varying.push_back({positions[i], *growth});
    family->hole.integers.push_back(i);
    step = std::gcd(step, *growth);
  }
  if (step == 0 || !EqualBetween(first, second, begin, first.size())) {
    return nullptr;
  }
  family->name = absl::StrCat(kMark, first);
  family->key_bytes = first.size();
  for (Varying& integer : family->varying) {
    integer.slope /= step;
    family->hole.slopes.push_back(integer.slope);
    absl::StrAppend(&family->name, integer.position, ":", integer.slope, ";");
  }
  return family;
}

std::unique_ptr<SizeFamilies::Family> SizeFamilies::FindLine(
    const Group& group, absl::string_view key) {
  for (size_t second = group.alone.size(); second-- > 1;) {
    for (size_t first = second; first-- > 0;) {
      std::unique_ptr<Family> family =
          MakeFamily(group.alone[first], group.alone[second]);
      if (family != nullptr && family->SizeOf(key).has_value()) return family;
    }
  }
  return nullptr;
}

std::optional<SizeFamilies::Member> SizeFamilies::Find(absl::string_view key) {
  Group& group = GroupOf(key);
  for (size_t i = group.families.size(); i-- > 0;) {
    const Family& family = *group.families[i];
    if (const std::optional<int64_t> size = family.SizeOf(key)) {
      return Member{family.name, &family.hole, *size};
    }
  }
  // A key seen twice adds no third point to a line.
  if (std::find(group.alone.begin(), group.alone.end(), key) !=
      group.alone.end()) {
    return std::nullopt;
  }
  std::unique_ptr<Family> family = FindLine(group, key);
  if (family == nullptr) {
    Keep(&group, key);
    Shrink();
    return std::nullopt;
  }
  const Member member = {family->name, &family->hole, *family->SizeOf(key)};
  Keep(&group, std::move(family));
  Shrink();
  return member;
}

SizeFamilies::Group& SizeFamilies::GroupOf(absl::string_view key) {
  const absl::string_view header = KeyHeader(key);
  const auto found = by_header_.find(header);
  if (found != by_header_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return by_use_.front();
  }
  Group& group = by_use_.emplace_front();
  group.header = std::string(header);
  group.bytes = header.size();
  bytes_ += group.bytes;
  by_header_.emplace(group.header, by_use_.begin());
  return group;
}

void SizeFamilies::Keep(Group* group, std::unique_ptr<Family> family) {
  size_t removed = 0;
  if (group->families.size() == kMaxFamilies) {
    removed = group->families.front()->bytes();
    group->families.erase(group->families.begin());
  }
  Grow(group, family->bytes(), removed);
  group->families.push_back(std::move(family));
}

void SizeFamilies::Keep(Group* group, absl::string_view key) {
  size_t removed = 0;
  if (group->alone.size() == kMaxAlone) {
    removed = group->alone.front().size();
    group->alone.erase(group->alone.begin());
  }
  Grow(group, key.size(), removed);
  group->alone.emplace_back(key);
}

void SizeFamilies::Grow(Group* group, size_t added, size_t removed) {
  group->bytes += added - removed;
  bytes_ += added - removed;
}

void SizeFamilies::Shrink() {
  // The group just used always stays.
  while (bytes_ > max_bytes_ && by_use_.size() > 1) {
    bytes_ -= by_use_.back().bytes;
    by_header_.erase(by_use_.back().header);
    by_use_.pop_back();
  }
}

}  // namespace djinn
