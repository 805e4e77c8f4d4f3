#include "client_lib/session/model/call_sites.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn {

CallSiteTable& CallSiteTable::Global() {
  static CallSiteTable* const table = new CallSiteTable;
  return *table;
}

uint32_t CallSiteTable::Add(const CallSite& site) {
  if (site == CallSite()) return 0;
  MutexLock lock(&mu_);
  const auto found = numbers_.find(site);
  if (found != numbers_.end()) return found->second;
  if (sites_.size() == kMaxSites) return 0;
  sites_.push_back(site);
  const auto number = static_cast<uint32_t>(sites_.size());
  numbers_.emplace(site, number);
  return number;
}

CallSite CallSiteTable::Get(uint32_t number) const {
  MutexLock lock(&mu_);
  return sites_.at(number - 1);
}

std::string Describe(const CallSite& site) {
  std::string text;
  if (!site.location.empty()) {
    absl::StrAppend(&text, ", called at ", site.location);
  }
  if (!site.module.empty()) absl::StrAppend(&text, ", in module ", site.module);
  return text;
}

v1::GraphNotes NotesOf(const std::vector<uint32_t>& sites) {
  v1::GraphNotes notes;
  absl::flat_hash_map<uint32_t, uint32_t> numbers = {{0, 0}};
  for (const uint32_t site : sites) {
    const auto [number, added] =
        numbers.try_emplace(site, static_cast<uint32_t>(numbers.size()));
    notes.add_note_of_node(number->second);
    if (!added) continue;
    const CallSite known = CallSiteTable::Global().Get(site);
    v1::CallNote* const note = notes.add_notes();
    note->set_phase(known.phase);
    note->set_module_path(known.module);
    note->set_location(known.location);
  }
  return notes;
}

void CallSiteLog::Add(uint64_t sequence, std::vector<uint32_t> sites) {
  calls_ += sites.size();
  runs_.push_back({sequence, std::move(sites)});
  while (calls_ > kMaxCalls) {
    calls_ -= runs_.front().sites.size();
    runs_.pop_front();
  }
}

uint32_t CallSiteLog::Find(const v1::ErrorDetail& detail) {
  const auto known = errors_.find(detail.error_id());
  if (known != errors_.end()) return known->second;
  if (!detail.has_node()) return 0;
  const auto run = std::lower_bound(
      runs_.begin(), runs_.end(), detail.sequence(),
      [](const Run& r, uint64_t sequence) { return r.sequence < sequence; });
  const bool found = run != runs_.end() && run->sequence == detail.sequence() &&
                     detail.node() < run->sites.size();
  // An error whose site is unknown now never gets one, so 0 is stored too.
  const uint32_t site = found ? run->sites[detail.node()] : 0;
  if (errors_.size() < kMaxErrors) errors_.emplace(detail.error_id(), site);
  return site;
}

absl::Status CallSiteLog::StatusOf(const v1::ErrorDetail& detail) {
  absl::Status status = StatusFromDetail(detail);
  const uint32_t number = Find(detail);
  if (number == 0) return status;
  absl::Status placed(
      status.code(),
      absl::StrCat(status.message(),
                   Describe(CallSiteTable::Global().Get(number))));
  status.ForEachPayload(
      [&placed](absl::string_view url, const absl::Cord& payload) {
        placed.SetPayload(url, payload);
      });
  return placed;
}

}  // namespace djinn
