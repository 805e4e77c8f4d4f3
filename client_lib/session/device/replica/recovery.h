// Holds the state of the recovery of a device that loses its worker: another
// worker, or the same one in a new incarnation, executes the kept messages
// (client_lib/session/lineage), and then the device goes on. recovery.cc
// decides, copies.cc asks other devices for their values again, and replay.cc
// encodes the messages.
//
// The connection's lock guards it; ConnectionState says why.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_RECOVERY_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_RECOVERY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client_lib/session/device/answers/answer_table.h"
#include "client_lib/session/device/replica/recovery_reporter.h"
#include "client_lib/session/lineage/lineage.h"
#include "client_lib/session/model/thread_factory.h"
#include "client_lib/session/transfer/kept_copy.h"
#include "client_lib/session/transfer/work.h"
#include "common/hash/hash.h"
#include "common/trace/trace_context.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

struct RecoveryState {
  // Workers that may be lost in succession before the device gives up.
  static constexpr int kMostLosses = 8;
  // Suspicion at which a run is not executed again: two deaths during it.
  static constexpr int kGivenUp = 4;
  // The suspicion that a death adds to a run.
  static constexpr int kDeath = 2;
  // The same, if the worker would have outlived the process that executed the
  // run: then something else has probably ended the worker.
  static constexpr int kUnlikelyDeath = 1;

  // The worker is lost, and no other one has the messages yet.
  bool due = false;
  // Why the last worker was lost.
  absl::Status cause;
  // Why the worker that answered cannot take the session over.
  absl::Status unsuitable;
  // Ids of the lost workers. They may have the contents on disk.
  absl::flat_hash_set<std::string> former_workers;
  // Workers lost since a replay was last executed in full.
  int losses = 0;
  // Workers that were left since then for a source (kSourceLost) or for lack of
  // memory (kReplayRefused). The pauses grow with them. Two devices that fetch
  // from each other might otherwise leave in turn for ever.
  int leaves = 0;
  // When the first of them was left for lack of memory.
  std::optional<absl::Duration> short_of_memory_since;
  // Workers that were lost or not reached, in all (CopySource::View).
  uint64_t workers_lost = 0;
  // How the device offers copies to other devices.
  enum class Offers {
    kQueued,    // like other work
    kNone,      // it looks for a worker
    kReplayed,  // it has a worker, to which it has yet to send the replay
  };
  Offers offers = Offers::kQueued;
  // The storages that keep copies for other devices.
  absl::flat_hash_map<uint64_t, CopyNeeded> kept_copies;
  // Tickets of their offers: those that devices have asked for, until they are
  // sent, and those that the replay had although no device had asked.
  struct AskedOffer {
    std::string ticket;
    // The value of CopyNeeded when the device asked.
    uint64_t needed = 0;
  };
  absl::flat_hash_map<uint64_t, AskedOffer> asked_offers;
  absl::flat_hash_map<uint64_t, std::string> spare_offers;
  // The copies that the replay has offered. An earlier offer of such a copy may
  // still be queued. It is withdrawn, because it would replace the replay's.
  absl::flat_hash_set<uint64_t> replayed_offers;
  // The copies that the worker still has to fetch, in the order of the numbers
  // of their messages, which stand beside them.
  std::deque<std::pair<uint64_t, std::shared_ptr<KeptCopy>>> fetches;
  // A value diverged, of which other devices may have copies.
  bool diverged = false;
  // Number of the last message of the replay, until it is executed.
  uint64_t last_replayed = 0;
  // Numbers of the runs that may have ended the last worker, ascending, until
  // they are executed. Each is sent when everything before it is executed, and
  // what follows it waits for it, so that a further loss has one suspect.
  std::deque<uint64_t> suspects;
  absl::Duration since;
  bool warned = false;  // that the lineage is incomplete
  RecoveryReporter reporter;
  // The recovery's own trace; invalid if it is not sampled.
  TraceContext trace;

  // The registrations of models that the worker has, by id.
  std::map<uint64_t, v1::RegisterModel> models;
  // Waits for the use and for models. The replay asks for them again.
  Unanswered unanswered;
  // Reads of values that the program has seen, by the number of the message.
  struct Check {
    Lineage::Node* node = nullptr;  // held
    std::string hash;
  };
  absl::flat_hash_map<uint64_t, Check> checks;
  // Runs whose metadata the program has, by the number of the message that
  // executes them again. Each is held.
  absl::flat_hash_map<uint64_t, Lineage::Node*> metadata_checks;

  // Uploads that are sent again, and the thread that sends them.
  std::vector<std::shared_ptr<UploadWait>> uploads;
  std::unique_ptr<ThreadFactory::Thread> uploader;

  // Notes that a worker has executed the whole replay.
  void EndReplay() {
    losses = leaves = 0;
    short_of_memory_since.reset();
  }

  // Returns whether the message must wait for a suspected run, or is one that
  // must wait for what precedes it. `completed` is the number of the last
  // message that the worker executed.
  bool Withholds(uint64_t sequence, uint64_t completed) const {
    if (suspects.empty() || sequence < suspects.front()) return false;
    return sequence > suspects.front() || completed + 1 < sequence;
  }
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_RECOVERY_H_
