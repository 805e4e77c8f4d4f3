#include "coordinator/rpc/session_traces.h"

#include <algorithm>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/plain_text.h"
#include "common/base/proto_duration.h"
#include "common/base/random.h"

namespace djinn::coordinator {
namespace {

// Removes the entry and returns it.
template <typename Map>
auto Take(const typename Map::key_type& key, Map* map)
    -> std::optional<typename Map::mapped_type> {
  const auto found = map->find(key);
  if (found == map->end()) return std::nullopt;
  std::optional<typename Map::mapped_type> taken(std::move(found->second));
  map->erase(found);
  return taken;
}

// Returns a client's text without control characters.
std::string Plain(std::string text) {
  ReplaceControls(/*keep_lines=*/false, &text);
  return text;
}

// Removes the entries that began before `first`.
template <typename Map>
void EraseBefore(absl::Duration first, Map* map) {
  std::erase_if(*map,
                [&](const auto& entry) { return entry.second.began < first; });
}

}  // namespace

TraceContext SessionTraces::NewTrace() {
  RandomSource& random = *cluster_.random;
  const TraceContext context{random.NonZero64(), random.NonZero64(),
                             random.NonZero64()};
  return sink_->Takes(context) ? context : TraceContext();
}

Span SessionTraces::Make(const TraceContext& self, uint64_t parent,
                         absl::string_view name, absl::Duration began,
                         absl::Duration ended) {
  const WallTimes wall(cluster_.clock);
  Span span = MakeSpan(self, parent, name, Span::SPAN_KIND_SERVER,
                       wall.At(began), wall.At(ended));
  AddText("djinn.tenant", tenant_, &span);
  return span;
}

void SessionTraces::NoteRequest(const v1::LeaseRequest& request) {
  if (sink_ == nullptr) return;
  const TraceContext parent = FromProto(request.trace());
  const bool traced = request.has_trace() && sink_->Takes(parent);
  const std::pair key(request.virtual_device(), request.member());
  const absl::Duration now = cluster_.clock->Monotonic();
  MutexLock lock(&mu_);
  EraseBefore(now - kMaxAge, &requests_);
  const auto before = requests_.find(key);
  if (before != requests_.end()) {
    // A request that is repeated belongs to the first one of its trace. One of
    // another trace, or of none, replaces it.
    if (traced && before->second.parent.trace_high == parent.trace_high &&
        before->second.parent.trace_low == parent.trace_low) {
      return;
    }
    requests_.erase(before);
  }
  if (!traced || requests_.size() >= kMaxOpen) return;
  requests_.emplace(key, Open{parent, now, ""});
}

void SessionTraces::EndRequest(uint32_t device, uint32_t member,
                               const v1::LeaseGranted* granted,
                               const v1::LeaseRefused* refused) {
  std::optional<Open> open;
  {
    MutexLock lock(&mu_);
    open = Take({device, member}, &requests_);
  }
  if (!open.has_value()) return;
  const absl::Duration now = cluster_.clock->Monotonic();
  SpanIds ids(cluster_.random->NonZero64());
  TraceContext self = open->parent;
  self.span_id = ids.Next();
  Span span = Make(self, open->parent.span_id, "grant lease", open->began, now);
  AddNumber("djinn.device", device, &span);
  absl::Duration placed = now;
  if (refused != nullptr) SetFailed(refused->reason(), &span);
  if (granted != nullptr) {
    AddText("djinn.worker", granted->lease().worker_id(), &span);
    MutexLock lock(&cluster_.mu);
    const Lease* const lease =
        cluster_.leases.Find(granted->lease().lease_id());
    // A lease that the device had already was placed before.
    if (lease != nullptr) {
      placed = std::clamp(lease->created, open->began, now);
    }
  }
  const uint64_t parent = self.span_id;
  sink_->Add(std::move(span));
  self.span_id = ids.Next();
  Span place = Make(self, parent, "place", open->began, placed);
  if (granted != nullptr) {
    AddText("djinn.placement_reason", granted->placement_reason(), &place);
  }
  sink_->Add(std::move(place));
  if (granted == nullptr) return;
  self.span_id = ids.Next();
  sink_->Add(Make(self, parent, "announce", placed, now));
}

void SessionTraces::NoteResponse(const v1::SessionResponse& response) {
  if (sink_ == nullptr) return;
  if (response.has_granted()) {
    const v1::LeaseGranted& granted = response.granted();
    EndRequest(granted.virtual_device(), granted.member(), &granted, nullptr);
  } else if (response.has_refused()) {
    const v1::LeaseRefused& refused = response.refused();
    EndRequest(refused.virtual_device(), refused.member(), nullptr, &refused);
  } else if (response.has_migrate()) {
    const v1::Lease& to = response.migrate().to().lease();
    const TraceContext context = NewTrace();
    if (!context.valid()) return;
    const absl::Duration now = cluster_.clock->Monotonic();
    MutexLock lock(&mu_);
    EraseBefore(now - kMaxAge, &migrations_);
    if (migrations_.size() >= kMaxOpen) return;
    // No two migrations go to the same lease: this is the same one, repeated.
    migrations_.try_emplace(to.lease_id(), Open{context, now, to.worker_id()});
  }
}

void SessionTraces::NoteMigrated(const v1::MigrationOutcome& outcome) {
  if (sink_ == nullptr) return;
  std::optional<Open> open;
  {
    MutexLock lock(&mu_);
    open = Take(outcome.to_lease_id(), &migrations_);
  }
  if (!open.has_value()) return;
  Span span = Make(open->parent, /*parent=*/0, "migrate", open->began,
                   cluster_.clock->Monotonic());
  AddText("djinn.worker", open->worker_id, &span);
  AddNumber("djinn.storages", static_cast<int64_t>(outcome.storage_count()),
            &span);
  AddNumber("djinn.moved_bytes", static_cast<int64_t>(outcome.moved_bytes()),
            &span);
  AddSeconds("djinn.paused", FromProtoDuration(outcome.paused()), &span);
  if (outcome.has_failure())
    SetFailed(Plain(outcome.failure().reason()), &span);
  sink_->Add(std::move(span));
}

void SessionTraces::NoteRecovered(const v1::SessionRequest& request) {
  if (sink_ == nullptr) return;
  const TraceContext said = FromProto(request.trace());
  TraceContext self = NewTrace();
  uint64_t parent = 0;
  if (said.valid() && sink_->Takes(said)) {
    self = said;
    self.span_id = cluster_.random->NonZero64();
    parent = said.span_id;
  }
  if (!self.valid()) return;
  const v1::RecoveryReport& report = request.recovered();
  const absl::Duration now = cluster_.clock->Monotonic();
  const absl::Duration took = std::clamp(FromProtoDuration(report.total_time()),
                                         absl::ZeroDuration(), absl::Hours(1));
  Span span = Make(self, parent, "recover", now - took, now);
  AddNumber("djinn.device", report.virtual_device(), &span);
  AddText("djinn.worker", Plain(report.to_worker_id()), &span);
  AddText("djinn.cause", Plain(report.cause().reason()), &span);
  AddNumber("djinn.replayed_nodes",
            static_cast<int64_t>(report.replayed_nodes()), &span);
  AddSeconds("djinn.lease_time", FromProtoDuration(report.lease_time()), &span);
  AddSeconds("djinn.connect_time", FromProtoDuration(report.connect_time()),
             &span);
  AddSeconds("djinn.send_time", FromProtoDuration(report.send_time()), &span);
  AddSeconds("djinn.replay_time", FromProtoDuration(report.replay_time()),
             &span);
  if (report.has_failure()) SetFailed(Plain(report.failure().reason()), &span);
  sink_->Add(std::move(span));
}

}  // namespace djinn::coordinator
