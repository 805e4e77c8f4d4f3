// Cuts a captured graph whose rows pass through its device's replicas in
// micro-batches into the graph that each replica executes, for a number of
// rows.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_RECORDINGS_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_RECORDINGS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/session/multi_worker/row_shares.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/stream/run_binding.h"

namespace djinn {

// A stage of a captured graph. Immutable.
struct StageRecording {
  int member = 0;
  // The stage as a captured graph of one part. Its inputs are intermediates of
  // earlier stages and inputs of the whole. It captures nothing itself:
  // captured storages of the whole are passed at each execution. Its outputs
  // are what later stages, or the whole's outputs, take from it.
  std::shared_ptr<const Recording> recording;
  // The stage's graph, and its key.
  std::shared_ptr<const SizedGraph> graph;
  // The whole's slot of each input, captured storage and output.
  std::vector<uint32_t> given;
  std::vector<uint32_t> kept;
  std::vector<uint32_t> outputs;
};

// Returns the stages in order. `shares` belong to the graph and have stages.
// Fails if the graph is invalid at this number of rows.
absl::StatusOr<std::vector<StageRecording>> CutIntoStages(
    const Recording& recording, const RowShares& shares, uint64_t rows);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_RECORDINGS_H_
