#include "coordinator/tables/queue_stops.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"

namespace djinn::coordinator {

void QueueStops::Add(const std::string& tenant, bool drain, absl::Time now) {
  const auto [stop, added] = stops_.try_emplace(tenant);
  if (added) stop->second.since = now;
  stop->second.drain = drain;
}

bool QueueStops::Remove(absl::string_view tenant) {
  const auto found = stops_.find(tenant);
  if (found == stops_.end()) return false;
  stops_.erase(found);
  return true;
}

const QueueStops::Stop* QueueStops::Find(absl::string_view tenant) const {
  const auto found = stops_.find(tenant);
  return found == stops_.end() ? nullptr : &found->second;
}

v1::QueueStop QueueStops::Describe(const Stop& stop) {
  v1::QueueStop described;
  described.set_drain(stop.drain);
  *described.mutable_stop_time() = ToProtoTimestamp(stop.since);
  return described;
}

v1::StoredQueue QueueStops::Save(const Stop& stop) {
  v1::StoredQueue stored;
  stored.set_drain(stop.drain);
  *stored.mutable_stop_time() = ToProtoTimestamp(stop.since);
  return stored;
}

void QueueStops::Restore(const std::string& tenant,
                         const v1::StoredQueue& stored) {
  stops_[tenant] = {stored.drain(), FromProtoTimestamp(stored.stop_time())};
}

absl::Status QueueStopped(const std::string& tenant) {
  return MakeError(absl::StatusCode::kUnavailable, "QUEUE_STOPPED",
                   absl::StrCat("an operator has stopped the queue of tenant ",
                                tenant, ": it gets no new leases"));
}

std::string ResumeCommand(absl::string_view tenant) {
  return absl::StrCat("an operator: djinnctl resume queue ", tenant);
}

}  // namespace djinn::coordinator
