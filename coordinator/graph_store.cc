#include "coordinator/graph_store.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "common/status_macros.h"

namespace djinn::coordinator {
namespace {

constexpr size_t kMinPrefix = 8;

}  // namespace

absl::StatusOr<std::string> GraphStore::Add(const v1::Structure& message) {
  DJINN_ASSIGN_OR_RETURN(const srg::Structure structure,
                         srg::FromProto(message));
  DJINN_RETURN_IF_ERROR(srg::Validate(structure, caps_).status());
  std::string fingerprint = srg::Fingerprint(structure);
  const std::string hex = absl::BytesToHexString(fingerprint);
  std::string encoding = message.SerializeAsString();

  MutexLock lock(&mu_);
  const auto [it, added] = entries_.try_emplace(hex);
  Entry& entry = it->second;
  if (!added) {
    ages_.splice(ages_.end(), ages_, entry.age);
    return fingerprint;
  }
  bytes_ += encoding.size();
  entry.encoding = std::move(encoding);
  entry.node_count = static_cast<uint32_t>(structure.nodes.size());
  entry.slot_count = static_cast<uint32_t>(structure.slots.size());
  entry.age = ages_.insert(ages_.end(), hex);
  while (bytes_ > max_bytes_ && !ages_.empty()) {
    const auto oldest = entries_.find(ages_.front());
    bytes_ -= oldest->second.encoding.size();
    entries_.erase(oldest);
    ages_.pop_front();
  }
  return fingerprint;
}

void GraphStore::CountDefinition(const std::string& fingerprint) {
  MutexLock lock(&mu_);
  const auto found = entries_.find(absl::BytesToHexString(fingerprint));
  if (found != entries_.end()) ++found->second.definition_count;
}

v1::GraphInfo GraphStore::Describe(const Entries::value_type& item) {
  v1::GraphInfo info;
  info.set_fingerprint(item.first);
  info.set_node_count(item.second.node_count);
  info.set_slot_count(item.second.slot_count);
  info.set_definition_count(item.second.definition_count);
  return info;
}

std::vector<v1::GraphInfo> GraphStore::List() {
  MutexLock lock(&mu_);
  std::vector<v1::GraphInfo> result;
  for (const auto& item : entries_) result.push_back(Describe(item));
  return result;
}

absl::StatusOr<v1::GraphInfo> GraphStore::Get(absl::string_view hex) {
  MutexLock lock(&mu_);
  const auto first = entries_.lower_bound(hex);
  if (hex.size() < kMinPrefix || first == entries_.end() ||
      !absl::StartsWith(first->first, hex)) {
    return MakeError(absl::StatusCode::kNotFound, "GRAPH_UNKNOWN",
                     absl::StrCat("no graph \"", hex, "\""));
  }
  const auto second = std::next(first);
  if (second != entries_.end() && absl::StartsWith(second->first, hex)) {
    return MakeError(absl::StatusCode::kInvalidArgument, "PREFIX_AMBIGUOUS",
                     absl::StrCat("several graphs begin with \"", hex, "\""));
  }
  v1::GraphInfo info = Describe(*first);
  info.mutable_structure()->ParseFromString(first->second.encoding);
  return info;
}

}  // namespace djinn::coordinator
