// Defines the items that issuing threads pass to a device's sender thread, in
// the order in which they must reach the worker, and the waits for their
// results.
#ifndef CLIENT_LIB_SESSION_TRANSFER_WORK_H_
#define CLIENT_LIB_SESSION_TRANSFER_WORK_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/profile/request_stages.h"
#include "client_lib/session/profile/request_tracer.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/segment.h"
#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/stream/chunk_map.h"
#include "client_lib/session/stream/run_binding.h"
#include "client_lib/session/transfer/kept_copy.h"
#include "common/base/mutex.h"
#include "common/hash/hash.h"
#include "common/srg/graph.h"
#include "common/trace/trace_context.h"
#include "common/transport/shared_bytes.h"

namespace djinn {

// A storage's contents after the calls that were recorded so far.
struct StorageVersion {
  uint64_t storage_id = 0;
  uint64_t version = 0;
  uint64_t bytes = 0;

  friend bool operator==(const StorageVersion&,
                         const StorageVersion&) = default;
};

// A thread that waits for the worker. The lock of the answers
// (device/answers/answers.h) guards the fields of waits.
struct Waiter {
  CondVar changed;
};

// Waits for the metadata of a run.
struct MetadataWait : Waiter {
  size_t expected = 0;  // unknown results
  bool done = false;
  std::vector<ResultMetadata> results;
  absl::Status error;
};

// Waits until a hash-first upload is refused, or until its bytes are on the
// worker (upload_table.h).
struct UploadWait : Waiter {
  enum class State {
    // The worker has yet to decide, perhaps about a proof that it asked for.
    kAsked,
    // The worker asks for a proof that the process has the bytes.
    kProve,
    // The worker has room and waits for the bytes.
    kSend,
    // Nothing is left to do; `refusal` has the outcome.
    kOver,
  };
  State state = State::kAsked;
  absl::Status refusal;
  // The worker executed the Install.
  bool completed = false;
  uint64_t transfer_id = 0;
  // True if this device uploaded an equal content before.
  bool uploaded_before = false;
  // The offset at which the bytes continue on a new stream.
  uint64_t resume_at = 0;
  std::string key;    // of the proof
  std::string proof;  // kept for a new stream

  // Asks another worker in place of the one that was asked, which is lost.
  void AskAgain() {
    if (state == State::kOver) return;
    state = State::kAsked;
    completed = false;
    resume_at = 0;
    key.clear();
    proof.clear();
  }
};

// Waits for a value.
struct ReadWait : Waiter {
  ReadWait(void* destination, uint64_t bytes)
      : destination(static_cast<char*>(destination)), bytes(bytes) {}

  char* const destination;
  const uint64_t bytes;
  bool done = false;
  // no thread waits, and the destination is the program's
  bool abandoned = false;
  int copying = 0;           // chunks being copied to the destination
  uint64_t transfer_id = 0;  // not 0: the value comes on Bulk
  uint64_t sequence = 0;     // of the message that asks
  // of the announcement of bulk bytes, once it arrived
  uint64_t reply_number = 0;
  bool announced = false;
  std::optional<ChunkMap> chunks;
  std::optional<std::string> value;  // arrived in the reply
  std::unique_ptr<ReadMarks> marks;  // null while no profile runs
  absl::Status error;
  std::unique_ptr<TracedRead> traced;  // null if it ends no sampled request
};

// Waits for the worker's last report of a profile.
struct ProfileWait : Waiter {
  uint64_t sequence = 0;  // of the message that asks for it
  bool done = false;
};

// Waits for the worker's answer to a model.
struct ModelWait : Waiter {
  bool done = false;
  absl::Status refusal;
  uint64_t model_id = 0;
};

struct RunWork {
  Segment* segment;
  std::shared_ptr<MetadataWait> metadata;  // null if no thread waits
};
// Executes a part of a captured graph. If `sized` is set, that graph at that
// size replaces the part's own graph: it executes some of the rows, or a stage.
struct ReplayWork {
  std::shared_ptr<const CapturedGraph> captured_graph;
  size_t part;
  // The execution mode when the work was stamped.
  RunMode mode;
  std::shared_ptr<const SizedGraph> sized;
  int64_t size;
  // The bindings by slot. `held` owns their storages.
  std::vector<RunBinding> bindings;
  std::vector<StoragePtr> held;
  // Replace the captured graph's numbers, unless null. Null with `sized`.
  std::shared_ptr<const CapturedNumbers> numbers = nullptr;
};
struct InstallWork {
  uint64_t base_version = 0;
  // If null, `copy` has the bytes and no thread waits.
  std::shared_ptr<UploadWait> wait;
  std::string copy;
  // The copy counts as an eager upload (eager_uploads.h).
  bool eager = false;
  // Set with `wait`: the program's bytes, their hash, and whether this device
  // uploaded them before.
  SharedBytes source;
  ContentHash hash;
  bool uploaded_before = false;
};
struct SeedWork {
  uint64_t base_version;
  uint64_t seed;
};
struct CreateWork {
  uint64_t base_version;
  uint64_t size_bytes;
};
struct ReadWork {
  uint64_t version;
  srg::TensorView view;
  std::shared_ptr<ReadWait> wait;
};

// The priority of a value's move among others of the session: see v1::Offer.
struct OfferRank {
  // 0 if the value belongs to no round.
  uint64_t round = 0;
  // Infinite if unknown.
  double remaining_seconds = std::numeric_limits<double>::infinity();
};
// Keeps the source's value of a copy on the source's worker, from which the
// destination's worker fetches it.
struct OfferWork {
  uint64_t version;
  std::string ticket;
  OfferRank rank;
  // See CopySource::View. The offer is not sent if the number has changed
  // since, because nobody comes to fetch it.
  uint64_t losses = 0;
  bool withdrawn = false;
};
// Replaces the storage's contents by those of another one on the same worker.
struct CopyWork {
  uint64_t base_version;
  StoragePtr source;
  uint64_t source_version;
  CopyNeeded needed;
};
struct PullWork {
  uint64_t base_version = 0;
  OfferedCopy offered;
  // Null if the value cannot be offered again.
  std::shared_ptr<KeptCopy> kept = nullptr;
};

// Ends the profile on the worker.
struct ProfileWork {
  std::shared_ptr<ProfileWait> wait;
};

struct MeterWait;
struct MeterWork {
  std::shared_ptr<MeterWait> wait;
};

struct ModelWork {
  uint64_t model_id;
  std::string name;
  std::vector<StoragePtr> storages;
  std::shared_ptr<ModelWait> wait;
};

struct Work {
  uint32_t lane = 0;
  StoragePtr storage;  // not set for runs, profiles, meters and models
  // Bytes that the work holds here until it is sent.
  size_t footprint_bytes = 0;
  using Action = std::variant<RunWork, ReplayWork, InstallWork, SeedWork,
                              CreateWork, ReadWork, OfferWork, CopyWork,
                              PullWork, ProfileWork, MeterWork, ModelWork>;
  Action action;
  // The sampled request that the work belongs to; invalid if none.
  TraceContext trace = {};
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_WORK_H_
