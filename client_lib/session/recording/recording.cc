#include "client_lib/session/recording/recording.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/model/call_sites.h"
#include "client_lib/session/model/operator_table.h"
#include "client_lib/session/recording/segment.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

using Source = CapturedPart::Slot::Source;

absl::Status Refusal(absl::string_view reason, absl::string_view what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason, what);
}

bool IsMadeBy(const Touch& touch, size_t index,
              const std::vector<std::pair<size_t, uint64_t>>& creations) {
  if ((touch.access & kCreates) != 0) return true;
  return std::any_of(
      creations.begin(), creations.end(),
      [index](const auto& creation) { return creation.first == index; });
}

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Get(absl::string_view key, size_t position) {
  T value;
  std::memcpy(&value, key.data() + position, sizeof(value));
  return value;
}

// Bytes of a key per call: the call's operator and the ends of its template
// bytes and touches. A key begins with the number of calls.
constexpr size_t kCallBytes = 3 * sizeof(uint32_t);
// Bytes of a key per touch: a slot and an access.
constexpr size_t kTouchBytes = sizeof(uint32_t) + sizeof(uint8_t);

}  // namespace

void Recorder::Add(const Call& call,
                   absl::FunctionRef<bool(RemoteStorage*)> is_created) {
  if (!refusal_.ok()) return;
  if (steps_.size() >= kMaxCalls) {
    Refuse("TOO_LONG", absl::StrCat("it makes more than ", kMaxCalls,
                                    " calls on the device"));
    return;
  }
  Step& step = steps_.emplace_back();
  step.call = call;
  const absl::Span<Touch> touches = step.call.touches();
  for (size_t i = 0; i < touches.size(); ++i) {
    RemoteStorage* const storage = touches[i].storage.get();
    if ((touches[i].access & kCreates) == 0 && !is_created(storage)) {
      step.creations.emplace_back(i, storage->size_bytes());
    }
  }
}

void Recorder::Retract() {
  if (!steps_.empty()) steps_.pop_back();
}

void Recorder::Refuse(absl::string_view reason, absl::string_view what) {
  if (!refusal_.ok()) return;
  refusal_ = Refusal(reason, what);
  steps_.clear();
}

absl::StatusOr<std::shared_ptr<CapturedGraph>> Recorder::Finish(
    absl::Span<RemoteStorage* const> given,
    absl::Span<RemoteStorage* const> outputs, size_t awaited) const {
  DJINN_RETURN_IF_ERROR(refusal_);
  if (steps_.empty()) {
    return Refusal("NO_CALLS", "it calls nothing on the device");
  }
  static std::atomic<uint64_t> last_number{0};
  auto captured_graph = std::make_shared<CapturedGraph>();
  captured_graph->number =
      last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  captured_graph->given = given.size();
  Roles roles = FindRoles(given, captured_graph.get());

  size_t needed = 0;  // calls that awaited outputs need
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    RemoteStorage* const storage = outputs[i];
    const auto found = roles.find(storage);
    if (found == roles.end() || found->second.source != Source::kMade) {
      return Refusal("NOT_MADE",
                     "it returns a tensor that it did not make itself, or a "
                     "view of one");
    }
    if (std::exchange(found->second.output, i) != CapturedPart::kNoOutput) {
      return Refusal("OUTPUT_TWICE",
                     "it returns two tensors that share memory");
    }
    if (i < awaited) needed = std::max(needed, found->second.last_write + 1);
    captured_graph->output_bytes.push_back(storage->size_bytes());
  }
  DJINN_RETURN_IF_ERROR(NoneStays(roles));

  for (size_t begin = 0; begin < steps_.size();) {
    const bool split = begin < needed && needed + kMinRest <= steps_.size();
    const size_t end = PartEnd(begin, split ? needed : steps_.size());
    captured_graph->parts.push_back(BuildPart(begin, end, roles));
    begin = end;
  }
  return captured_graph;
}

Recorder::Roles Recorder::FindRoles(absl::Span<RemoteStorage* const> given,
                                    CapturedGraph* captured_graph) const {
  Roles roles;
  for (uint32_t i = 0; i < given.size(); ++i) {
    roles.try_emplace(given[i], Role{Source::kGiven, i});
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    const absl::Span<const Touch> touches = steps_[i].call.touches();
    for (size_t k = 0; k < touches.size(); ++k) {
      const auto [found, is_new] = roles.try_emplace(touches[k].storage.get());
      Role& role = found->second;
      role.last = i;
      if (ChangesVersion(touches[k].access)) role.last_write = i;
      if (!is_new) continue;
      role.first = i;
      if (IsMadeBy(touches[k], k, steps_[i].creations)) {
        role.source = Source::kMade;
        role.index = captured_graph->made++;
      } else {
        role.index = static_cast<uint32_t>(captured_graph->kept.size());
        captured_graph->kept.push_back(touches[k].storage);
      }
    }
  }
  return roles;
}

absl::Status Recorder::NoneStays(const Roles& roles) const {
  // Reports the intermediate that was created first, independently of the map's
  // order.
  const Call* maker = nullptr;
  size_t first = steps_.size();
  for (const auto& [storage, role] : roles) {
    if (role.source != Source::kMade ||
        role.output != CapturedPart::kNoOutput || storage->dead() ||
        role.first >= first) {
      continue;
    }
    first = role.first;
    maker = &steps_[first].call;
  }
  if (maker == nullptr) return absl::OkStatus();
  return Refusal(
      "KEEPS_TENSOR",
      absl::StrCat("a tensor that ",
                   OperatorTable::Global().Get(maker->operator_id()).FullName(),
                   " made is still there afterwards, and was not returned",
                   maker->site() == 0
                       ? ""
                       : Describe(CallSiteTable::Global().Get(maker->site()))));
}

size_t Recorder::PartEnd(size_t begin, size_t last) const {
  size_t end = begin, touches = 0, bytes = 0;
  while (end < std::min(last, begin + kMaxPartCalls) &&
         touches < kMaxPartTouches && bytes < kMaxPartBytes) {
    touches += steps_[end].call.touches().size();
    bytes += steps_[end].call.bytes().size();
    ++end;
  }
  return end;
}

CapturedPart Recorder::BuildPart(size_t begin, size_t end,
                                 const Roles& roles) const {
  Segment segment;
  for (size_t i = begin; i < end; ++i) {
    for (const auto& [touch, bytes] : steps_[i].creations) {
      // An execution creates an argument that has no contents yet beforehand.
      const StoragePtr& storage = steps_[i].call.touches()[touch].storage;
      if (roles.at(storage.get()).source == Source::kGiven) continue;
      segment.AddCreation(touch, bytes);
    }
    Call call = steps_[i].call;
    segment.Append(&call);
  }
  CapturedPart part;
  absl::flat_hash_map<const RemoteStorage*, uint32_t> slots;
  std::vector<uint32_t> slot_of_touch;
  std::vector<srg::Slot> kinds;
  auto creation = segment.creations().begin();
  for (size_t i = 0; i < segment.touches().size(); ++i) {
    const Touch& touch = segment.touches()[i];
    const auto [found, is_new] = slots.try_emplace(
        touch.storage.get(), static_cast<uint32_t>(part.slots.size()));
    if (is_new) {
      const bool created =
          creation != segment.creations().end() && creation->touch == i;
      const srg::Slot& kind = kinds.emplace_back(
          KindOfFirstTouch(touch.access, created ? &creation->bytes : nullptr));
      if (created) ++creation;
      const Role& role = roles.at(touch.storage.get());
      part.slots.push_back({.source = role.source,
                            .index = role.index,
                            .output = role.output,
                            .writes = created ? 1u : 0u,
                            .reads = ReadsBefore(kind, touch.access),
                            .created = kind.kind == srg::Slot::Kind::kCreated ||
                                       kind.kind == srg::Slot::Kind::kResult,
                            .dies = role.source == Source::kMade &&
                                    role.output == CapturedPart::kNoOutput &&
                                    role.last < end});
    }
    if (ChangesVersion(touch.access)) ++part.slots[found->second].writes;
    slot_of_touch.push_back(found->second);
  }
  BuildGraphKey(segment, slot_of_touch, kinds, &part.key);
  part.graph = BuildGraph(segment, slot_of_touch, kinds);
  part.floats.assign(segment.floats().begin(), segment.floats().end());
  part.scalar_tensors.assign(segment.scalar_tensors().begin(),
                             segment.scalar_tensors().end());
  bool any_site = false;
  for (const Segment::Mark& call : segment.calls()) {
    any_site |= call.site != 0;
    part.sites.push_back(call.site);
  }
  if (!any_site) part.sites.clear();
  return part;
}

void BuildGraphKey(const Segment& segment,
                   absl::Span<const uint32_t> slot_of_touch,
                   absl::Span<const srg::Slot> kinds, std::string* key) {
  key->clear();
  Put(static_cast<uint32_t>(segment.calls().size()), key);
  for (const Segment::Mark& mark : segment.calls()) {
    Put(mark.operator_id, key);
    Put(mark.bytes_end, key);
    Put(mark.touches_end, key);
  }
  key->append(segment.bytes().data(), segment.bytes().size());
  for (size_t i = 0; i < slot_of_touch.size(); ++i) {
    Put(slot_of_touch[i], key);
    Put(segment.touches()[i].access, key);
  }
  for (const srg::Slot& kind : kinds) {
    Put(kind.kind, key);
    if (kind.kind == srg::Slot::Kind::kCreated) Put(kind.created_bytes, key);
  }
}

absl::string_view KeyHeader(absl::string_view key) {
  const size_t calls = Get<uint32_t>(key, 0);
  return key.substr(0, sizeof(uint32_t) + calls * kCallBytes);
}

std::vector<uint32_t> FindKeyIntegers(absl::string_view key) {
  std::vector<uint32_t> positions;
  const absl::string_view header = KeyHeader(key);
  uint32_t begin = 0;
  uint32_t touches = 0;
  for (size_t at = sizeof(uint32_t); at < header.size(); at += kCallBytes) {
    const auto end = Get<uint32_t>(header, at + sizeof(uint32_t));
    touches = Get<uint32_t>(header, at + 2 * sizeof(uint32_t));
    const size_t first = positions.size();
    FindIntegers(key.substr(header.size() + begin, end - begin), &positions);
    for (size_t i = first; i < positions.size(); ++i) {
      positions[i] += header.size() + begin;
    }
    begin = end;
  }
  size_t at = header.size() + begin + touches * kTouchBytes;
  while (at < key.size()) {
    const auto kind = static_cast<srg::Slot::Kind>(Get<uint8_t>(key, at++));
    if (kind != srg::Slot::Kind::kCreated) continue;
    positions.push_back(static_cast<uint32_t>(at));
    at += sizeof(uint64_t);
  }
  return positions;
}

srg::Graph BuildGraph(const Segment& segment,
                      absl::Span<const uint32_t> slot_of_touch,
                      absl::Span<const srg::Slot> kinds) {
  srg::Graph graph;
  graph.slots.assign(kinds.begin(), kinds.end());
  absl::flat_hash_map<uint32_t, uint32_t> operator_indices;
  std::vector<uint8_t> accesses;
  for (const Touch& touch : segment.touches()) {
    accesses.push_back(touch.access);
  }
  HoleCounters counters;
  Segment::Mark begin;
  for (const Segment::Mark& end : segment.calls()) {
    const size_t touches = end.touches_end - begin.touches_end;
    srg::Node node = DecodeCall(
        segment.bytes().substr(begin.bytes_end,
                               end.bytes_end - begin.bytes_end),
        slot_of_touch.subspan(begin.touches_end, touches),
        absl::MakeConstSpan(accesses).subspan(begin.touches_end, touches),
        &counters);
    const auto [index, is_new] = operator_indices.try_emplace(
        end.operator_id, static_cast<uint32_t>(graph.operators.size()));
    if (is_new) {
      graph.operators.push_back(OperatorTable::Global().Get(end.operator_id));
    }
    node.operator_index = index->second;
    graph.nodes.push_back(std::move(node));
    begin = end;
  }
  graph.float_hole_count = counters.floats;
  graph.scalar_tensor_hole_count = counters.scalar_tensors;
  return graph;
}

srg::Slot KindOfFirstTouch(uint8_t access, const uint64_t* created_bytes) {
  if (created_bytes != nullptr) {
    return {srg::Slot::Kind::kCreated, *created_bytes};
  }
  if ((access & kCreates) != 0) return {srg::Slot::Kind::kResult, 0};
  if ((access & kDraws) != 0) return {srg::Slot::Kind::kGenerator, 0};
  return {srg::Slot::Kind::kBound, 0};
}

bool ReadsBefore(const srg::Slot& kind, uint8_t first_access) {
  switch (kind.kind) {
    case srg::Slot::Kind::kGenerator:
      return true;
    case srg::Slot::Kind::kBound:
      return (first_access & kOverwrites) == 0 ||
             !IgnoresContents(first_access);
    default:
      return false;
  }
}

absl::Status GraphCaptures::Start(uint32_t lane) {
  MutexLock lock(&mu_);
  if (!by_lane_.try_emplace(lane, std::make_unique<Recorder>()).second) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "ALREADY_RECORDING",
                     "the thread's calls are being recorded already");
  }
  count_.store(by_lane_.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

std::unique_ptr<Recorder> GraphCaptures::Take(uint32_t lane) {
  MutexLock lock(&mu_);
  auto found = by_lane_.extract(lane);
  count_.store(by_lane_.size(), std::memory_order_relaxed);
  return found.empty() ? nullptr : std::move(found.mapped());
}

void GraphCaptures::Add(uint32_t lane, const Call& call,
                        absl::FunctionRef<bool(RemoteStorage*)> is_created) {
  MutexLock lock(&mu_);
  const auto found = by_lane_.find(lane);
  if (found != by_lane_.end()) found->second->Add(call, is_created);
}

void GraphCaptures::Retract(uint32_t lane) {
  MutexLock lock(&mu_);
  const auto found = by_lane_.find(lane);
  if (found != by_lane_.end()) found->second->Retract();
}

void GraphCaptures::RefuseOne(uint32_t lane, absl::string_view reason,
                              absl::string_view what) {
  MutexLock lock(&mu_);
  const auto found = by_lane_.find(lane);
  if (found != by_lane_.end()) found->second->Refuse(reason, what);
}

void GraphCaptures::RefuseAll(absl::string_view reason,
                              absl::string_view what) {
  MutexLock lock(&mu_);
  for (const auto& [lane, recorder] : by_lane_) recorder->Refuse(reason, what);
}

absl::Status GraphCaptures::Refusal(uint32_t lane) const {
  MutexLock lock(&mu_);
  const auto found = by_lane_.find(lane);
  return found == by_lane_.end() ? absl::OkStatus() : found->second->refusal();
}

}  // namespace djinn
