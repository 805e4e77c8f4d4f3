// A recording whose rows go through its device's members in micro-batches: what
// each member executes of it, for so many rows.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_RECORDINGS_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_RECORDINGS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/session/multi_worker/row_shares.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/stream/run_encoder.h"

namespace djinn {

// A stage's part of a recording. Immutable.
struct StageRecording {
  int member = 0;
  // Of one part: it is given what earlier stages made and what the whole was
  // given, keeps nothing by itself, and its outputs are what later stages, or
  // the whole's outputs, take from it. What the whole keeps it is told each
  // time it is executed.
  std::shared_ptr<const Recording> recording;
  // Its graph under its name.
  std::shared_ptr<const SizedGraph> graph;
  // By what it is given, keeps and puts out: the whole's slot.
  std::vector<uint32_t> given;
  std::vector<uint32_t> kept;
  std::vector<uint32_t> outputs;
};

// In the order of the stages. `shares` are of the recording, with stages. Fails
// as the graph does at so many rows.
absl::StatusOr<std::vector<StageRecording>> CutIntoStages(
    const Recording& recording, const RowShares& shares, uint64_t rows);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_RECORDINGS_H_
