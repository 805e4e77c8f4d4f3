#include "gpu_worker/device/cpu/torch_program.h"

#include <exception>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/time/time.h"
#include "c10/core/InferenceMode.h"
#include "common/status_macros.h"
#include "gpu_worker/device/cpu/joined_products.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"
#include "gpu_worker/device/torch/value_guards.h"

namespace djinn::worker {
namespace {

// The packed form of the call's weight; null when there is none yet.
std::shared_ptr<const PackedMatrix> OfferPacked(const PackedCall& call,
                                                const NodeInput& input,
                                                PackedWeights* weights) {
  static const std::string& kNobody = *new std::string;
  const TorchBuffer* const buffer = call.FindWeight(input.slots);
  if (buffer == nullptr) return nullptr;
  try {
    return weights->Offer(*buffer, call.weight(), call.row_count(),
                          input.tenant != nullptr ? *input.tenant : kNobody);
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Looks at the clock only if somebody wants to know.
class Stopwatch {
 public:
  Stopwatch(Clock* clock, bool runs) : clock_(*clock) {
    if (runs) start_ = clock_.Monotonic();
  }
  uint64_t Nanoseconds() const {
    return static_cast<uint64_t>(
        absl::ToInt64Nanoseconds(clock_.Monotonic() - start_));
  }

 private:
  Clock& clock_;
  absl::Duration start_;
};

absl::Status RunOwn(const PackedCall& call, const PackedMatrix* packed,
                    const SumOrder& order, const NodeInput& input,
                    std::vector<NodeResult>* results) {
  return CatchTorch(kOperatorFailed, [&] {
    return call.Run(packed, order, input.slots, results);
  });
}

}  // namespace

CpuCall::CpuCall(TorchCall plain)
    : TorchCall(std::move(plain)), guard(MakeValueGuard(op.schema())) {}

TorchProgram::TorchProgram(std::vector<CpuCall> calls,
                           const TorchTarget& target,
                           std::shared_ptr<PackedWeights> weights,
                           std::shared_ptr<AppendRooms> rooms,
                           std::shared_ptr<TrialPace> pace,
                           std::shared_ptr<LearntFacts> learnt, CpuTiers tiers,
                           Clock* clock)
    : calls_(std::move(calls)),
      target_(target),
      weights_(std::move(weights)),
      rooms_(std::move(rooms)),
      pace_(std::move(pace)),
      learnt_(std::move(learnt)),
      tiers_(tiers),
      clock_(*clock) {
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].joinable.has_value()) {
      products_.push_back(JoinedProducts::ProductOf(i, *calls_[i].joinable));
    }
  }
}

absl::Status TorchProgram::Execute(uint32_t node, const NodeInput& input,
                                   std::vector<NodeResult>* results) const {
  if (node >= calls_.size()) return absl::InternalError("no such node");
  CountThreads();
  const CpuCall& call = calls_[node];
  if (call.attention.has_value() && input.fast) {
    const std::optional<absl::Status> done = call.attention->Run(
        input, tiers_, &call.choices->attention, &clock_, results);
    if (done.has_value()) return *done;
  }
  if (!call.append.has_value()) return ExecuteAsIs(node, input, results);
  bool appended = false;
  // Whatever keeps it from being appended, the plain call does without.
  CatchTorch(kOperatorFailed, [&] {
    const c10::InferenceMode inference;
    const std::shared_ptr<AppendRecord> record(call.choices,
                                               &call.choices->appends);
    appended = call.append->Run(input, record, rooms_.get(), results);
    return absl::OkStatus();
  }).IgnoreError();
  if (appended) return absl::OkStatus();
  DJINN_RETURN_IF_ERROR(ExecuteAsIs(node, input, results));
  call.append->Mark(input, results);
  return absl::OkStatus();
}

absl::Status TorchProgram::ExecuteAsIs(uint32_t node, const NodeInput& input,
                                       std::vector<NodeResult>* results) const {
  return input.fast ? ExecuteFast(node, input, results)
                    : ExecuteStrict(calls_[node], input, results);
}

absl::Status TorchProgram::ExecutePlain(
    const CpuCall& call, const NodeInput& input,
    std::vector<NodeResult>* results) const {
  return RunCall(call, target_, input, results, call.guard.get());
}

absl::Status TorchProgram::ExecuteStrict(
    const CpuCall& call, const NodeInput& input,
    std::vector<NodeResult>* results) const {
  if (call.strict_product != nullptr) {
    return ExecuteStrictProduct(call, input, results);
  }
  if (call.alone == nullptr) return ExecutePlain(call, input, results);
  switch (call.alone->Next()) {
    case AloneTrial::Way::kTogether:
      return ExecutePlain(call, input, results);
    case AloneTrial::Way::kAlone: {
      const ThreadScope threads(/*one_thread=*/true);
      return ExecuteAlone(call, input, results);
    }
    case AloneTrial::Way::kBoth:
      break;
  }
  const absl::Duration start = clock_.Monotonic();
  if (!pace_->IsDue(start)) return ExecutePlain(call, input, results);
  const absl::Cleanup took = [&] { pace_->Took(start, clock_.Monotonic()); };
  absl::Status status = CarryOutBothWays(
      call.operands, call.written_slots, input,
      [&](const NodeInput& input, std::vector<NodeResult>* results) {
        return ExecutePlain(call, input, results);
      },
      [&](const NodeInput& input, std::vector<NodeResult>* results) {
        return ExecuteAlone(call, input, results);
      },
      call.alone.get(), results);
  const std::optional<bool> decided = call.alone->decided();
  if (learnt_ != nullptr && decided.has_value()) {
    learnt_->Note(call.alone_name, {*decided, call.alone->alone_way()});
  }
  return status;
}

absl::Status TorchProgram::ExecuteAlone(
    const CpuCall& call, const NodeInput& input,
    std::vector<NodeResult>* results) const {
  const uint32_t way = call.alone->alone_way();
  // Whatever keeps the parts from being multiplied, the plain call fails as it
  // always did.
  if (way > 0 && call.parted->Run(way - 1, input, results).ok()) {
    return absl::OkStatus();
  }
  return ExecutePlain(call, input, results);
}

void TorchProgram::TryStrictProduct(const CpuCall& call) const {
  const absl::Duration start = clock_.Monotonic();
  if (!pace_->IsDue(start) || !call.strict_product->BeginTrial()) return;
  call.strict_product->Learn(TryProduct(
      *call.packed,
      [&](const NodeInput& input, std::vector<NodeResult>* results) {
        return ExecutePlain(call, input, results);
      },
      call.strict_product->hint()));
  pace_->Took(start, clock_.Monotonic());
}

absl::Status TorchProgram::ExecuteStrictProduct(
    const CpuCall& call, const NodeInput& input,
    std::vector<NodeResult>* results) const {
  StrictProduct& product = *call.strict_product;
  if (product.IsTrialDue()) TryStrictProduct(call);
  const ProductFacts* const facts = product.facts();
  if (facts == nullptr) return ExecutePlain(call, input, results);
  const std::shared_ptr<const PackedMatrix> packed =
      facts->order.has_value()
          ? OfferPacked(*call.packed, input, weights_.get())
          : nullptr;
  const MeasuredTurn turn =
      packed != nullptr ? product.with_packed.Next() : product.unpacked.Next();
  // A way that is not open is measured as what is done instead.
  size_t way = turn.way;
  if (!tiers_.thread_trials) way = StrictProduct::WithAllThreads(way);
  if (way == StrictProduct::kAlone && !facts->alone_is_equal) {
    way = StrictProduct::kTogether;
  } else if (way == StrictProduct::kOwnTogether && packed == nullptr) {
    way = StrictProduct::kTogether;
  } else if (way == StrictProduct::kOwn && packed == nullptr &&
             !(facts->order.has_value() && call.packed->has_few_rows())) {
    way = StrictProduct::kTogether;
  }
  const bool one_thread =
      way == StrictProduct::kAlone || way == StrictProduct::kOwn;
  const bool own =
      way == StrictProduct::kOwn || way == StrictProduct::kOwnTogether;
  const ThreadScope threads(one_thread);
  const Stopwatch stopwatch(&clock_, turn.measured);
  if (!own ||
      !RunOwn(*call.packed, packed.get(), *facts->order, input, results).ok()) {
    DJINN_RETURN_IF_ERROR(ExecutePlain(call, input, results));
  } else if (input.way != nullptr) {
    *input.way = NodeWay::kPacked;
  }
  if (!turn.measured) return absl::OkStatus();
  const uint64_t cost = Choices::Cost(one_thread ? Choices::kOneThread : 0,
                                      stopwatch.Nanoseconds());
  if (packed == nullptr) {
    product.unpacked.Took(turn.way, cost);
  } else {
    product.with_packed.Took(turn.way, cost);
  }
  product.NoteMeasured();
  return absl::OkStatus();
}

absl::Status TorchProgram::ExecuteFast(uint32_t node, const NodeInput& input,
                                       std::vector<NodeResult>* results) const {
  const CpuCall& call = calls_[node];
  std::shared_ptr<const PackedMatrix> packed;
  if (call.packed.has_value()) {
    packed = OfferPacked(*call.packed, input, weights_.get());
  }
  Choices& choices = *call.choices;
  const MeasuredTurn turn =
      packed == nullptr ? choices.plain.Next() : choices.with_packed.Next();
  const size_t way =
      tiers_.thread_trials ? turn.way : turn.way & ~size_t{Choices::kOneThread};
  const ThreadScope threads((way & Choices::kOneThread) != 0);
  const Stopwatch stopwatch(&clock_, turn.measured);
  // Whatever keeps the packed form from being used, the plain call does
  // without, and fails as it always did.
  if ((way & Choices::kPacked) == 0 ||
      !RunOwn(*call.packed, packed.get(), SumOrder(), input, results).ok()) {
    DJINN_RETURN_IF_ERROR(ExecutePlain(call, input, results));
  } else if (input.way != nullptr) {
    *input.way = NodeWay::kPacked;
  }
  if (!turn.measured) return absl::OkStatus();
  const uint64_t cost = Choices::Cost(way, stopwatch.Nanoseconds());
  if (packed == nullptr) {
    choices.plain.Took(turn.way, cost);
  } else {
    choices.with_packed.Took(turn.way, cost);
  }
  choices.NoteMeasured();
  return absl::OkStatus();
}

}  // namespace djinn::worker
