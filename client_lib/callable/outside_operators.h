// What a function that is being registered may do to what is there before and
// after without calling an operator, so that nobody else sees it: give an
// argument other memory or another gradient, or a gradient other memory, seed a
// generator or set its state.
// None of it would happen again when its calls are carried out without it.
#ifndef CLIENT_LIB_CALLABLE_OUTSIDE_OPERATORS_H_
#define CLIENT_LIB_CALLABLE_OUTSIDE_OPERATORS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace djinn::capture {

// As it is at one moment, for the thread that made it.
class OutsideOperators {
 public:
  OutsideOperators() = default;
  // `gradients`: of what the function refers to; undefined where there is none.
  // Keeps the arguments' memory and gradients, and those gradients' memory, so
  // that nothing else takes their place.
  OutsideOperators(const std::vector<at::Tensor>& arguments,
                   const std::vector<at::Tensor>& gradients);

  // What is not as it was, for people; empty when all is.
  std::string WhatChanged(const std::vector<at::Tensor>& arguments) const;
  // Whether PyTorch's own generator of this process has another state, which
  // may be another thread's doing.
  bool LocalGeneratorMoved() const;

 private:
  struct Argument {
    c10::Storage storage;
    at::Tensor gradient;
    uint32_t hooks = 0;
  };
  // A gradient that is there before, whosever it is afterwards.
  struct Gradient {
    at::Tensor tensor;
    c10::Storage storage;
    std::string geometry;
  };

  void Keep(const at::Tensor& gradient);

  std::vector<Argument> arguments_;
  std::vector<Gradient> gradients_;
  uint64_t remote_settings_ = 0;
  // Of the default generator of this process.
  at::Tensor local_state_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CALLABLE_OUTSIDE_OPERATORS_H_
