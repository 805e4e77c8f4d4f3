// A stretch of one lane's calls, kept so that it can be executed again on
// other storages without being captured again: what a registered callable is to
// a session.
//
// The storages that its calls name are of three kinds: those it is *given* anew
// each time, those it *keeps* naming (parameters, buffers, generators), and
// those it *makes*, of which some leave it as its outputs and the rest are
// temporaries.
//
// It is executed as one run or several: one ends with what the outputs
// need, so that they can be read while the rest is executed.
#ifndef CLIENT_LIB_SESSION_RECORDING_RECORDING_H_
#define CLIENT_LIB_SESSION_RECORDING_RECORDING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/remote_storage.h"
#include "common/srg/graph.h"

namespace djinn {

class RowSharing;

// One run of it.
struct RecordingPart {
  static constexpr uint32_t kNoOutput = 0xffffffff;

  struct Slot {
    enum class Source : uint8_t { kGiven, kKept, kMade };
    Source source = Source::kMade;
    // Into what is given, Recording::kept or what is made.
    uint32_t index = 0;
    // Which output it is, of what is made.
    uint32_t output = kNoOutput;
    uint32_t writes = 0;
    bool reads = false;
    bool born = false;
    // A temporary that no later part names.
    bool dies = false;
  };

  // See graph_builder.h.
  std::string key;
  srg::Graph graph;
  std::vector<Slot> slots;
  std::vector<double> floats;
  std::vector<ScalarValue> scalar_tensors;
  // Call sites by node; empty when none is known.
  std::vector<uint32_t> sites;
};

// Immutable, shared by whoever carries it out.
struct Recording {
  // Another in every recording of the process.
  uint64_t number = 0;
  std::vector<RecordingPart> parts;
  size_t given = 0;
  std::vector<StoragePtr> kept;
  uint32_t made = 0;
  // The sizes of the outputs' storages.
  std::vector<uint64_t> output_bytes;
  // On a device that spans workers: how its rows are shared out (row_shares.h).
  std::shared_ptr<RowSharing> sharing;
};

// Records. Not thread-safe: the device's lock guards it.
class Recorder {
 public:
  // Calls of a recording, and of one of its parts, which a worker takes.
  static constexpr size_t kMaxCalls = 65536;
  static constexpr size_t kMaxPartCalls = 4096;
  // What follows the last call that awaited outputs need is a part of its own
  // if it has so many calls.
  static constexpr size_t kMinRest = 4;

  // The call before the device takes it. `is_born`: whether something was
  // written to, or named, a storage before.
  void Add(const Call& call, absl::FunctionRef<bool(RemoteStorage*)> is_born);
  // Takes back the call that was added last: the device did not take it.
  void Retract();
  // Something happened that cannot be executed again; the first counts.
  void Refuse(absl::string_view reason, absl::string_view what);
  const absl::Status& refusal() const { return refusal_; }

  // What the calls add up to. FailedPrecondition with
  // a reason and a text for people: READS_VALUE and others of Refuse(),
  // KEEPS_TENSOR (a storage that was made stays and is no output), NOT_MADE (an
  // output that existed before), OUTPUT_TWICE, NOT_BORN (a given storage that
  // nothing had filled), TOO_LONG, NO_CALLS.
  absl::StatusOr<std::shared_ptr<Recording>> Finish(
      absl::Span<RemoteStorage* const> given,
      absl::Span<RemoteStorage* const> outputs, size_t awaited) const;

 private:
  struct Step {
    Call call;
    // Touches that create their storage, zero-filled, of these bytes.
    std::vector<std::pair<size_t, uint64_t>> creations;
  };

  // A storage over the whole recording.
  struct Role {
    RecordingPart::Slot::Source source = RecordingPart::Slot::Source::kKept;
    uint32_t index = 0;
    // Of one that is made: the calls that make it, write it and name it last.
    size_t first = 0;
    size_t last_write = 0;
    size_t last = 0;
    uint32_t output = RecordingPart::kNoOutput;
  };
  using Roles = absl::flat_hash_map<const RemoteStorage*, Role>;

  Roles FindRoles(absl::Span<RemoteStorage* const> given,
                  Recording* recording) const;
  absl::Status NoneStays(const Roles& roles) const;
  // The calls from `begin` to `end`.
  RecordingPart BuildPart(size_t begin, size_t end, const Roles& roles) const;

  std::vector<Step> steps_;
  absl::Status refusal_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_RECORDING_H_
