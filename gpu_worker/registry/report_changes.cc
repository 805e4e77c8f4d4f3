#include "gpu_worker/registry/report_changes.h"

#include "common/lease/lease_verifier.h"

namespace djinn::worker {

template <typename Message>
void ReportChanges::Reduce(
    google::protobuf::RepeatedPtrField<Message>* all,
    google::protobuf::RepeatedPtrField<std::string>* gone, Entries* entries) {
  int kept = 0;
  for (int i = 0; i < all->size(); ++i) {
    const std::string bytes = all->Get(i).SerializeAsString();
    const ContentHash hash = HashContent(bytes.data(), bytes.size());
    Entry& entry = (*entries)[UncheckedClaims(all->Get(i).lease()).lease_id()];
    const bool changed = entry.report == 0 || entry.hash != hash;
    entry = {hash, reports_};
    if (changed) all->SwapElements(kept++, i);
  }
  all->DeleteSubrange(kept, all->size() - kept);
  std::erase_if(*entries, [&](const auto& item) {
    if (item.second.report == reports_) return false;
    *gone->Add() = item.first;
    return true;
  });
}

void ReportChanges::Reduce(v1::WorkerState* report) {
  report->set_complete(++reports_ == 1);
  Reduce(report->mutable_sessions(), report->mutable_released_lease_ids(),
         &sessions_);
  Reduce(report->mutable_ended_leases(), report->mutable_forgotten_lease_ids(),
         &ended_);
}

}  // namespace djinn::worker
