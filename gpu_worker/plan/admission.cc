#include "gpu_worker/plan/admission.h"

#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "common/srg/size_hole.h"

namespace djinn::worker {
namespace {

absl::Status CheckFits(uint64_t bytes, const GraphCache& cache) {
  if (bytes <= cache.max_bytes()) return absl::OkStatus();
  return LimitExceeded("GRAPH_TOO_LARGE", "a graph's plan", cache.max_bytes(),
                       0, bytes);
}

}  // namespace

absl::StatusOr<Admitted> Admit(const v1::Graph& message,
                               const srg::GraphCaps& caps,
                               absl::string_view tenant, GraphCache* cache,
                               OperatorLibrary* library) {
  const uint64_t encoded_bytes = message.ByteSizeLong();
  // Refuses a graph that is too large before decoding it.
  DJINN_RETURN_IF_ERROR(
      CheckFits(Plan::kBytesPerEncodedByte * encoded_bytes, *cache));
  DJINN_ASSIGN_OR_RETURN(srg::Graph graph, srg::FromProto(message));
  std::string fingerprint = srg::Fingerprint(graph);
  if (std::shared_ptr<const Plan> held = cache->Find(fingerprint, tenant)) {
    return Admitted{std::move(held), true};
  }
  DJINN_ASSIGN_OR_RETURN(srg::GraphFacts facts, srg::Validate(graph, caps));
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<CompiledProgram> program,
                         library->Compile(graph));
  auto plan = std::make_shared<Plan>(std::move(fingerprint), std::move(graph),
                                     std::move(facts), std::move(program),
                                     encoded_bytes);
  DJINN_RETURN_IF_ERROR(CheckFits(plan->estimated_bytes(), *cache));
  return Admitted{cache->Insert(std::move(plan), tenant)};
}

absl::StatusOr<std::shared_ptr<const Plan>> AdmitAtSize(
    const Plan& base, int64_t size, const srg::GraphCaps& caps,
    absl::string_view tenant, GraphCache* cache, OperatorLibrary* library) {
  DJINN_ASSIGN_OR_RETURN(srg::Graph graph, srg::AtSize(base.graph(), size));
  DJINN_ASSIGN_OR_RETURN(srg::GraphFacts facts, srg::Validate(graph, caps));
  absl::StatusOr<std::unique_ptr<CompiledProgram>> program =
      library->Compile(graph);
  return cache->Insert(
      std::make_shared<Plan>(base, size, std::move(graph), std::move(facts),
                             std::move(program)),
      tenant);
}

}  // namespace djinn::worker
