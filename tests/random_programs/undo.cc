#include "tests/random_programs/undo.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>

#include <cstring>
#include <variant>

#include "tests/random_programs/operator_facts.h"

namespace djinn::random_programs {
namespace {

at::Generator Generator() { return at::detail::getDefaultCPUGenerator(); }

}  // namespace

DrawScope::DrawScope(const Step& step) {
  if (MayDraw(step) || step.kind == Step::Kind::kCallable) {
    state_ = Generator().get_state();
  }
}

bool DrawScope::Drew() const {
  return state_.defined() && !at::equal(state_, Generator().get_state());
}

void DrawScope::Undo() {
  if (state_.defined()) Generator().set_state(state_);
}

WriteScope::WriteScope(const Step& step, const Machine& machine) {
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    const auto* slot = std::get_if<Slot>(&step.arguments[i]);
    if (slot != nullptr && IsWritten(step.op->schema().arguments()[i])) {
      Keep(machine.slot(slot->index));
    }
  }
}

WriteScope::WriteScope(const Given& given) {
  for (const std::vector<at::Tensor>* tensors :
       {&given.arguments, &given.parameters}) {
    for (const at::Tensor& tensor : *tensors) {
      Keep(tensor);
      if (!tensor.is_leaf()) continue;
      gradients_.emplace_back(tensor, tensor.grad());
      if (tensor.grad().defined()) Keep(tensor.grad());
    }
  }
}

void WriteScope::Undo() {
  for (auto& [storage, bytes] : kept_) {
    if (bytes.empty() || storage.nbytes() < bytes.size()) continue;
    std::memcpy(storage.mutable_data(), bytes.data(), bytes.size());
  }
  for (auto& [tensor, gradient] : gradients_) {
    tensor.mutable_grad() = gradient;
  }
}

void WriteScope::Keep(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const auto* bytes = static_cast<const char*>(storage.data());
  // A failed resize leaves a size without memory.
  kept_.emplace_back(storage, bytes == nullptr
                                  ? std::string()
                                  : std::string(bytes, storage.nbytes()));
}

}  // namespace djinn::random_programs
