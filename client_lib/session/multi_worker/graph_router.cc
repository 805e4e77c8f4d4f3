#include "client_lib/session/multi_worker/graph_router.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

using Pass = SingleWorkerGate::Pass;

absl::Status Stale(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_RECORDING",
                   why);
}

}  // namespace

absl::Status GraphRouter::Start(uint32_t lane) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(workers_->first().failure());
  DJINN_RETURN_IF_ERROR(captures_->Start(lane));
  // Rows are divided in fast mode only, and by copies.
  if (several_->begun() &&
      (!FastExecution() || !context_->options.copy_operator.has_value())) {
    captures_->Refuse(lane, kSpansWorkers,
                      "it uses a device that spans workers");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const CapturedGraph>> GraphRouter::Finish(
    uint32_t lane, absl::Span<RemoteStorage* const> given,
    absl::Span<RemoteStorage* const> outputs, size_t awaited) {
  if (IsForkedChild()) return AfterForkError();
  const std::unique_ptr<Recorder> capture = captures_->Take(lane);
  if (capture == nullptr) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_RECORDING",
                     "the thread's calls are not being recorded");
  }
  if (!several_->begun()) return capture->Finish(given, outputs, awaited);
  // With several workers, no output is available before the end, because
  // outputs are put together there.
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<CapturedGraph> captured_graph,
                         capture->Finish(given, outputs, /*awaited=*/0));
  const absl::Status shared = several_->FindSharing(captured_graph.get());
  if (shared.ok()) return captured_graph;
  return MakeError(
      absl::StatusCode::kFailedPrecondition, kSpansWorkers,
      absl::StrCat("it uses a device that spans workers, and its rows are not "
                   "shared out between them: ",
                   shared.message()));
}

absl::Status GraphRouter::Refusal(uint32_t lane) {
  if (IsForkedChild()) return AfterForkError();
  return captures_->Refusal(lane);
}

void GraphRouter::Drop(uint32_t lane) {
  if (!IsForkedChild()) captures_->Take(lane);
}

absl::StatusOr<std::vector<StoragePtr>> GraphRouter::Replay(
    uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
    absl::Span<RemoteStorage* const> given,
    std::shared_ptr<const CapturedNumbers> numbers) {
  if (IsForkedChild()) return AfterForkError();
  if (const Pass pass(&several_->gate()); pass) {
    auto outputs = workers_->first().Replay(lane, captured_graph, given,
                                            std::move(numbers));
    if (outputs.ok()) {
      captures_->Refuse(lane, "NESTED", "it executes another captured graph");
    }
    return outputs;
  }
  if (captured_graph->sharing == nullptr || !FastExecution() ||
      numbers != nullptr) {
    return Stale("the device spans workers");
  }
  const auto shares = captured_graph->sharing->shares();
  if (!shares.ok() || *shares == nullptr) {
    return Stale("its rows are not shared out between the device's workers");
  }
  captures_->Refuse(lane, "NESTED", "it executes another captured graph");
  return several_->Replay(lane, captured_graph, *shares, given);
}

}  // namespace djinn
