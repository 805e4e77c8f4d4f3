#include "gpu_worker/plan/run_executor.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/retry_after.h"
#include "common/base/saturating.h"
#include "common/base/status_macros.h"
#include "common/srg/proto_codec.h"
#include "common/srg/switches.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/profile.pb.h"
#include "gpu_worker/plan/late_failures.h"
#include "gpu_worker/plan/result_check.h"
#include "gpu_worker/plan/run_memory.h"

namespace djinn::worker {
namespace {

// When others may have given memory back.
constexpr absl::Duration kRetryForMemory = absl::Seconds(1);

class RunExecution final : public OngoingRun {
 public:
  RunExecution(const Plan& plan, const BoundRun& run,
               const Lifetimes& lifetimes, const RunContext& context)
      : plan_(plan),
        run_(run),
        message_(*run.message),
        context_(context),
        memory_(plan, run, lifetimes, context) {}

  void Execute(v1::RunMetadata* metadata) {
    Begin();
    while (next_ < end_ && !Cancelled()) ExecuteNext();
    Finish(metadata);
  }

  const std::vector<Product>& products() const override { return products_; }

  // Lists the products. Call it before Begin(), which takes the buffers out of
  // the storages.
  void ListProducts() { products_ = ProductsOf(plan_, run_); }

  void Begin() override {
    ++context_.counters->runs;
    plan_.CountRun();
    if ((refused_ = memory_.CheckExtents())) return;
    memory_.Bind();
    end_ = static_cast<uint32_t>(plan_.steps().size());
    device_run_ = plan_.program().BeginRun();
    if (device_run_ != nullptr && device_run_->MayBeWhole()) TryWhole();
  }

  bool cramped() const override {
    return memory_.cramped() && refused_ == nullptr;
  }

  const Product* Advance() override {
    for (; next_ < end_ && !Cancelled(); ExecuteNext()) {
      while (next_product_ < products_.size() &&
             products_[next_product_].node < next_) {
        ++next_product_;
      }
      if (next_product_ == products_.size()) continue;
      const Product& product = products_[next_product_];
      // The buffers differ once the run has written the weight.
      if (product.node == next_ &&
          product.weight == memory_.buffer(product.weight_slot).get()) {
        return &product;
      }
    }
    return nullptr;
  }

  void RunProduct() override { ExecuteNext(); }

  bool StageProduct(JoinedCall* call) override {
    if (!BeginNode(next_)) {
      Leave();
      return false;
    }
    staged_.emplace(Input());
    *call = {&plan_.program(), next_, &*staged_, &results_};
    return true;
  }

  void SettleProduct(const JoinedCall& call) override {
    EndNode(next_, call.done ? absl::OkStatus() : CallOperator(next_));
    staged_.reset();
    Leave();
  }

  void Finish(v1::RunMetadata* metadata) override {
    if (refused_ != nullptr) {
      PoisonRun(&plan_, run_, refused_, context_.storages);
      if (plan_.facts().unknown_results > 0) {
        *metadata->mutable_error() = *refused_;
      }
      return;
    }
    if (device_run_ != nullptr) {
      SettleNodes();
      device_run_->End(plain_ && next_ == end_);
    }
    if (plan_.facts().unknown_results > 0) FillMetadata(metadata);
    memory_.Unbind();
  }

 private:
  bool Cancelled() const {
    return context_.cancelled->load(std::memory_order_relaxed);
  }

  // Executes the next node.
  void ExecuteNext() {
    if (ABSL_PREDICT_FALSE(context_.edge != nullptr &&
                           context_.edge->wanted()) &&
        next_ > 0) {
      // Settles first, so that the preempting run does not pay for earlier
      // work.
      if (device_run_ != nullptr) SettleNodes();
      context_.edge->Yield(plan_.mean_device_time());
    }
    if (ABSL_PREDICT_TRUE(context_.timer == nullptr)) {
      RunNode(next_);
    } else {
      TimeNode(next_);
    }
    Leave();
  }
  void Leave() { memory_.FreeUpTo(next_++); }

  RootErrors::Place PlaceOf(uint32_t node) const {
    const srg::Node& call = plan_.graph().nodes[node];
    RootErrors::Place place;
    place.sequence = context_.sequence;
    place.node = node;
    place.operator_name =
        plan_.graph().operators[call.operator_index].FullName();
    place.operands =
        absl::StrJoin(plan_.steps()[node].operands, ", ",
                      [](std::string* out, const srg::TensorView* view) {
                        absl::StrAppend(out, srg::DescribeView(*view));
                      });
    return place;
  }

  // Returns whether the node overwrites the slot wholly without reading it
  // first, so that earlier poison ends here.
  bool Heals(const srg::Node& node, const srg::TensorView& view) const {
    const Storage& storage = *memory_.storage(view.slot);
    return memory_.extents_fit(view.slot) && storage.size_known &&
           std::binary_search(node.overwrites.begin(), node.overwrites.end(),
                              view.slot) &&
           srg::CoversStorage(view, storage.size_bytes);
  }

  // Returns the poison that the node would read, or null.
  RootError PoisonRead(uint32_t node) const {
    const srg::Node& call = plan_.graph().nodes[node];
    for (const srg::TensorView* view : plan_.steps()[node].operands) {
      const RootError& poison = memory_.storage(view->slot)->poison;
      if (poison != nullptr && !Heals(call, *view)) return poison;
    }
    for (const uint32_t slot : plan_.steps()[node].generators) {
      // A generator has no buffer only if it could not be seeded.
      if (memory_.buffer(slot) == nullptr) return memory_.storage(slot)->poison;
    }
    return nullptr;
  }

  // Poisons what the node would have written or returned.
  void Poison(uint32_t node, const RootError& error) {
    const srg::Node& call = plan_.graph().nodes[node];
    for (const uint32_t slot : call.writes) {
      memory_.storage(slot)->poison = error;
    }
    for (const srg::Result& result : call.results) {
      if (const auto* view = std::get_if<srg::TensorView>(&result)) {
        memory_.storage(view->slot)->poison = error;
      } else if (const auto* unknown =
                     std::get_if<srg::UnknownResult>(&result)) {
        Storage* storage = memory_.storage(unknown->slot);
        storage->poison = error;
        storage->size_known = false;
      }
    }
  }

  void TimeNode(uint32_t node) {
    NodeTime time;
    time.node = node;
    way_ = ExecutionPath::kPlain;
    time.began = context_.timer->Now();
    time.failed = !RunNode(node);
    time.ended = context_.timer->Now();
    time.way = way_;
    context_.timer->Add(time);
  }

  // Executes the node. Returns false if it failed or was skipped.
  bool RunNode(uint32_t node) {
    return BeginNode(node) && EndNode(node, CallOperator(node));
  }

  // Execute the node in two steps: up to the call of the operator, and after
  // it.
  bool BeginNode(uint32_t node) {
    if (RootError poison = PoisonRead(node)) {
      ++context_.counters->skipped_nodes;
      NoteNotDone(node);
      Poison(node, poison);
      return false;
    }
    const absl::Status prepared = PrepareNode(node);
    if (!prepared.ok()) Fail(node, prepared);
    return prepared.ok();
  }
  bool EndNode(uint32_t node, absl::Status status) {
    if (status.ok()) status = AdoptResults(node);
    if (!status.ok()) {
      Fail(node, status);
      return false;
    }
    ++context_.counters->nodes;
    for (const uint32_t slot : plan_.graph().nodes[node].writes) {
      memory_.storage(slot)->poison = nullptr;
    }
    return true;
  }

  void Fail(uint32_t node, const absl::Status& status) {
    ++context_.counters->failed_nodes;
    NoteNotDone(node);
    Poison(node, context_.errors->MakePoison(status, PlaceOf(node)));
  }

  void NoteNotDone(uint32_t node) {
    if (device_run_ == nullptr) return;
    plain_ = false;
    not_done_.push_back(node);
  }

  // Executes all nodes at once if the device has them ready. Otherwise the run
  // changes nothing that its nodes would not change when they are due.
  void TryWhole() {
    if (context_.timer != nullptr || plan_.facts().unknown_results > 0 ||
        end_ == 0 || Cancelled()) {
      return;
    }
    std::vector<KeptResult> kept;
    if (!memory_.ListKept(&kept)) return;
    for (uint32_t i = 0; i < memory_.slot_count(); ++i) {
      if (run_.bindings[i].existing == nullptr) continue;
      if (!memory_.Materialize(i).ok()) return;
    }
    for (const srg::Node& node : plan_.graph().nodes) {
      for (const uint32_t slot : node.writes) {
        if (!memory_.Unshare(slot).ok()) return;
      }
    }
    std::vector<std::shared_ptr<Buffer>> results;
    if (!device_run_->ExecuteWhole(Input(), kept, &results)) return;
    for (size_t i = 0; i < kept.size(); ++i) {
      memory_.Own(kept[i].slot, std::move(results[i]), kept[i].bytes);
    }
    context_.counters->nodes += end_;
    next_ = end_;
    memory_.FreeUpTo(end_);
  }

  // Waits for the nodes so far and poisons the outputs of those that failed
  // after their calls had returned. Nodes before an earlier call cannot fail
  // any more.
  void SettleNodes() {
    std::vector<LateFailure> failures;
    const absl::Status status = device_run_->Settle(&failures);
    std::vector<std::pair<uint32_t, RootError>> late;
    if (!status.ok()) {
      const RootError error =
          context_.errors->MakePoison(status, {.sequence = context_.sequence});
      for (uint32_t i = settled_; i < next_; ++i) late.emplace_back(i, error);
    }
    for (const LateFailure& failure : failures) {
      if (!status.ok() || failure.node >= next_) continue;
      late.emplace_back(
          failure.node,
          context_.errors->MakePoison(failure.status, PlaceOf(failure.node)));
    }
    settled_ = next_;
    if (late.empty()) return;
    plain_ = false;
    context_.counters->failed_nodes += late.size();
    for (const auto& [slot, error] : SpreadLateFailures(
             plan_, late, not_done_, next_,
             [this](const srg::Node& node, const srg::TensorView& view) {
               return Heals(node, view);
             })) {
      memory_.storage(slot)->poison = error;
    }
  }

  absl::Status PrepareNode(uint32_t node) {
    const srg::Node& call = plan_.graph().nodes[node];
    for (const srg::TensorView* view : plan_.steps()[node].operands) {
      DJINN_RETURN_IF_ERROR(memory_.Materialize(view->slot));
    }
    for (const uint32_t slot : call.writes) {
      DJINN_RETURN_IF_ERROR(memory_.Unshare(slot));
    }
    for (const uint32_t slot : plan_.steps()[node].generators) {
      DJINN_RETURN_IF_ERROR(memory_.Unshare(slot));
    }
    results_.clear();
    return memory_.Reserve(call);
  }

  absl::Status AdoptResults(uint32_t node) {
    const srg::Node& call = plan_.graph().nodes[node];
    if (results_.size() != call.results.size()) {
      return MakeError(absl::StatusCode::kInternal, "METADATA_MISMATCH",
                       absl::StrCat("the operator returned ", results_.size(),
                                    " tensors, not ", call.results.size()));
    }
    MarkAliases(node);
    absl::Status adopted;
    for (size_t i = 0; i < call.results.size() && adopted.ok(); ++i) {
      adopted = Adopt(call.results[i], i, &results_[i]);
    }
    // Drops all results of a failed node, and releases operands.
    if (!adopted.ok()) memory_.Drop(call);
    results_.clear();
    return adopted;
  }

  // Finds results that are an operand's or another result's memory, whether or
  // not the library reported it.
  void MarkAliases(uint32_t node) {
    for (size_t i = 0; i < results_.size(); ++i) {
      NodeResult& result = results_[i];
      if (result.buffer == nullptr) continue;
      for (const srg::TensorView* view : plan_.steps()[node].operands) {
        if (memory_.buffer(view->slot) == result.buffer) {
          result.aliased_slot = view->slot;
        }
      }
      for (size_t j = 0; j < i; ++j) {
        if (results_[j].buffer == result.buffer) {
          // Any slot serves: the value only says that the memory is shared.
          result.aliased_slot = result.view.slot;
        }
      }
    }
  }

  NodeInput Input() {
    return {memory_.buffers(), run_.floats,
            ScalarTensors(),   message_.mode() == v1::EXECUTION_MODE_FAST,
            &context_.tenant,  context_.timer == nullptr ? nullptr : &way_,
            device_run_.get(), memory_.EndsUpTo(next_),
            memory_.ends(),    std::numeric_limits<uint64_t>::max(),
            switches_};
  }

  // Returns the bytes that are reserved for the call's results, and what the
  // session may take besides.
  uint64_t MostBytes(const srg::Node& call) const {
    uint64_t bytes = context_.quota->room();
    for (const srg::Result& result : call.results) {
      const auto* const view = std::get_if<srg::TensorView>(&result);
      if (view == nullptr) continue;
      bytes = SaturatingSum(bytes, plan_.created_bytes()[view->slot]);
    }
    return bytes;
  }

  // Calls the operator. One that lacked memory and may have changed nothing is
  // called once more, after others gave up what they can do without.
  absl::Status CallOperator(uint32_t node) {
    absl::Status status = TryOperator(node);
    if (ABSL_PREDICT_TRUE(status.ok()) || !LacksMemory(status)) return status;
    const srg::Node& call = plan_.graph().nodes[node];
    if (call.writes.empty() && plan_.steps()[node].generators.empty()) {
      ++context_.counters->retried_nodes;
      results_.clear();
      context_.memory->Relieve(MostBytes(call));
      status = TryOperator(node);
    }
    return LacksMemory(status) ? WithRetryAfter(status, kRetryForMemory)
                               : status;
  }
  static bool LacksMemory(const absl::Status& status) {
    return ErrorReason(status) == "OUT_OF_MEMORY";
  }

  absl::Status TryOperator(uint32_t node) {
    try {
      NodeInput input = Input();
      input.most_bytes = MostBytes(plan_.graph().nodes[node]);
      return plan_.program().Execute(node, input, &results_);
    } catch (const std::exception& error) {
      return MakeError(absl::StatusCode::kInternal, "OPERATOR_FAILED",
                       error.what());
    } catch (...) {
      return MakeError(absl::StatusCode::kInternal, "OPERATOR_FAILED",
                       "the operator threw something unknown");
    }
  }

  absl::Span<const std::string> ScalarTensors() {
    if (scalar_tensors_.empty() && message_.scalar_tensors_size() > 0) {
      scalar_tensors_.assign(message_.scalar_tensors().begin(),
                             message_.scalar_tensors().end());
    }
    return scalar_tensors_;
  }

  // Makes the operator's `number`-th result the value of its slot.
  absl::Status Adopt(const srg::Result& expected, size_t number,
                     NodeResult* result) {
    if (std::holds_alternative<srg::UndefinedResult>(expected)) {
      return CheckUndefined(*result);
    }
    const auto* view = std::get_if<srg::TensorView>(&expected);
    const uint32_t slot = view != nullptr
                              ? view->slot
                              : std::get<srg::UnknownResult>(expected).slot;
    if (view == nullptr) {
      DJINN_RETURN_IF_ERROR(CheckUnknown(*result));
    } else {
      DJINN_RETURN_IF_ERROR(CheckMetadata(*view, *result));
    }
    // Unknown results were not reserved, and an operator may take more than the
    // inferred extent.
    const bool copy = NeedsCopy(view, *result);
    const uint64_t bytes =
        copy ? CopyBytes(view, *result) : result->buffer->size_bytes();
    const uint64_t required = plan_.facts().slots[slot].required_bytes;
    if (required > bytes) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, "INVALID_VIEW",
          absl::StrCat("a later view of slot ", slot, " needs ", required,
                       " bytes, but the result has ", bytes));
    }
    if (!copy && memory_.TakePaid(slot, &result->buffer)) {
      return absl::OkStatus();
    }
    DJINN_RETURN_IF_ERROR(memory_.Pay(number, bytes));
    std::shared_ptr<Buffer> buffer = std::move(result->buffer);
    if (copy) {
      plain_ = false;
      ++context_.counters->alias_copies;
      DJINN_ASSIGN_OR_RETURN(
          buffer, CopyResult(context_.memory->device(), view, std::move(buffer),
                             &result->view));
    }
    memory_.Take(number, slot, std::move(buffer));
    if (view == nullptr) unknown_views_.emplace_back(slot, result->view);
    return absl::OkStatus();
  }

  // Fills in either an error or one entry per unknown result.
  void FillMetadata(v1::RunMetadata* metadata) {
    for (const srg::Node& node : plan_.graph().nodes) {
      for (const srg::Result& result : node.results) {
        const auto* unknown = std::get_if<srg::UnknownResult>(&result);
        if (unknown == nullptr) continue;
        const Storage* storage = memory_.storage(unknown->slot);
        if (storage->poison != nullptr) {
          metadata->Clear();
          *metadata->mutable_error() = *storage->poison;
          return;
        }
        const auto found = std::find_if(
            unknown_views_.begin(), unknown_views_.end(),
            [&](const auto& entry) { return entry.first == unknown->slot; });
        if (found == unknown_views_.end()) {
          // The run was cancelled and skipped the nodes from here on.
          metadata->Clear();
          *metadata->mutable_error() = *context_.errors->Make(
              MakeError(absl::StatusCode::kCancelled, "SESSION_ENDED",
                        "the session ended before the run did"),
              {.sequence = context_.sequence});
          return;
        }
        *metadata->add_results() = srg::ToProto(found->second);
        metadata->add_storage_bytes(storage->size_bytes);
      }
    }
  }

  const Plan& plan_;
  const BoundRun& run_;
  const v1::Run& message_;
  const RunContext& context_;
  // CheckRun() checked them.
  const srg::Switches switches_ = message_.has_switches()
                                      ? *srg::FromProto(message_.switches())
                                      : srg::Switches();
  RunMemory memory_;
  std::vector<NodeResult> results_;
  std::vector<std::string> scalar_tensors_;
  // The node to execute next, and the end of the nodes to execute.
  uint32_t next_ = 0;
  uint32_t end_ = 0;
  // Says why no node is executed; null if nodes are.
  RootError refused_;
  // The products of a run in lockstep, and the index of the first at or after
  // next_.
  std::vector<Product> products_;
  size_t next_product_ = 0;
  std::optional<NodeInput> staged_;
  // The execution path of the node being executed, if it is timed.
  ExecutionPath way_ = ExecutionPath::kPlain;
  std::vector<std::pair<uint32_t, srg::TensorView>> unknown_views_;
  // The device's state of a run whose nodes work on after their calls have
  // returned; null if every node is done when its call returns.
  std::unique_ptr<DeviceRun> device_run_;
  // If device_run_ is set: whether every node succeeded as the graph says, and
  // the nodes that failed at once or were skipped.
  bool plain_ = true;
  std::vector<uint32_t> not_done_;
  // The end of the nodes that SettleNodes() waited for.
  uint32_t settled_ = 0;
};

}  // namespace

void ExecuteRun(const Plan& plan, const BoundRun& run,
                const Lifetimes& lifetimes, const RunContext& context,
                v1::RunMetadata* metadata) {
  RunExecution(plan, run, lifetimes, context).Execute(metadata);
}

std::vector<OngoingRun::Product> ProductsOf(const Plan& plan,
                                            const BoundRun& run) {
  std::vector<OngoingRun::Product> products;
  for (const RowProduct& product : plan.program().products()) {
    const Storage* const weight = run.bindings[product.weight_slot].existing;
    if (weight == nullptr || weight->buffer == nullptr) continue;
    products.push_back({product.node, product.rows, product.weight_slot,
                        weight->buffer.get(), product.kind});
  }
  return products;
}

std::unique_ptr<OngoingRun> MakeOngoingRun(const Plan& plan,
                                           const BoundRun& run,
                                           const Lifetimes& lifetimes,
                                           const RunContext& context) {
  auto ongoing = std::make_unique<RunExecution>(plan, run, lifetimes, context);
  ongoing->ListProducts();
  return ongoing;
}

}  // namespace djinn::worker
