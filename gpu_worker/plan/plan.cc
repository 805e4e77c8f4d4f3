#include "gpu_worker/plan/plan.h"

#include <algorithm>
#include <utility>

namespace djinn::worker {

Plan::Plan(std::string fingerprint, srg::Graph graph, srg::GraphFacts facts,
           std::unique_ptr<CompiledProgram> program, uint64_t encoded_bytes)
    : fingerprint_(std::move(fingerprint)),
      graph_(std::move(graph)),
      facts_(std::move(facts)),
      program_(std::move(program)),
      counters_(std::make_shared<Counters>()) {
  FillSteps();
  // The message's size accounts for lists and strings inside arguments.
  estimated_bytes_ =
      std::max(estimated_bytes_, kBytesPerEncodedByte * encoded_bytes);
}

Plan::Plan(const Plan& base, int64_t size, srg::Graph graph,
           srg::GraphFacts facts,
           absl::StatusOr<std::unique_ptr<CompiledProgram>> program)
    : fingerprint_(base.fingerprint_),
      size_(size),
      graph_(std::move(graph)),
      facts_(std::move(facts)),
      refusal_(program.status()),
      program_(program.ok() ? *std::move(program) : nullptr),
      counters_(base.counters_) {
  FillSteps();
  estimated_bytes_ = base.estimated_bytes_;
}

void Plan::SetKind(v1::Phase phase, absl::Span<const uint32_t> cache_slots,
                   absl::Span<const std::string> tenants) const {
  std::vector<bool> caches(graph_.slots.size());
  bool any = false;
  for (const uint32_t slot : cache_slots) {
    if (slot >= caches.size() ||
        graph_.slots[slot].kind == srg::Slot::Kind::kGenerator) {
      continue;
    }
    caches[slot] = any = true;
  }
  Kind kind = {phase, nullptr};
  if (any) {
    kind.caches = std::make_shared<const std::vector<bool>>(std::move(caches));
  }
  const std::shared_ptr<const Kinds> before = counters_->kinds.load();
  auto kinds = before == nullptr ? std::make_shared<Kinds>()
                                 : std::make_shared<Kinds>(*before);
  for (const std::string& tenant : tenants) kinds->by_tenant[tenant] = kind;
  if (tenants.empty()) kinds->others = std::move(kind);
  counters_->kinds.store(std::move(kinds));
}

Plan::Kind Plan::KindTo(absl::string_view tenant) const {
  const std::shared_ptr<const Kinds> kinds = counters_->kinds.load();
  if (kinds == nullptr) return {};
  const auto own = kinds->by_tenant.find(tenant);
  return own == kinds->by_tenant.end() ? kinds->others : own->second;
}

void Plan::FillSteps() {
  steps_.resize(graph_.nodes.size());
  created_bytes_.resize(graph_.slots.size());
  for (size_t i = 0; i < graph_.slots.size(); ++i) {
    created_bytes_[i] = graph_.slots[i].created_bytes;
  }
  estimated_bytes_ =
      graph_.slots.size() * (sizeof(srg::Slot) + sizeof(srg::SlotFacts));
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const srg::Node& node = graph_.nodes[i];
    Step& step = steps_[i];
    srg::ForEachOperand(node, [&step](const srg::TensorView& view) {
      step.operands.push_back(&view);
    });
    for (const srg::Argument& argument : node.arguments) {
      if (const auto* generator = std::get_if<srg::GeneratorSlot>(&argument)) {
        step.generators.push_back(generator->slot);
      }
    }
    if (node.implicit_generator_slot.has_value()) {
      step.generators.push_back(*node.implicit_generator_slot);
    }
    for (const srg::Result& result : node.results) {
      if (const auto* view = std::get_if<srg::TensorView>(&result)) {
        // Cannot fail: Validate() computed it before.
        created_bytes_[view->slot] = srg::ExtentBytes(*view).value();
      }
    }
    // Counts each node twice: the compiled program holds about as much again.
    estimated_bytes_ +=
        2 * (sizeof(srg::Node) + node.arguments.size() * sizeof(srg::Argument) +
             node.results.size() * sizeof(srg::Result));
  }
}

}  // namespace djinn::worker
