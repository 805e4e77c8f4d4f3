#include "client_lib/callable/outside_operators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <mutex>

#include "client_lib/callable/call_guard.h"
#include "client_lib/capture/device/remote_generator.h"

namespace djinn::capture {
namespace {

at::Tensor StateOfLocalGenerator() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

bool SameBytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

at::Tensor GradientOf(const at::Tensor& tensor) {
  return tensor.is_leaf() ? tensor.grad() : at::Tensor();
}

uint32_t HooksOf(const at::Tensor& tensor) {
  namespace impl = torch::autograd::impl;
  if (impl::get_autograd_meta(tensor) == nullptr) return 0;
  return static_cast<uint32_t>(impl::hooks(tensor).size() +
                               (impl::post_acc_grad_hooks(tensor) != nullptr) +
                               HooksOfNode(tensor));
}

}  // namespace

OutsideOperators::OutsideOperators(const std::vector<at::Tensor>& arguments,
                                   const std::vector<at::Tensor>& gradients)
    : remote_settings_(SettingsOfRemoteGenerators()),
      local_state_(StateOfLocalGenerator()) {
  arguments_.reserve(arguments.size());
  for (const at::Tensor& tensor : arguments) {
    arguments_.push_back(
        {tensor.storage(), GradientOf(tensor), HooksOf(tensor)});
    Keep(arguments_.back().gradient);
  }
  for (const at::Tensor& gradient : gradients) Keep(gradient);
}

void OutsideOperators::Keep(const at::Tensor& gradient) {
  if (!gradient.defined() || !gradient.has_storage()) return;
  gradients_.push_back({gradient, gradient.storage(), GeometryOf(gradient)});
}

std::string OutsideOperators::WhatChanged(
    const std::vector<at::Tensor>& arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& before = arguments_[i];
    const at::Tensor& tensor = arguments[i];
    if (!tensor.has_storage() ||
        !tensor.storage().is_alias_of(before.storage)) {
      return "it gives an argument other memory";
    }
    if (!GradientOf(tensor).is_same(before.gradient)) {
      return "it gives an argument another gradient";
    }
    if (HooksOf(tensor) != before.hooks) {
      return "it gives an argument hooks";
    }
  }
  for (const Gradient& before : gradients_) {
    if (!before.tensor.storage().is_alias_of(before.storage)) {
      return "it gives a gradient other memory";
    }
    if (GeometryOf(before.tensor) != before.geometry) {
      return "it changes the metadata of a gradient";
    }
  }
  if (SettingsOfRemoteGenerators() != remote_settings_) {
    return "it seeds a generator, or sets its state";
  }
  return "";
}

bool OutsideOperators::LocalGeneratorMoved() const {
  return !SameBytes(StateOfLocalGenerator(), local_state_);
}

}  // namespace djinn::capture
