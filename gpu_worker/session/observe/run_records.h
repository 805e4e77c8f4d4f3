// Records a session's runs: those that wait, the one in service, and the last
// few that are over.
//
// Runs arrive, begin and end in one order. Records reuse their memory: once the
// ring of finished runs is full, a run allocates only if it failed, yielded or
// ran in a batch, and the run whose entry it takes did not.
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
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/runs.pb.h"
#include "djinn/v1/types.pb.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "gpu_worker/session/observe/run_gates.h"

namespace djinn::v1 {
class Ordered;
}  // namespace djinn::v1

namespace djinn::worker {

// A session as records of other sessions name it.
struct RunPeer {
  std::string tenant;
  // Shortened.
  std::string session_id;
};

class RunRecords {
 public:
  // See LeaseRuns.runs in worker_registry.proto.
  static constexpr size_t kOver = 16;
  static constexpr size_t kWaiting = 16;
  // See RunRecord.preemptions and companions.
  static constexpr size_t kPreemptions = 8;
  static constexpr size_t kCompanions = 63;

  // A run that waits.
  struct Waiting {
    // The run's message.
    const v1::Ordered* message = nullptr;
    absl::Duration arrived;
    // Infinite when the run has none.
    absl::Duration deadline = absl::InfiniteDuration();
  };
  // How a run ended.
  struct End {
    v1::RunRecord::State state = v1::RunRecord::COMPLETED;
    v1::Phase phase = v1::PHASE_UNSPECIFIED;
    absl::Duration device_time;
    // The time it took to make the plan.
    absl::Duration planned;
    // May be null.
    const v1::ErrorDetail* failure = nullptr;
  };

  // Define() notes that the graph was admitted under this id, and Forget() that
  // it is forgotten.
  void Define(uint64_t id, absl::string_view fingerprint);
  void Forget(uint64_t id) { fingerprints_.erase(id); }

  // Records that a run was received when its session had these waiting times.
  void Receive(const RunGates::Times& waited);
  // Begin() records that the first run that waits begins, and PutBack() that it
  // waits again after all.
  void Begin(const Waiting& run, v1::Phase phase, const RunGates::Times& waited,
             absl::Duration now);
  void PutBack() { serving_ = false; }
  // Records that the run in service yielded.
  void Yield(const RunPeer& first, absl::string_view reason,
             absl::Duration away);
  // Records how many of its products the run in service shared, and with whom.
  void Share(uint64_t products,
             absl::Span<const std::shared_ptr<const RunPeer>> with);
  // Records the end of the run in service, and describes it in `out` unless
  // that is null. Returns whether there was such a run.
  bool Finish(const End& end, absl::Duration now, v1::RunRecord* out = nullptr);
  // Records that all runs that wait were given up.
  void Abandon(absl::Span<const Waiting> waiting, const RunGates::Times& waited,
               absl::Duration now);

  // The session's state at one moment.
  struct Moment {
    absl::Duration now;
    // The waiting times until `now`.
    RunGates::Times waited = {};
    // The gate that holds the runs that wait, and since when.
    v1::RunGate gate = v1::RUN_GATE_UNSPECIFIED;
    absl::Duration since;
    // How many messages of the session are executed.
    uint64_t completed = 0;
  };
  // Adds the runs that are over, the one in service, and the first of those
  // that wait, in the order of their numbers.
  void Describe(absl::Span<const Waiting> waiting, const Moment& moment,
                google::protobuf::RepeatedPtrField<v1::RunRecord>* out) const;

 private:
  using Fingerprint = std::array<char, 32>;
  struct Preempted {
    std::string tenant;
    std::string session_id;
    // Never freed.
    absl::string_view reason;
    uint64_t count = 0;
    absl::Duration time;
  };
  struct Record {
    uint64_t number = 0;
    uint32_t lane = 0;
    int64_t size = 0;
    bool fast = false;
    // The graph's; unset when it is not known.
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

  // Fills in what is known of a run before it begins. `place` indexes
  // arrivals_.
  void Fill(const Waiting& run, size_t place, const RunGates::Times& waited,
            Record* record) const;
  // Returns the record of the run in service, or of the next one to be.
  Record* current();
  // Keeps the current record as over. The oldest record becomes the current
  // one.
  void KeepCurrent() { place_ = (place_ + 1) % kPlaces; }
  static void DescribeOne(const Record& record, absl::Duration now,
                          v1::RunRecord* out);
  void SetWaits(size_t place, const RunGates::Times& waited,
                Record* record) const;

  absl::flat_hash_map<uint64_t, Fingerprint> fingerprints_;
  // The session's waiting times when each unfinished run arrived, in order.
  std::deque<RunGates::Times> arrivals_;
  bool serving_ = false;
  // A ring of the runs that are over, and current(). It grows until it is full.
  static constexpr size_t kPlaces = kOver + 1;
  std::vector<Record> records_;
  size_t place_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_RUN_RECORDS_H_
