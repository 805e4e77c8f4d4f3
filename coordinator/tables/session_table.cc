#include "coordinator/tables/session_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log/log.h"

namespace djinn::coordinator {

bool Session::MayLog(absl::Duration now) {
  if (!pace.logged_events.Take(now)) {
    ++pace.unlogged_events;
    return false;
  }
  if (pace.unlogged_events > 0) {
    log::Info("log lines about a session were suppressed",
              {{"session", log::ShortId(id)},
               {"tenant", tenant},
               {"lines", std::exchange(pace.unlogged_events, 0)}});
  }
  return true;
}

Session* SessionTable::Add(Session session) {
  auto owned = std::make_unique<Session>(std::move(session));
  Session* const added = owned.get();
  of_tenant_[added->tenant].insert(added);
  added->place = absl::StrCat(absl::Hex(++last_place_, absl::kZeroPad16));
  in_order_[added->place] = added;
  sessions_[added->id] = std::move(owned);
  return added;
}

void SessionTable::Remove(const std::string& id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const auto others = of_tenant_.find(found->second->tenant);
  others->second.erase(found->second.get());
  if (others->second.empty()) of_tenant_.erase(others);
  if (!found->second->devices.bound.empty()) {
    EndedIds& ended = ended_of_tenant_[found->second->tenant];
    if (ended.all.insert(id).second) ended.oldest_first.push_back(id);
    if (ended.oldest_first.size() > kMaxEnded) {
      ended.all.erase(ended.oldest_first.front());
      ended.oldest_first.pop_front();
    }
  }
  in_order_.erase(found->second->place);
  sessions_.erase(found);
}

bool SessionTable::Ended(const std::string& tenant,
                         const std::string& id) const {
  const auto found = ended_of_tenant_.find(tenant);
  return found != ended_of_tenant_.end() && found->second.all.contains(id);
}

Session* SessionTable::Find(const std::string& id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

Session* SessionTable::FindByPrefix(absl::string_view prefix) {
  const auto first = sessions_.lower_bound(std::string(prefix));
  const auto fits = [&](auto entry) {
    return entry != sessions_.end() && absl::StartsWith(entry->first, prefix);
  };
  return fits(first) && !fits(std::next(first)) ? first->second.get() : nullptr;
}

size_t SessionTable::CountOfTenant(const std::string& tenant) const {
  const auto found = of_tenant_.find(tenant);
  return found == of_tenant_.end() ? 0 : found->second.size();
}

std::vector<Session*> SessionTable::WithoutStream(
    const std::string& tenant) const {
  std::vector<Session*> result;
  const auto found = of_tenant_.find(tenant);
  if (found == of_tenant_.end()) return result;
  for (Session* session : found->second) {
    if (session->link.number == 0) result.push_back(session);
  }
  return result;
}

std::vector<Session*> SessionTable::TimedOut(absl::Duration now) const {
  std::vector<Session*> result;
  for (const auto& [id, session] : sessions_) {
    if (session->link.number == 0 && session->deadline <= now) {
      result.push_back(session.get());
    }
  }
  return result;
}

bool IsSessionId(absl::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

uint64_t GraphKey(absl::string_view fingerprint) {
  uint64_t key = 0;
  for (const unsigned char byte : fingerprint.substr(0, 8)) {
    key = key << 8 | byte;
  }
  return key;
}

}  // namespace djinn::coordinator
