// Undoes the effects of a call that raised before its end.
#ifndef TESTS_RANDOM_PROGRAMS_UNDO_H_
#define TESTS_RANDOM_PROGRAMS_UNDO_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/random_programs/machine.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Saves the generator's state before a call that may draw.
class DrawScope {
 public:
  explicit DrawScope(const Step& step);
  bool Drew() const;
  // Restores the state before the draw.
  void Undo();

 private:
  at::Tensor state_;
};

// Saves the bytes that a call may write.
class WriteScope {
 public:
  WriteScope(const Step& step, const Machine& machine);
  // Saves what a callable may write, including gradients.
  explicit WriteScope(const Given& given);
  // Restores the bytes and the gradients.
  void Undo();

 private:
  void Keep(const at::Tensor& tensor);

  std::vector<std::pair<c10::Storage, std::string>> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;
};

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_UNDO_H_
