// Finds a worker that has memory for what the session holds.
#include "client_lib/session/device/replica/room.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/links.h"
#include "common/base/error.h"

namespace djinn::replica {
namespace {

// Returns whether an error with this reason says that a worker lacks memory.
bool IsLackOfMemory(absl::string_view reason) {
  return reason == "DEVICE_MEMORY" || reason == "SESSION_MEMORY" ||
         reason == "TENANT_MEMORY" || reason == "OUT_OF_MEMORY";
}

// Returns what the worker refused or failed to do, or null.
const v1::ErrorDetail* Refusal(const v1::ControlResponse& response) {
  if (response.has_poisoned()) return &response.poisoned();
  if (response.transfer().has_refused()) return &response.transfer().refused();
  return nullptr;
}

// Returns the number of the message that the response is about, or 0.
uint64_t RefusedSequence(const ConnectionState& c,
                         const v1::ControlResponse& response)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
  if (response.has_poisoned()) return response.poisoned().sequence();
  for (const MessageLog::Entry& entry : c.log.entries()) {
    if (entry.message->ordered().install().transfer().transfer_id() ==
        response.transfer().transfer_id()) {
      return entry.sequence;
    }
  }
  return 0;
}

}  // namespace

uint64_t HeldBytes(State& r) {
  int64_t held = r.role.used_bytes->load(std::memory_order_relaxed);
  r.queue.Visit([&](Work& work) {
    const auto* const install = std::get_if<InstallWork>(&work.action);
    if (install != nullptr && install->wait != nullptr) {
      held -= static_cast<int64_t>(install->source.bytes.size());
    }
  });
  return std::min(static_cast<uint64_t>(std::max<int64_t>(held, 0)),
                  r.connection.limits.memory_bytes());
}

void AskForHeld(const State& r, uint64_t held, v1::LeaseRequest* request) {
  std::vector<const v1::Transfer*> uploads;
  for (const Lineage::Node& node : r.connection.lineage->nodes()) {
    const KeptMessage* const kept = KeptOf(node);
    if (kept == nullptr || kept->request == nullptr) continue;
    const v1::Install& install = kept->request->ordered().install();
    if (install.has_transfer()) uploads.push_back(&install.transfer());
  }
  absl::c_sort(uploads, [](const v1::Transfer* a, const v1::Transfer* b) {
    return a->size_bytes() > b->size_bytes();
  });
  std::set<std::pair<uint64_t, uint64_t>> named;
  for (const v1::Transfer* const upload : uploads) {
    if (request->contents_size() == kMaxContentHints) break;
    // The coordinator adds up what is asked for, and counts equal contents
    // once.
    if (upload->size_bytes() > held ||
        !named.emplace(upload->hash_high(), upload->hash_low()).second) {
      continue;
    }
    held -= upload->size_bytes();
    v1::ContentHint* const hint = request->add_contents();
    hint->set_hash_high(upload->hash_high());
    hint->set_hash_low(upload->hash_low());
    hint->set_size_bytes(upload->size_bytes());
  }
  request->set_needed_bytes(held);
}

bool LeaveForRoom(State& r, const v1::ControlResponse& response) {
  const v1::ErrorDetail* const refusal = Refusal(response);
  if (refusal == nullptr || !IsLackOfMemory(refusal->reason())) return false;
  const absl::Status cause = MakeError(
      absl::StatusCode::kUnavailable, kReplayRefused,
      absl::StrCat("worker lacks memory for the replay: ", refusal->message()));
  absl::Status lost;
  {
    ConnectionState& c = r.connection;
    MutexLock lock(&c.mu);
    RecoveryState& recovery = c.recovery;
    if (c.lineage == nullptr || recovery.due || !c.end.wanted() ||
        !c.end.failing.ok()) {
      return false;
    }
    const uint64_t sequence = RefusedSequence(c, response);
    if (sequence == 0) return false;
    const auto node = absl::c_find_if(c.lineage->nodes(),
                                      [&](const Lineage::Node& candidate) {
                                        return candidate.sequence == sequence;
                                      });
    const bool known = node != c.lineage->nodes().end();
    if (known && node->lacked_memory) return false;
    if (sequence > recovery.last_replayed) {
      if (known) node->lacked_memory = true;
      return false;
    }
    if (!recovery.short_of_memory_since.has_value()) {
      recovery.short_of_memory_since = Now(r);
    }
    const bool patient = Now(r) - *recovery.short_of_memory_since <
                         r.context->options.connect_timeout;
    if (patient && Obstacle(r).empty()) {
      lost = LoseWorker(r, cause);
    } else if (response.has_transfer() && known && node->executed) {
      // The program cannot be told that the upload failed.
      lost = WorkerLost(r, cause);
      recovery.reporter.Failed(lost, Now(r));
    } else {
      if (known) node->lacked_memory = true;
      return false;
    }
  }
  if (!lost.ok()) FailInCallback(r, std::move(lost));
  return true;
}

}  // namespace djinn::replica
