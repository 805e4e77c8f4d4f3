#include "coordinator/graph_store.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "common/status_macros.h"
#include "coordinator/graph_nodes.h"

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
  info.set_size_bytes(item.second.encoding.size());
  return info;
}

Page<v1::GraphInfo> GraphStore::List(const PageRange& range) {
  MutexLock lock(&mu_);
  const auto slice = Slice(entries_, range);
  Page<v1::GraphInfo> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) page.items.push_back(Describe(*entry));
  return page;
}

absl::StatusOr<v1::GraphInfo> GraphStore::Get(absl::string_view hex) {
  std::string encoding;
  DJINN_ASSIGN_OR_RETURN(v1::GraphInfo info, Find(hex, &encoding));
  info.mutable_structure()->ParseFromString(encoding);
  DescribeNodes(info.structure(), info.mutable_nodes());
  return info;
}

absl::StatusOr<v1::GraphInfo> GraphStore::Find(absl::string_view hex,
                                               std::string* encoding) {
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
  *encoding = first->second.encoding;
  return Describe(*first);
}

}  // namespace djinn::coordinator
