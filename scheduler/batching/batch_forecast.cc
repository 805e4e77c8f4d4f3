#include "scheduler/batching/batch_forecast.h"

#include <algorithm>

namespace djinn::scheduler {

absl::Duration BatchForecast::Passage::LongestPause() const {
  return *std::max_element(pauses.begin(),
                           pauses.begin() + std::min(count, kKept));
}

absl::Duration BatchForecast::Worth::Least() const {
  return *std::min_element(took.begin(),
                           took.begin() + std::min(count, kWorths));
}

const BatchForecast::Passage* BatchForecast::FindRegular(
    const Session& session) {
  for (const Passage& passage : session.passages) {
    if (passage.from != session.place) continue;
    return passage.count >= kRegular ? &passage : nullptr;
  }
  return nullptr;
}

BatchForecast::Passage* BatchForecast::FindOrAdd(Session* session, Place from) {
  for (Passage& passage : session->passages) {
    if (passage.from == from) return &passage;
  }
  if (session->passages.size() == kPlacesOfSession) {
    session->passages.erase(session->passages.begin());
  }
  Passage& added = session->passages.emplace_back();
  added.from = from;
  return &added;
}

void BatchForecast::Came(uint64_t key, Place place, absl::Duration at) {
  Session& session = sessions_[key];
  if (session.ended.has_value()) {
    Dismiss(key, session);
    Passage* const passage = FindOrAdd(&session, session.place);
    if (passage->to != place) passage->count = 0;
    passage->to = place;
    passage->pauses[passage->count++ % kKept] =
        std::max(at - *session.ended, absl::ZeroDuration());
  }
  session.place = place;
  session.ended.reset();
}

void BatchForecast::Ended(uint64_t key, absl::Duration now) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  // A session that did not arrive is not expected there again.
  if (session.ended.has_value()) return;
  session.ended = now;
  const Passage* const passage = FindRegular(session);
  if (passage == nullptr) return;
  session.due = now + kLateness * passage->LongestPause() + kSlack;
  expected_[passage->to].insert(key);
}

void BatchForecast::Dismiss(uint64_t key, const Session& session) {
  const Passage* const passage = FindRegular(session);
  if (passage == nullptr) return;
  const auto found = expected_.find(passage->to);
  if (found == expected_.end()) return;
  found->second.erase(key);
  if (found->second.empty()) expected_.erase(found);
}

void BatchForecast::Forget(uint64_t key) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Dismiss(key, found->second);
  sessions_.erase(found);
}

void BatchForecast::NoteWorth(Place place, absl::Duration took) {
  if (worth_.size() >= kPlaces && !worth_.contains(place)) worth_.clear();
  Worth& worth = worth_[place];
  worth.took[worth.count++ % kWorths] = took;
}

std::optional<BatchForecast::Place> BatchForecast::NextOf(uint64_t key) const {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return std::nullopt;
  const Passage* const passage = FindRegular(found->second);
  if (passage == nullptr) return std::nullopt;
  return passage->to;
}

absl::Duration BatchForecast::WaitUntil(
    Place place, absl::Duration since, absl::Duration now,
    absl::FunctionRef<bool(uint64_t)> may_come) {
  absl::Duration until = since;
  const auto worth = worth_.find(place);
  const auto found = expected_.find(place);
  if (worth == worth_.end() || found == expected_.end()) return until;
  const absl::Duration last = since + worth->second.Least();
  absl::flat_hash_set<uint64_t>& keys = found->second;
  size_t looks = 0;
  for (auto key = keys.begin(); key != keys.end() && looks < kLooks; ++looks) {
    const absl::Duration due = sessions_.at(*key).due;
    if (due <= now) {
      keys.erase(key++);
      continue;
    }
    if (due > until && due <= last && may_come(*key)) until = due;
    ++key;
  }
  if (keys.empty()) expected_.erase(found);
  return until;
}

}  // namespace djinn::scheduler
