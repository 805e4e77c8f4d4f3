#include "client_lib/capture/kernel/capture_kernel.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/optimization.h"
#include "absl/strings/string_view.h"
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/device/shape_only.h"
#include "client_lib/capture/device/throw_status.h"
#include "client_lib/capture/device/warning_watch.h"
#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/capture/inference/shape_memo.h"
#include "client_lib/capture/kernel/argument_writer.h"
#include "client_lib/capture/kernel/copy.h"
#include "client_lib/capture/kernel/custom_operators.h"
#include "client_lib/capture/kernel/host_call.h"
#include "client_lib/capture/operators/boxed_call.h"
#include "client_lib/capture/operators/scalars.h"
#include "client_lib/capture/outputs/cpu_trial.h"
#include "client_lib/capture/outputs/written_outputs.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/profile/request_tracer.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/torch/data_type.h"
#include "djinn/error.h"

namespace djinn::capture {
namespace {

using Outcome = InferredResults::Outcome;

// Buffers that a thread reuses for each call.
struct Scratch {
  Call call;
  ShapeMemo memo;
  std::string key;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

struct SynchronousCounter {
  Mutex mu;
  std::map<std::string, uint64_t> counts ABSL_GUARDED_BY(mu);
};

SynchronousCounter& Counter() {
  static SynchronousCounter* const counter = new SynchronousCounter;
  return *counter;
}

void CountSynchronous(const OperatorInfo& info) {
  SynchronousCounter& counter = Counter();
  MutexLock lock(&counter.mu);
  ++counter.counts[info.name];
}

// Returns the call's key in the memo. It begins with the template bytes, which
// hold no floating-point values. The marks of numbers that overflow a dtype, of
// autocast, of negative numbers and of convolutions without oneDNN follow, and
// the floating-point arguments if they decide the shape.
absl::string_view MemoKey(const OperatorInfo& info, Arguments arguments,
                          const Call& call, std::string* buffer) {
  buffer->clear();
  AppendOverflows(info, arguments, buffer);
  if (info.is_composite_on_cpu && CastsParts()) buffer->append("cast");
  if (ABSL_PREDICT_FALSE(!at::globalContext().userEnabledMkldnn())) {
    buffer->append("plain");
  }
  // The CPU may refuse a negative number, or warn of it.
  for (size_t i = 0; i < call.floats().size(); ++i) {
    if (ABSL_PREDICT_TRUE(call.floats()[i] >= 0)) continue;
    buffer->push_back('-');
    buffer->push_back(static_cast<char>(i));
  }
  if (!info.reals_shape && buffer->empty()) return call.bytes();
  // The template bytes delimit themselves.
  buffer->insert(0, call.bytes().data(), call.bytes().size());
  if (!info.reals_shape) return *buffer;
  for (const double value : call.floats()) {
    buffer->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return *buffer;
}

// Captures one call.
class Capture {
 public:
  Capture(const OperatorInfo& info, torch::jit::Stack* stack)
      : info_(info),
        stack_(stack),
        count_(info.arguments.size()),
        device_(DeviceOfCall(info, arguments())),
        lane_(CurrentLane()),
        scratch_(ThreadScratch()) {}

  void Run() {
    c10::IValue* const mutable_arguments =
        stack_->data() + (stack_->size() - count_);
    PlaceOperands(info_, device_, arguments(), mutable_arguments);
    if (ABSL_PREDICT_FALSE(!HasUsualDefaultDtype())) {
      MakeDefaultDtypeExplicit(info_, mutable_arguments);
    }
    if (info_.fresh_results) {
      RunFresh();
    } else if (info_.writes) {
      RunWriting();
    } else {
      WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
      Record();
      Replace(stack_, count_, {});
    }
  }

 private:
  Arguments arguments() const { return ArgumentsOf(info_, *stack_); }

  // Records the call. `created` holds its results if the worker may not know
  // the operator.
  void Record(const std::vector<at::Tensor>& created = {}) {
    const uint32_t flags = debug::Flags();
    if (ABSL_PREDICT_FALSE(flags != 0)) NoteSite();
    const bool accepted = BeginUnaccepted();
    ThrowIfError(device_->Record(lane_, &scratch_.call));
    if (ABSL_PREDICT_FALSE((flags & debug::kEager) != 0)) {
      ThrowIfError(device_->Synchronize());
    }
    if (!accepted) AwaitAcceptance(created);
  }

  // Reads one element of a tensor that the call created or wrote, so that a
  // worker that does not know the operator reports it here.
  void AwaitAcceptance(const std::vector<at::Tensor>& created) {
    std::vector<at::Tensor> written = created;
    for (size_t i = 0; i < count_; ++i) {
      if (info_.arguments[i].access != kReads && arguments()[i].isTensor()) {
        written.push_back(arguments()[i].toTensor());
      }
    }
    for (const at::Tensor& tensor : written) {
      if (!tensor.defined() || tensor.numel() == 0) continue;
      CopyToCpu(tensor.as_strided({}, {}, tensor.storage_offset()),
                at::empty({}, tensor.options().device(c10::kCPU)));
      NoteAcceptedBy(info_, device_);
      return;
    }
  }

  // Prepares to compute the call's result in this process as well. Call this
  // before recording the call. `result` returns the tensor that the call
  // creates or overwrites; it is called only for operators that this process
  // can compute.
  template <typename Result>
  std::optional<HostWrite> ComputeLocally(Result result) {
    if (ABSL_PREDICT_TRUE(info_.host_use == HostUse::kNone)) {
      return std::nullopt;
    }
    return HostWrite::OfCall(info_, arguments(), result(), device_.get());
  }

  // Returns whether the device's worker is known to have the operator.
  bool IsAccepted() const {
    return !info_.is_custom || IsAcceptedBy(info_, device_);
  }

  // Returns IsAccepted(). If the operator is not accepted yet, sends everything
  // before the call, so that the call begins a segment: a worker that does not
  // know an operator refuses the whole segment.
  bool BeginUnaccepted() {
    if (IsAccepted()) return true;
    ThrowIfError(device_->CatchUp());
    return false;
  }

  bool ReturnsLists() const {
    return absl::c_linear_search(info_.returns_list, true);
  }

  void NoteSite() {
    if ((debug::Flags() & (debug::kCallSites | debug::kPhases)) != 0) {
      scratch_.call.set_site(CurrentCallSite());
    }
  }

  // Runs a check of the call. If the check fails and the CPU refuses the call
  // too, throws the CPU's own error instead.
  template <typename Check>
  auto OrAsCpu(Check check) {
    try {
      return check();
    } catch (const Error&) {
      throw;  // An error of the session stays as it is.
    } catch (const c10::Error&) {
      ThrowAsCpu(info_, arguments());
      throw;
    }
  }

  // Returns the results of the call, from the memo if it knows an equal call,
  // otherwise inferred. The scratch call holds the arguments.
  const InferredResults& Infer() {
    absl::string_view key =
        MemoKey(info_, arguments(), scratch_.call, &scratch_.key);
    if (const InferredResults* known =
            scratch_.memo.Find(info_.operator_id, key)) {
      if (ABSL_PREDICT_FALSE(debug::Has(debug::kShapeInference))) {
        LogShape(info_, "memo of an equal call", *known);
      }
      return *known;
    }
    // Inference runs shape-only kernels on this thread, which do not use the
    // scratch call. A custom operator's meta kernel in Python may use the
    // scratch call.
    const WarningWatch watch;
    unmemoised_ = OrAsCpu([&] { return InferAndLog(info_, arguments()); });
    if (info_.is_custom) {
      WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
      key = MemoKey(info_, arguments(), scratch_.call, &scratch_.key);
    }
    // Views refer to the tensors of this call, so the memo cannot hold them. A
    // call whose parts are cast is not executed.
    if (unmemoised_.outcome == Outcome::kViews ||
        unmemoised_.outcome == Outcome::kCastParts) {
      return unmemoised_;
    }
    TryOnCpu(info_, arguments(), unmemoised_, /*aloud=*/!watch.warned());
    // An equal call warns as well.
    if (watch.warned()) return unmemoised_;
    return *scratch_.memo.Insert(info_.operator_id, key,
                                 std::move(unmemoised_));
  }

  void RunFresh() {
    WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
    const InferredResults& inferred = Infer();
    if (inferred.outcome == Outcome::kKnown &&
        ((!IsAccepted() && !ReturnsLists()) ||
         AwaitsOutcome(info_, arguments()))) {
      Replace(stack_, count_, RunSynchronously(inferred));
      return;
    }
    switch (inferred.outcome) {
      case Outcome::kViews:
        Replace(stack_, count_, inferred.views);
        return;
      case Outcome::kUnknown:
        Replace(stack_, count_, RunSynchronously(inferred));
        return;
      case Outcome::kCastParts:
        info_.handle.callBoxedForDispatchKey(info_.reentry, *stack_);
        return;
      case Outcome::kKnown:
        break;
    }
    std::vector<at::Tensor> tensors;
    tensors.reserve(inferred.results.size());
    for (const ResultMeta& meta : inferred.results) {
      tensors.push_back(AddKnownResult(meta));
    }
    std::vector<at::Tensor> created;
    if (!IsAccepted()) created = tensors;
    std::optional<HostWrite> host =
        ComputeLocally([&] { return tensors.at(0); });
    std::vector<c10::IValue> results =
        PackReturns(info_, inferred.lengths, std::move(tensors));
    Record(created);
    if (host.has_value()) std::move(*host).Store();
    Replace(stack_, count_, std::move(results));
  }

  at::Tensor AddKnownResult(const ResultMeta& meta) {
    if (!meta.defined) {
      scratch_.call.AddUndefinedResult();
      return at::Tensor();
    }
    at::Tensor tensor =
        NewRemoteTensor(device_, meta.sizes, meta.strides, meta.dtype);
    Operand result;
    result.storage = StorageOf(tensor);
    result.access = kCreates;
    result.data_type = DataTypeOf(tensor);
    result.sizes = {meta.sizes.data(), meta.sizes.size()};
    result.strides = {meta.strides.data(), meta.strides.size()};
    scratch_.call.AddResult(result);
    return tensor;
  }

  // Executes the call at once, in its own segment, and waits for the metadata
  // of its results. Used only if no other way finds them.
  std::vector<c10::IValue> RunSynchronously(const InferredResults& inferred) {
    if (inferred.outcome == Outcome::kUnknown) CountSynchronous(info_);
    std::vector<StoragePtr> storages;  // null for undefined results
    for (size_t i = 0; i < info_.returns_list.size(); ++i) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          !info_.returns_list[i], info_.name,
          " returns a list whose length is not known before it runs; this is "
          "not supported on remote devices");
      if (!inferred.results.empty() && !inferred.results[i].defined) {
        storages.emplace_back();
        scratch_.call.AddUndefinedResult();
        continue;
      }
      storages.push_back(device_->NewStorage(0));
      scratch_.call.AddUnknownResult(storages.back().get());
    }
    NoteSite();
    const bool accepted = BeginUnaccepted();
    absl::StatusOr<std::vector<ResultMetadata>> outcome =
        device_->RecordAndWait(lane_, &scratch_.call);
    ThrowIfNotDecomposed(outcome.status());
    const std::vector<ResultMetadata> metadata =
        ValueOrThrow(std::move(outcome));
    if (!accepted) NoteAcceptedBy(info_, device_);
    std::vector<c10::IValue> results;
    size_t next = 0;
    for (StoragePtr& storage : storages) {
      results.emplace_back(
          !storage ? at::Tensor()
                   : FromMetadata(metadata.at(next++), std::move(storage)));
    }
    return results;
  }

  // Throws the error of the call's own kernel in the words and the type of the
  // CPU, if the call is a decomposition.
  void ThrowIfNotDecomposed(const absl::Status& status) const {
    if (status.ok() || !AwaitsOutcome(info_, arguments()) ||
        ErrorMetadataValue(status, "operator") != info_.name) {
      return;
    }
    const absl::string_view text = status.message();
    const absl::string_view own = text.substr(0, text.find(" [in aten::"));
    const std::string reason = ErrorReason(status);
    TORCH_CHECK_LINALG(reason != "LINALG_FAILED", own);
    TORCH_CHECK(reason != "OPERATOR_FAILED", own);
  }

  static at::Tensor FromMetadata(const ResultMetadata& metadata,
                                 StoragePtr storage) {
    const srg::TensorView& view = metadata.view;
    const std::optional<c10::ScalarType> type = DataTypeToTorch(view.data_type);
    TORCH_INTERNAL_ASSERT(type.has_value());
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        WrapStorage(std::move(storage), metadata.storage_bytes),
        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::scalarTypeToTypeMeta(*type));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
        {view.sizes.data(), view.sizes.size()},
        {view.strides.data(), view.strides.size()}, view.storage_offset);
    return tensor;
  }

  // Captures operators that return only the arguments that they write.
  void RunWriting() {
    WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
    if (!IsKnownValid()) {
      const WarningWatch watch;
      if (!OrAsCpu([&] { return PrepareOutputs(info_, stack_, CaptureCall); }))
        return;
      TryOnCpu(info_, arguments(), {}, /*aloud=*/!watch.warned());
      // The check may have resized an output, so the arguments are written a
      // second time.
      WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
      if (!watch.warned()) {
        scratch_.memo.Insert(
            info_.operator_id,
            MemoKey(info_, arguments(), scratch_.call, &scratch_.key), {});
      }
    }
    if (info_.writes_by_others) RaiseVersions();
    std::optional<HostWrite> host =
        ComputeLocally([&] { return arguments()[0].toTensor(); });
    Record();
    if (host.has_value()) std::move(*host).Store();
    Replace(stack_, count_, ReturnedArguments(info_, arguments()));
  }

  // Raises the versions of the written tensors, by which autograd detects that
  // a saved tensor was changed. Throws if a tensor must not be written.
  void RaiseVersions() {
    for (size_t i = 0; i < count_; ++i) {
      if (info_.arguments[i].access == kReads) continue;
      ForEachDefinedTensor(arguments()[i], [](const at::Tensor& tensor) {
        tensor.unsafeGetTensorImpl()->bump_version();
      });
    }
  }

  // Returns whether an equal call has passed the check before. The scratch call
  // holds the arguments, and its key contains the outputs' sizes.
  bool IsKnownValid() {
    return scratch_.memo.Find(info_.operator_id,
                              MemoKey(info_, arguments(), scratch_.call,
                                      &scratch_.key)) != nullptr;
  }

  const OperatorInfo& info_;
  torch::jit::Stack* const stack_;
  const size_t count_;
  const std::shared_ptr<VirtualDevice> device_;
  const uint32_t lane_;
  Scratch& scratch_;
  InferredResults unmemoised_;
};

void RunView(const OperatorInfo& info, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(info.reentry != c10::DispatchKey::Undefined,
                              info.name,
                              " is a view that remote devices do not support");
  for (const c10::IValue& argument : ArgumentsOf(info, *stack)) {
    if (argument.isTensor()) RefuseNames(info, argument.toTensor());
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  info.handle.callBoxedForDispatchKey(info.reentry, *stack);
}

// Returns whether a factory's result is on another device than the tensor that
// it follows.
bool LeavesDevice(const OperatorInfo& info, Arguments arguments) {
  if (!info.other_device.has_value() ||
      !arguments[*info.other_device].isDevice() || !arguments[0].isTensor()) {
    return false;
  }
  c10::Device device = arguments[*info.other_device].toDevice();
  if (device.is_privateuseone() && !device.has_index()) {
    device.set_index(static_cast<c10::DeviceIndex>(CurrentDeviceIndex()));
  }
  return device != arguments[0].toTensor().device();
}

// Reports the call to the profile and to the log of the debug level
// "interception".
void ObserveCall(const OperatorInfo& info, torch::jit::Stack* stack) {
  NoteWork();
  if (!debug::Has(debug::kInterception)) return;
  LogCall(info, ArgumentsOf(info, *stack));
}

}  // namespace

void CaptureCall(const OperatorInfo& called, torch::jit::Stack* stack) {
  const OperatorInfo& info = CollapseEqualScalars(called, stack);
  if (ABSL_PREDICT_FALSE(
          (debug::Flags() & (debug::kInterception | debug::kProfile)) != 0) &&
      !ShapeOnlyScope::Active()) {
    ObserveCall(info, stack);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(info.refusal.empty(), info.refusal);
  if (info.filling.has_value()) {
    const Arguments arguments = ArgumentsOf(info, *stack);
    CheckFits(arguments[0].toTensor().scalar_type(),
              arguments[*info.filling].toScalar());
  }
  if (info.is_view) {
    RunView(info, stack);
  } else if (info.reentry != c10::DispatchKey::Undefined &&
             LeavesDevice(info, ArgumentsOf(info, *stack))) {
    // The composite calls the factory of the other device.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    info.handle.callBoxedForDispatchKey(info.reentry, *stack);
  } else if (ShapeOnlyScope::Active()) {
    ShapeOnlyCall(info, stack);
  } else {
    Capture(info, stack).Run();
  }
}

std::map<std::string, uint64_t> SynchronousCalls() {
  SynchronousCounter& counter = Counter();
  MutexLock lock(&counter.mu);
  return counter.counts;
}

}  // namespace djinn::capture
