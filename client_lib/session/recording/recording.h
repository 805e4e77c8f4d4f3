// Defines captured graphs. A captured graph is a stretch of one lane's calls
// that can execute on other storages without another capture. A session keeps
// captured graphs for registered callables.
//
// The calls name storages of three kinds. *Inputs* (kGiven) are passed at each
// execution. *Captured* storages (kKept), such as parameters, buffers and
// generators, stay the same. *Intermediates* (kMade) are created by the calls;
// some of them are the outputs, and the rest are temporaries.
//
// A captured graph executes as one or more runs. The first run may end where
// the awaited outputs are complete, so that they can be read while the
// remaining runs execute.
#ifndef CLIENT_LIB_SESSION_RECORDING_RECORDING_H_
#define CLIENT_LIB_SESSION_RECORDING_RECORDING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/segment.h"
#include "common/base/mutex.h"
#include "common/srg/graph.h"

namespace djinn {

class RowSharing;

// The numbers among the arguments of a part's calls, in an execution whose
// numbers differ from those of the capture. As in CapturedPart.
struct PartNumbers {
  std::vector<double> floats;
  std::vector<ScalarValue> scalar_tensors;
};

// By part of a captured graph.
using CapturedNumbers = std::vector<PartNumbers>;

// A single run of a captured graph.
struct CapturedPart {
  static constexpr uint32_t kNoOutput = 0xffffffff;

  struct Slot {
    enum class Source : uint8_t { kGiven, kKept, kMade };
    Source source = Source::kMade;
    // Index among the inputs, in CapturedGraph::kept, or among the
    // intermediates.
    uint32_t index = 0;
    // Index of the output that an intermediate is, if any.
    uint32_t output = kNoOutput;
    uint32_t writes = 0;
    bool reads = false;
    bool created = false;
    // A temporary that no later part names.
    bool dies = false;
  };

  // The graph's key: see BuildGraphKey().
  std::string key;
  srg::Graph graph;
  std::vector<Slot> slots;
  std::vector<double> floats;
  std::vector<ScalarValue> scalar_tensors;
  // Call sites by node; empty when none is known.
  std::vector<uint32_t> sites;
};

// A captured graph. Immutable; the threads that execute it share it.
//
// Two checks precede an execution. A registered callable compares the guard of
// the call with that of the captured one (callable/call_guard.h), which decides
// whether the calls would be the same. CallRecorder::Replay() then checks the
// storages: they belong to the device, and those in `kept` are still there.
struct CapturedGraph {
  // Unique among the captured graphs of the process.
  uint64_t number = 0;
  std::vector<CapturedPart> parts;
  size_t given = 0;
  std::vector<StoragePtr> kept;
  uint32_t made = 0;
  // The sizes of the outputs' storages.
  std::vector<uint64_t> output_bytes;
  // Says how a multi-worker device divides the rows (row_shares.h).
  std::shared_ptr<RowSharing> sharing;
};

// Captures a graph. Not thread-safe: the device's lock guards it.
class Recorder {
 public:
  // Limits on the calls of a captured graph, and of the part that one run
  // executes. A worker accepts runs up to this limit.
  static constexpr size_t kMaxCalls = 65536;
  static constexpr size_t kMaxPartCalls = 4096;
  // Operands and results, and bytes of call templates, after which a part ends.
  static constexpr size_t kMaxPartTouches = 32768;
  static constexpr size_t kMaxPartBytes = 4 << 20;
  // The calls after the last one that awaited outputs need get a run of their
  // own if there are at least this many.
  static constexpr size_t kMinRest = 4;

  // Adds a call before the device takes it. `is_created` returns whether an
  // earlier message wrote to a storage or named it.
  void Add(const Call& call,
           absl::FunctionRef<bool(RemoteStorage*)> is_created);
  // Removes the call that was added last, because the device did not take it.
  void Retract();
  // Notes that the lane did something that cannot be executed a second time.
  // Only the first refusal counts.
  void Refuse(absl::string_view reason, absl::string_view what);
  const absl::Status& refusal() const { return refusal_; }

  // Returns the captured graph, or FailedPrecondition with a reason and a
  // human-readable text. Reasons: READS_VALUE and other reasons passed to
  // Refuse(), KEEPS_TENSOR (an intermediate is still in use and is no output),
  // NOT_MADE (an output existed before), OUTPUT_TWICE, TOO_LONG, NO_CALLS.
  absl::StatusOr<std::shared_ptr<CapturedGraph>> Finish(
      absl::Span<RemoteStorage* const> given,
      absl::Span<RemoteStorage* const> outputs, size_t awaited) const;

 private:
  struct Step {
    Call call;
    // Touches that create their storage zero-filled, with the storage's size in
    // bytes.
    std::vector<std::pair<size_t, uint64_t>> creations;
  };

  // The role of a storage in the whole captured graph.
  struct Role {
    CapturedPart::Slot::Source source = CapturedPart::Slot::Source::kKept;
    uint32_t index = 0;
    // The first call that names an intermediate, the last call that writes it,
    // and the last call that names it.
    size_t first = 0;
    size_t last_write = 0;
    size_t last = 0;
    uint32_t output = CapturedPart::kNoOutput;
  };
  using Roles = absl::flat_hash_map<const RemoteStorage*, Role>;

  Roles FindRoles(absl::Span<RemoteStorage* const> given,
                  CapturedGraph* captured_graph) const;
  absl::Status NoneStays(const Roles& roles) const;
  // Returns where the part that begins at the call ends, at `last` at the
  // latest.
  size_t PartEnd(size_t begin, size_t last) const;
  // Builds a part of the calls [begin, end).
  CapturedPart BuildPart(size_t begin, size_t end, const Roles& roles) const;

  std::vector<Step> steps_;
  absl::Status refusal_;
};

// Builds a graph from a segment's calls, and the key of that graph. The key
// contains everything except the varying values: operators and call templates,
// the slot of each touch, its access, and the kinds of the slots.

// `slot_of_touch` has an entry per touch of the segment; `kinds` one per slot.
void BuildGraphKey(const Segment& segment,
                   absl::Span<const uint32_t> slot_of_touch,
                   absl::Span<const srg::Slot> kinds, std::string* key);
srg::Graph BuildGraph(const Segment& segment,
                      absl::Span<const uint32_t> slot_of_touch,
                      absl::Span<const srg::Slot> kinds);

// Returns the start of a key, which is the same for all keys with the same
// operators and the same numbers of operands and dimensions.
absl::string_view KeyHeader(absl::string_view key);
// Returns the positions in the key of the 64-bit integers that a size hole may
// name, in the order of srg::ForEachInteger() over the key's graph.
std::vector<uint32_t> FindKeyIntegers(absl::string_view key);

// Returns the kind of a slot whose first use is a touch with this access.
// `created_bytes` points to the storage's size if the touch creates the storage
// zero-filled, and is null otherwise.
srg::Slot KindOfFirstTouch(uint8_t access, const uint64_t* created_bytes);

// Returns whether the calls depend on the storage's contents before the first
// touch.
bool ReadsBefore(const srg::Slot& kind, uint8_t first_access);

// Error reason: only a device with a single worker supports the operation.
inline constexpr char kSpansWorkers[] = "SPANS_WORKERS";

// Holds the graphs that a virtual device is capturing, at most one per lane. A
// lane's graph stays here, independently of which worker takes the lane's
// calls.
//
// Thread-safe. Only the `is_created` callback of Add() runs under its lock.
class GraphCaptures {
 public:
  // Starts to capture the lane's calls. Returns FailedPrecondition
  // (ALREADY_RECORDING) if the lane is being captured already.
  absl::Status Start(uint32_t lane);
  // Ends the lane's capture. Returns null if there is none.
  std::unique_ptr<Recorder> Take(uint32_t lane);

  // Returns whether any lane is being captured. The result is only a hint,
  // which costs a call one load.
  bool any() const { return count_.load(std::memory_order_relaxed) > 0; }

  // Adds a call that a worker is about to take. `is_created` is as for
  // Recorder::Add().
  void Add(uint32_t lane, const Call& call,
           absl::FunctionRef<bool(RemoteStorage*)> is_created);
  // Removes the last call, because no worker took it.
  void Retract(uint32_t lane);

  // Refuses the lane's capture, because the lane did something that cannot be
  // executed a second time. Only the first refusal counts.
  void Refuse(uint32_t lane, absl::string_view reason, absl::string_view what) {
    if (ABSL_PREDICT_FALSE(any())) RefuseOne(lane, reason, what);
  }
  void RefuseAll(absl::string_view reason, absl::string_view what);
  // Returns the refusal, or OK if the lane is not captured.
  absl::Status Refusal(uint32_t lane) const;

 private:
  void RefuseOne(uint32_t lane, absl::string_view reason,
                 absl::string_view what);

  std::atomic<size_t> count_{0};
  mutable Mutex mu_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Recorder>> by_lane_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_RECORDING_H_
