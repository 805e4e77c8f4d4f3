// How calls are best carried out, by what they look like: calls of the same
// operator on operands of about the same sizes are measured together, in
// whatever plans they are, so that a program whose shapes grow from run to run
// has its choices made soon.
#ifndef GPU_WORKER_DEVICE_CPU_CHOICE_TABLE_H_
#define GPU_WORKER_DEVICE_CPU_CHOICE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ATen/core/function_schema.h"
#include "gpu_worker/device/cpu/alone_trial.h"
#include "gpu_worker/device/cpu/cache_append.h"
#include "gpu_worker/device/cpu/measured_choice.h"
#include "gpu_worker/device/cpu/weak_table.h"
#include "gpu_worker/device/cpu/whole_attention.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// With all threads or with one, and while there is a packed form of the call's
// weight, with that or without.
struct Choices {
  static constexpr size_t kOneThread = 1;
  static constexpr size_t kPacked = 2;
  MeasuredChoice<2> plain;
  MeasuredChoice<4> with_packed;
  AppendRecord appends;
  // Of a call that ends a chain.
  AttentionChoice attention;

  // What a way is taken to cost.
  static uint64_t Cost(size_t way, uint64_t nanoseconds) {
    return (way & kOneThread) != 0 ? nanoseconds
                                   : AloneTrial::CostTogether(nanoseconds);
  }
};

// Thread-safe.
class ChoiceTable {
 public:
  // The choices for such calls. They are forgotten with the last reference.
  std::shared_ptr<Choices> Find(const c10::FunctionSchema& schema,
                                const CallTemplate& call);

  // As WeakTable::size().
  size_t size() const { return choices_.size(); }

 private:
  WeakTable<Choices> choices_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CHOICE_TABLE_H_
