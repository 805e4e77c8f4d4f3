// How calls are best carried out, by what they look like: calls of the same
// operator on operands of about the same sizes are measured together, in
// whatever plans they are, so that a program whose shapes grow from run to run
// has its choices made soon.
#ifndef GPU_WORKER_DEVICE_CPU_CHOICE_TABLE_H_
#define GPU_WORKER_DEVICE_CPU_CHOICE_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ATen/core/function_schema.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/device/cpu/alone_trial.h"
#include "gpu_worker/device/cpu/cache_append.h"
#include "gpu_worker/device/cpu/learnt_facts.h"
#include "gpu_worker/device/cpu/measured_choice.h"
#include "gpu_worker/device/cpu/weak_table.h"
#include "gpu_worker/device/cpu/whole_attention.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// The fastest of two choices' ways, as last known.
class FastestWays {
 public:
  // From before; of numbers that may say anything.
  template <typename A, typename B>
  void Start(int64_t first, int64_t second, A* a, B* b) {
    if (first >= 0) a->Start(static_cast<size_t>(first));
    if (second >= 0) b->Start(static_cast<size_t>(second));
    first_ = first;
    second_ = second;
  }
  // False while neither is settled.
  template <typename A, typename B>
  bool Learn(const A& a, const B& b) {
    const std::optional<size_t> first = a.settled(), second = b.settled();
    if (first.has_value()) first_ = static_cast<int64_t>(*first);
    if (second.has_value()) second_ = static_cast<int64_t>(*second);
    return first.has_value() || second.has_value();
  }
  // -1: not known.
  int64_t first() const { return first_; }
  int64_t second() const { return second_; }

 private:
  std::atomic<int64_t> first_{-1}, second_{-1};
};

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

  Choices() = default;
  // Of calls that look so. Begins with what was learnt of them, and notes it
  // there.
  Choices(absl::string_view looks, std::shared_ptr<LearntFacts> learnt);

  // A way was measured: it may be known by now which is the fastest.
  void NoteMeasured();

  // What a way is taken to cost.
  static uint64_t Cost(size_t way, uint64_t nanoseconds) {
    return (way & kOneThread) != 0 ? nanoseconds
                                   : AloneTrial::CostTogether(nanoseconds);
  }

 private:
  LearntFacts::Name name_;
  std::shared_ptr<LearntFacts> learnt_;
  FastestWays fastest_;
};

// Thread-safe.
class ChoiceTable {
 public:
  // Null: nothing is learnt from other processes.
  explicit ChoiceTable(std::shared_ptr<LearntFacts> learnt = nullptr)
      : learnt_(std::move(learnt)) {}

  // The choices for such calls. They are forgotten with the last reference.
  std::shared_ptr<Choices> Find(const c10::FunctionSchema& schema,
                                const CallTemplate& call);

  // As WeakTable::size().
  size_t size() const { return choices_.size(); }

 private:
  const std::shared_ptr<LearntFacts> learnt_;
  WeakTable<Choices> choices_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CHOICE_TABLE_H_
