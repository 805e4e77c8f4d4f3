#include "gpu_worker/session/state/session_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/log/log.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {
namespace {

// A client cannot make the log grow without bound by failing.
constexpr uint64_t kLoggedErrors = 100;

// These bound the room for eager uploads that a session reports: to this much,
// and to this part of the free memory, because other sessions may take some of
// it meanwhile. The room is rounded down to whole steps, so that it changes
// seldom and does not reveal what other sessions do.
constexpr uint64_t kMaxContentsUnderWay = uint64_t{32} << 20;
constexpr uint64_t kRoomPart = 4;
constexpr uint64_t kRoomStep = uint64_t{1} << 20;

// Returns a callback that charges the time that a proof takes; it may outlive
// the session.
std::function<void(absl::Duration)> ProofCallback(const SessionState& s) {
  return [meter = s.who.meter, counts = s.counts,
          changed =
              s.who.environment.contents_changed](absl::Duration used) mutable {
    counts.Proof(used);
    if (meter->Add(v1::PHASE_UNSPECIFIED, used)) changed();
  };
}

void LogErrors(const SessionState& s, const std::vector<RootError>& errors) {
  if (s.errors.count() > kLoggedErrors) return;
  for (const RootError& error : errors) {
    log::Warning("root error",
                 {{"error_id", absl::StrCat(absl::Hex(error->error_id()))},
                  {"tenant", s.who.tenant},
                  {"reason", error->reason()},
                  {"operator", error->operator_name()},
                  {"operands", error->operands()},
                  {"what", error->message()}});
  }
}

}  // namespace

SessionState::SessionState(SessionIdentity identity)
    : who(std::move(identity)),
      counts(who.environment.metrics, who.tenant),
      log(who.environment.served, std::shared_ptr<const ServedTime::Tenant>(
                                      who.account, who.account->served())),
      quota(MemoryLimits::Of(who.limits), who.account->memory()),
      storage_memory(who.environment.memory, &quota, who.tenant),
      models(who.account.get()),
      graphs(&who.environment, who.tenant, who.limits.max_graphs()),
      errors(who.environment.worker_id, who.tenant, who.environment.random),
      offers(who.environment.offers, &quota, who.session_id),
      pulls(&who.environment, who.session_id, who.tenant,
            SettledCallback(*this)),
      uploads(&who.environment, who.tenant, who.limits.inline_bytes(),
              &who.traffic(), {SettledCallback(*this), ProofCallback(*this)}),
      flow(who.limits, who.environment.clock, &log, &who.traffic(), &uploads,
           &pulls),
      replies(who.environment.outbox_bytes, &who.traffic(),
              who.environment.clock, SettledCallback(*this)) {
  quota.SetGiveUp([this](uint64_t missing) {
    return copies.GiveUp(missing, storages, offers, &errors);
  });
}

std::function<void()> SettledCallback(const SessionState& s) {
  return [mark = s.log.mark(), clock = s.who.environment.clock,
          runnable = s.who.callbacks.runnable] {
    mark->Settled(clock->Monotonic());
    runnable();
  };
}

absl::StatusOr<Storage*> NextVersion(SessionState& s, uint64_t id,
                                     uint64_t base_version) {
  if (id == 0) return Violation("storage 0");
  Storage* storage = s.storages.Find(id);
  if (base_version == 0) {
    if (s.storages.Used(id)) {
      return Violation(absl::StrCat("storage ", id, " is created twice"));
    }
    storage = s.storages.Create(id);
  } else if (storage == nullptr) {
    return Violation(absl::StrCat("storage ", id, " does not exist"));
  } else if (storage->version != base_version) {
    return Violation(absl::StrCat("storage ", id, " has version ",
                                  storage->version, ", not ", base_version));
  }
  storage->version = base_version + 1;
  return storage;
}

void Fail(SessionState& s, absl::Status status) {
  if (s.flow.Fail()) s.who.callbacks.fail(std::move(status));
}

void CountStorages(SessionState& s) {
  const uint64_t now = s.storages.size();
  const auto more = static_cast<int64_t>(now - s.status.storages);
  s.status.storages = now;
  if (more == 0) return;
  const uint64_t all = s.who.account->AddStorages(more);
  if (more < 0 || all <= TenantAccount::kMaxStorages) return;
  Fail(s, MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_STORAGES",
                    absl::StrCat("tenant ", s.who.tenant, " has ", all,
                                 " storages on this worker, at most ",
                                 TenantAccount::kMaxStorages, " are allowed"),
                    {{"limit", absl::StrCat(TenantAccount::kMaxStorages)},
                     {"used", absl::StrCat(all)}}));
}

void FreeState(SessionState& s) {
  // Counts the bytes of a message that was begun and is not completed.
  s.who.traffic().Add(Traffic::kMessagesIn, std::exchange(s.message.bytes, 0));
  s.offers.Clear();
  s.entering = nullptr;
  s.pulls.Forget();
  s.uploads.Forget();
  s.storages.Clear();
  s.models.Clear();
  s.graphs.Clear();
  s.profiling.arrivals.End(std::exchange(s.profiling.profile, nullptr));
  CountStorages(s);
  s.status.graphs = 0;
  s.replies.outbox.Forget();
}

uint64_t RoomForContents(const SessionState& s) {
  const Ledger::Usage device = s.who.environment.memory->ledger()->usage();
  const uint64_t room =
      std::min(device.limit - device.used, s.quota.RoomForContents());
  return std::min(room / kRoomPart / kRoomStep * kRoomStep,
                  kMaxContentsUnderWay);
}

void SayRoom(SessionState& s, v1::ControlResponse* response) {
  const uint64_t room = RoomForContents(s);
  if (s.status.reported_room.exchange(room, std::memory_order_relaxed) ==
      room) {
    return;
  }
  response->set_content_room(room);
}

void AddTiming(const SessionState& s, v1::ControlResponse* response) {
  // A message that arrived before the profile began has no mark.
  if (s.profiling.profile == nullptr || !s.message.mark.has_value()) return;
  *response->mutable_timing() = s.profiling.profile->TimingOf(*s.message.mark);
}

void Complete(SessionState& s, uint64_t sequence) {
  SessionReplies& replies = s.replies;
  s.who.traffic().Add(Traffic::kMessagesIn, s.message.bytes);
  CountStorages(s);
  s.status.graphs = static_cast<uint32_t>(s.graphs.size());
  std::vector<v1::ControlResponse> responses;
  const std::vector<RootError> errors = s.errors.TakeNew();
  LogErrors(s, errors);
  for (const RootError& error : errors) {
    *responses.emplace_back().mutable_poisoned() = *error;
  }
  for (v1::ControlResponse& reply : std::exchange(replies.pending, {})) {
    responses.push_back(std::move(reply));
  }
  const v1::SessionLimits& limits = s.who.limits;
  const WindowWidth width = s.who.account->Share(limits);
  const MessageFlow::Completed completed = s.flow.Complete(
      sequence, std::exchange(s.message.bytes, 0), s.message.counts, width);
  const v1::Window& window = completed.window;
  const uint64_t messages = window.messages() - replies.window.messages();
  const uint64_t bytes = window.bytes() - replies.window.bytes();
  if (responses.empty() &&
      (completed.empty ||
       sequence - replies.reported > limits.max_outstanding() / 4 ||
       messages > width.messages / 4 || bytes > width.bytes / 4)) {
    responses.emplace_back();
  }
  // The client must see the effects of a message before it sees the message
  // completed.
  for (size_t i = 0; i < responses.size(); ++i) {
    v1::ControlResponse& response = responses[i];
    const bool last = i + 1 == responses.size();
    response.set_completed_sequence(last ? sequence : sequence - 1);
    if (last) {
      replies.reported = sequence;
      if (messages > 0 || bytes > 0) {
        *response.mutable_window() = window;
        replies.window = window;
      }
      SayRoom(s, &response);
    }
    if (ABSL_PREDICT_FALSE(s.profiling.profile != nullptr) &&
        response.has_read()) {
      AddTiming(s, &response);
    }
    if (response.message_case() == v1::ControlResponse::MESSAGE_NOT_SET) {
      replies.outbox.PushNews(std::move(response));
    } else {
      replies.outbox.Push(std::move(response));
    }
  }
  // A new stream's hello reports the completed messages whose replies were
  // sent.
  if (s.flow.Announce(sequence, completed.stream)) return;
  // News about this message went to a stream that is gone, so it is sent again.
  v1::ControlResponse again;
  again.set_completed_sequence(sequence);
  SayRoom(s, &again);
  replies.outbox.PushNews(std::move(again));
}

// Returns what the messages before this one used: steps are charged when they
// are over, and the one in progress has charged nothing yet.
v1::MeteredUse UseSoFar(const SessionState& s) {
  const Traffic& traffic = s.who.traffic();
  v1::MeteredUse use;
  use.set_device_nanoseconds(static_cast<uint64_t>(
      absl::ToInt64Nanoseconds(s.who.meter->device_time())));
  use.set_received_bytes(traffic.bytes(Traffic::kMessagesIn) +
                         traffic.bytes(Traffic::kBulkIn));
  use.set_sent_bytes(traffic.bytes(Traffic::kMessagesOut) +
                     traffic.bytes(Traffic::kBulkOut));
  use.set_runs(s.runs.done);
  return use;
}

}  // namespace djinn::worker
