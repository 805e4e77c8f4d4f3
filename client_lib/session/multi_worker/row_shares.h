// How the rows of a recording are shared out between the members of a virtual
// device that spans workers, or go through them in micro-batches: what the
// coordinator is asked, and what its answer makes of the recording.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_ROW_SHARES_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_ROW_SHARES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/stream/run_encoder.h"
#include "common/base/mutex.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

// Immutable.
struct RowShares {
  struct Part {
    int member = 0;
    // The rows from `first` on.
    uint64_t first = 0;
    uint64_t rows = 0;
  };

  // Of the run at size n - `rows`, which is that of n rows.
  int64_t SizeOf(uint64_t of_rows) const {
    return static_cast<int64_t>(of_rows) - static_cast<int64_t>(rows);
  }

  uint64_t rows = 0;
  // In the order of the rows, on a member each; two at least. Where there are
  // stages, micro-batches that go through these, beginning at the first one's
  // member.
  std::vector<Part> parts;
  // By stage, its member, each another one. Empty: the parts are whole.
  std::vector<int> stages;
  // Where there are stages, as srg::CheckStageOrder() takes it.
  std::vector<uint32_t> stage_of_node;
  // By slot and member, where stages of others make what the slot is bound to:
  // how long the run still takes once it has come there.
  absl::flat_hash_map<std::pair<uint32_t, int>, double> remaining_seconds;
  // With the stages' rows and numbers, the names of their graphs.
  std::string stages_key;
  // The bytes of a row, by what the recording is given and by output. Of what
  // is given 0: every part has all of it.
  std::vector<uint64_t> given_row_bytes;
  std::vector<uint64_t> output_row_bytes;
  // The recording's graph, with a size.
  SizedGraph graph;
};

// FailedPrecondition, with a text for people, for a recording that is not
// executed in one run, or that writes what was there before.
absl::Status CheckShareable(const Recording& recording);

// The same for recordings for which the same answer holds. The recording is
// shareable, here and below.
std::string SharingKey(const Recording& recording);

v1::RecordingSlots SlotsOf(const Recording& recording);

// What the answer says, on a device of so many members. FailedPrecondition with
// the reason why there is no plan; Internal (BAD_BATCH_PLAN) for one that is
// not of this recording, or of other members.
absl::StatusOr<std::shared_ptr<const RowShares>> MakeShares(
    const Recording& recording, const v1::StageAnswer& answer, int members);

// What is known of recordings that are alike. Thread-safe.
class RowSharing {
 public:
  // Whether the coordinator is to be asked: the first time and, while it does
  // not answer, at the 8th, the 64th...
  bool Asks();
  void Answer(absl::StatusOr<std::shared_ptr<const RowShares>> answer);
  // Null before the answer; its error.
  absl::StatusOr<std::shared_ptr<const RowShares>> shares() const;

 private:
  mutable Mutex mu_;
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  absl::StatusOr<std::shared_ptr<const RowShares>> shares_
      ABSL_GUARDED_BY(mu_) = nullptr;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_ROW_SHARES_H_
