// What became of a session's runs: of those that wait, of the one in service,
// and of the last few that are over.
//
// Runs come, are begun and are over in one order. What the session does with
// each leaves its mark here, in memory that is used again for the next one:
// once as many runs were over as are kept, a run costs no allocation, but where
// it failed, yielded or had batch that the one before it in its place had
// not.
//
// Not thread-safe. Times are by the worker's monotonic clock.
#ifndef GPU_WORKER_SESSION_OBSERVE_RUN_RECORDS_H_
#define GPU_WORKER_SESSION_OBSERVE_RUN_RECORDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/runs.pb.h"
#include "djinn/v1/types.pb.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "gpu_worker/session/observe/run_gates.h"

namespace djinn::worker {

// A session as others' records name it.
struct RunPeer {
  std::string tenant;
  // Shortened.
  std::string session_id;
};

class RunRecords {
 public:
  // As LeaseRuns.runs in worker_registry.proto.
  static constexpr size_t kOver = 16;
  static constexpr size_t kWaiting = 16;
  // As RunRecord.preemptions and companions.
  static constexpr size_t kPreemptions = 8;
  static constexpr size_t kCompanions = 63;

  // A run as it waits.
  struct Waiting {
    // Its message, with a run.
    const v1::Ordered* message = nullptr;
    absl::Duration arrived;
    // Infinite where there is none.
    absl::Duration deadline = absl::InfiniteDuration();
  };
  // How it ended.
  struct End {
    v1::RunRecord::State state = v1::RunRecord::COMPLETED;
    v1::Phase phase = v1::PHASE_UNSPECIFIED;
    absl::Duration device_time;
    // Making its plan.
    absl::Duration planned;
    // May be null.
    const v1::ErrorDetail* failure = nullptr;
  };

  // The graph was admitted under this id, or is forgotten.
  void Define(uint64_t id, absl::string_view fingerprint);
  void Forget(uint64_t id) { fingerprints_.erase(id); }

  // A run was received when its session had waited so much.
  void Receive(const RunGates::Times& waited);
  // The first of those that wait begins, or waits again after all.
  void Begin(const Waiting& run, v1::Phase phase, const RunGates::Times& waited,
             absl::Duration now);
  void PutBack() { serving_ = false; }
  // The one in service yielded.
  void Yield(const RunPeer& first, absl::string_view reason,
             absl::Duration away);
  // So many of its products were others', too.
  void Share(uint64_t products,
             absl::Span<const std::shared_ptr<const RunPeer>> with);
  // It is over.
  void Finish(const End& end, absl::Duration now);
  // Those that wait, all of them, were given up.
  void Abandon(absl::Span<const Waiting> waiting, const RunGates::Times& waited,
               absl::Duration now);

  // What the session is at.
  struct Moment {
    absl::Duration now;
    // Until now.
    RunGates::Times waited = {};
    // What holds those that wait, and since when.
    v1::RunGate gate = v1::RUN_GATE_UNSPECIFIED;
    absl::Duration since;
    // Messages of the session that are executed.
    uint64_t completed = 0;
  };
  // Adds those that are over, the one in service, and the first of those that
  // wait, in the order of their numbers.
  void Describe(absl::Span<const Waiting> waiting, const Moment& moment,
                google::protobuf::RepeatedPtrField<v1::RunRecord>* out) const;

 private:
  using Fingerprint = std::array<char, 32>;
  struct Preempted {
    std::string tenant;
    std::string session_id;
    // Lives for ever.
    absl::string_view reason;
    uint64_t count = 0;
    absl::Duration time;
  };
  struct Record {
    uint64_t number = 0;
    uint32_t lane = 0;
    int64_t size = 0;
    bool fast = false;
    // Of the graph; nothing where it is not known.
    std::optional<Fingerprint> fingerprint;
    absl::Duration arrived;
    absl::Duration deadline;
    absl::Duration began;
    absl::Duration ended;
    bool begun = false;
    RunGates::Times waits = {};
    End end;
    uint64_t yield_count = 0;
    absl::Duration yielded_for;
    std::vector<Preempted> preemptions;
    uint64_t shared_products = 0;
    std::vector<std::shared_ptr<const RunPeer>> companions;
    std::string reason;
    std::string message;
    std::string operator_name;
    std::optional<uint32_t> node;
  };

  // What is known of a run before it begins; the place of its arrival.
  void Fill(const Waiting& run, size_t place, const RunGates::Times& waited,
            Record* record) const;
  // Where the one in service goes, or the next one that is.
  Record* current();
  // It is over: what was there longest will make room for the next one.
  void KeepCurrent() { place_ = (place_ + 1) % kPlaces; }
  static void DescribeOne(const Record& record, absl::Duration now,
                          v1::RunRecord* out);
  void SetWaits(size_t place, const RunGates::Times& waited,
                Record* record) const;

  absl::flat_hash_map<uint64_t, Fingerprint> fingerprints_;
  // The session's waiting times when each unfinished run arrived, in order.
  std::deque<RunGates::Times> arrivals_;
  bool serving_ = false;
  // Those that are over, and current(): a ring, which grows until it is full.
  static constexpr size_t kPlaces = kOver + 1;
  std::vector<Record> records_;
  size_t place_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_RUN_RECORDS_H_
