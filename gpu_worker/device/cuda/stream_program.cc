#include "gpu_worker/device/cuda/stream_program.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/cuda/inferred_layout.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gpu_worker/device/torch/guards/index_check.h"
#include "gpu_worker/device/torch/guards/library_guards.h"
#include "gpu_worker/device/torch/switch_scope.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {

namespace {

// Returns whether PyTorch chooses among the operator's kernels only by sizes
// and strides, although they need operands aligned to 16 bytes. An unaligned
// operand would end the process's use of the GPU.
bool WantsAligned(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::scaled_dot_product_attention";
}

// Copies unaligned tensors, then runs the check `next`, if there is one.
class AlignOperands final : public ArgumentCheck {
 public:
  explicit AlignOperands(ArgumentCheck* next) : next_(next) {}

  absl::Status Check(torch::jit::Stack* arguments) override {
    constexpr uintptr_t kAlignment = 16;
    for (c10::IValue& value : *arguments) {
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      const at::Tensor& tensor = value.toTensor();
      if (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kAlignment !=
          0) {
        value = tensor.clone();
      }
    }
    return next_ != nullptr ? next_->Check(arguments) : absl::OkStatus();
  }

 private:
  ArgumentCheck* const next_;
};

}  // namespace

CheckedCall::CheckedCall(TorchCall plain)
    : TorchCall(std::move(plain)),
      checked(IndexArgumentsOf(op.schema())),
      wants_aligned(WantsAligned(op.schema())),
      library(MakeLibraryGuard(op.schema())) {}

StreamProgram::StreamProgram(StreamEnvironment environment,
                             const srg::Graph& srg_graph,
                             std::vector<TorchCall> calls)
    : environment_(environment) {
  const bool recorded = environment_.accelerator->recorder() != nullptr &&
                        environment_.graphs->options().max_graphs > 0;
  const absl::string_view never =
      recorded ? WhyNeverRecorded(srg_graph, calls) : "";
  std::vector<uint32_t> draws = HolesThatDraw(calls);
  std::vector<std::optional<AttentionStep>> steps(calls.size());
  if (environment_.fuse_attention) {
    steps = AttentionStep::Match(srg_graph, calls, *environment_.target);
  }
  calls_.reserve(calls.size());
  for (TorchCall& call : calls) {
    calls_.emplace_back(std::move(call));
    calls_.back().inferred = srg_graph.nodes[calls_.size() - 1].results;
    calls_.back().attention = std::move(steps[calls_.size() - 1]);
    if (calls_.back().checked.empty()) continue;
    calls_.back().flag = checked_nodes_.size();
    checked_nodes_.push_back(static_cast<uint32_t>(calls_.size() - 1));
  }
  if (!recorded) return;
  if (!never.empty()) {
    environment_.graphs->Count(absl::StrCat("graphs_refused_", never));
    return;
  }
  graph_ = std::make_unique<RunGraph>(
      RunGraph::Environment{environment_.accelerator, environment_.transfers,
                            environment_.graphs},
      srg_graph, checked_nodes_.size(), std::move(draws),
      [this](uint32_t node, const NodeInput& input, const at::Tensor& flags,
             std::vector<NodeResult>* results) {
        return RunNode(node, input, flags, results);
      });
}

absl::Status StreamProgram::Failure(uint32_t node) const {
  return IndexOutOfRange(calls_[node].op.schema().name(), calls_[node].checked);
}

absl::Status StreamProgram::RunNode(uint32_t node, const NodeInput& input,
                                    const at::Tensor& flags,
                                    std::vector<NodeResult>* results) const {
  const CheckedCall& call = calls_[node];
  // The switch is for CPUs; setting it would cost each call the wake-up of
  // compute threads.
  srg::Switches switches = input.switches;
  switches.flush_denormal = false;
  const SwitchScope scope(switches);
  if (input.fast && call.attention.has_value()) {
    const std::optional<absl::Status> done =
        call.attention->Run(input, results);
    if (done.has_value()) return *done;
  }
  const size_t before = results->size();
  std::optional<IndexCheck> indices;
  if (!call.checked.empty()) {
    indices.emplace(call.checked,
                    flags.select(0, static_cast<int64_t>(call.flag)));
  }
  // No operator has both.
  ArgumentCheck* check = indices.has_value() ? &*indices : call.library.get();
  AlignOperands aligned(check);
  if (call.wants_aligned) check = &aligned;
  DJINN_RETURN_IF_ERROR(
      RunCall(call, *environment_.target, input, results, check));
  const absl::Status laid_out = CatchTorch(kOperatorFailed, [&] {
    LayOutAsInferred(call.inferred, *environment_.target,
                     absl::MakeSpan(*results).subspan(before));
    return absl::OkStatus();
  });
  if (!laid_out.ok()) results->resize(before);
  return laid_out;
}

absl::Status StreamProgram::Execute(uint32_t node, const NodeInput& input,
                                    std::vector<NodeResult>* results) const {
  if (node >= calls_.size()) return absl::InternalError("no such node");
  if (input.run == nullptr) {
    // The caller wants to know the outcome at once.
    StreamRun run(*this);
    NodeInput with_run = input;
    with_run.run = &run;
    const size_t before = results->size();
    absl::Status status = Execute(node, with_run, results);
    std::vector<LateFailure> late;
    status.Update(run.Settle(&late));
    if (!late.empty()) status.Update(late.front().status);
    if (!status.ok()) results->resize(before);
    return status;
  }
  DJINN_RETURN_IF_ERROR(environment_.health->status());
  absl::Status status = CatchTorch(kOperatorFailed, [&] {
    const c10::InferenceMode inference;
    for (const uint32_t slot : calls_[node].operand_slots) {
      if (slot < input.slots.size() && input.slots[slot] != nullptr) {
        environment_.transfers->Use(
            static_cast<const TorchBuffer&>(*input.slots[slot]));
      }
    }
    const auto scope = environment_.accelerator->EnterCompute();
    at::Tensor flags;
    if (!calls_[node].checked.empty()) {
      flags = static_cast<StreamRun*>(input.run)->flags();
    }
    return RunNode(node, input, flags, results);
  });
  return environment_.health->Note(std::move(status));
}

std::unique_ptr<DeviceRun> StreamProgram::BeginRun() const {
  return std::make_unique<StreamRun>(*this);
}

const at::Tensor& StreamRun::flags() {
  if (!flags_.defined()) {
    const size_t count = program_.checked_nodes().size();
    srg::TensorView view;
    view.data_type = srg::DataType::kBool;
    view.sizes = {static_cast<int64_t>(count)};
    view.strides = {1};
    flags_ = MakeTensor(view, program_.environment().target->Zeroed(count));
    // Orders this thread's next operators after the command that zeroes the
    // flags.
    const auto scope = program_.environment().accelerator->EnterCompute();
  }
  return flags_;
}

bool StreamRun::ExecuteWhole(const NodeInput& input,
                             absl::Span<const KeptResult> kept,
                             std::vector<std::shared_ptr<Buffer>>* results) {
  asked_ = true;
  if (!program_.environment().health->status().ok()) return false;
  absl::Status status;
  replayed_ = program_.graph()->Execute(input, kept, results, &status);
  if (replayed_ == nullptr) {
    // A failed recording may have broken the device.
    (void)program_.environment().health->Note(std::move(status));
    return false;
  }
  flags_ = replayed_->flags;
  failed_ = program_.environment().health->Note(std::move(status));
  return true;
}

absl::Status StreamRun::Settle(std::vector<LateFailure>* failures) {
  const StreamEnvironment& environment = program_.environment();
  DJINN_RETURN_IF_ERROR(environment.health->status());
  if (!flags_.defined()) {
    absl::Status done = environment.transfers->AwaitCompute();
    done.Update(failed_);
    return environment.health->Note(std::move(done));
  }
  const std::vector<uint32_t>& nodes = program_.checked_nodes();
  std::string found(nodes.size(), '\0');
  absl::Status read = environment.transfers->ReadMade(
      flags_.const_data_ptr(), found.data(), found.size());
  read.Update(failed_);
  DJINN_RETURN_IF_ERROR(environment.health->Note(std::move(read)));
  reported_.resize(nodes.size(), false);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (found[i] == 0 || reported_[i]) continue;
    reported_[i] = true;
    failures->push_back({nodes[i], program_.Failure(nodes[i])});
  }
  return absl::OkStatus();
}

void StreamRun::End(bool plain) {
  if (asked_ && replayed_ == nullptr) program_.graph()->Observe(plain);
}

}  // namespace djinn::worker
