#include "client_lib/capture/capture_kernel.h"

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
#include "client_lib/capture/argument_writer.h"
#include "client_lib/capture/boxed_call.h"
#include "client_lib/capture/call_log.h"
#include "client_lib/capture/call_site.h"
#include "client_lib/capture/copy.h"
#include "client_lib/capture/cpu_trial.h"
#include "client_lib/capture/custom_operators.h"
#include "client_lib/capture/default_dtype.h"
#include "client_lib/capture/equal_scalars.h"
#include "client_lib/capture/host_call.h"
#include "client_lib/capture/lane.h"
#include "client_lib/capture/limited_inference.h"
#include "client_lib/capture/misfits.h"
#include "client_lib/capture/output_checks.h"
#include "client_lib/capture/remote_tensor.h"
#include "client_lib/capture/shape_inference.h"
#include "client_lib/capture/shape_memo.h"
#include "client_lib/capture/shape_only.h"
#include "client_lib/capture/shape_only_call.h"
#include "client_lib/capture/tensors_of.h"
#include "client_lib/capture/throw_status.h"
#include "client_lib/capture/written_outputs.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/profile/profile_recorder.h"
#include "common/mutex.h"
#include "common/torch/data_type.h"
#include "djinn/error.h"

namespace djinn::capture {
namespace {

using Outcome = InferredResults::Outcome;

// What a thread reuses from call to call.
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

// The call's template bytes, with the values of floating-point arguments where
// those decide the shape, and which numbers fit no tensor's type: floats are
// holes, so they are not in the bytes.
absl::string_view MemoKey(const OperatorInfo& info, Arguments arguments,
                          const Call& call, std::string* buffer) {
  buffer->clear();
  AppendMisfits(info, arguments, buffer);
  if (!info.reals_shape && buffer->empty()) return call.bytes();
  // The bytes say themselves where they end.
  buffer->insert(0, call.bytes().data(), call.bytes().size());
  if (!info.reals_shape) return *buffer;
  for (const double value : call.floats()) {
    buffer->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return *buffer;
}

// One call being captured.
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

  // `made`: the results of an operator that the worker may not know.
  void Record(const std::vector<at::Tensor>& made = {}) {
    const uint32_t flags = debug::Flags();
    if (ABSL_PREDICT_FALSE(flags != 0)) NoteSite();
    const bool taken = BeginTaken();
    ThrowIfError(device_->Record(lane_, &scratch_.call));
    if (ABSL_PREDICT_FALSE((flags & debug::kEager) != 0)) {
      ThrowIfError(device_->Synchronize());
    }
    if (!taken) AwaitTaken(made);
  }

  // Reads an element of what the call made or wrote: a refusal throws.
  void AwaitTaken(const std::vector<at::Tensor>& made) {
    std::vector<at::Tensor> written = made;
    for (size_t i = 0; i < count_; ++i) {
      if (info_.arguments[i].access != kReads && arguments()[i].isTensor()) {
        written.push_back(arguments()[i].toTensor());
      }
    }
    for (const at::Tensor& tensor : written) {
      if (!tensor.defined() || tensor.numel() == 0) continue;
      CopyToCpu(tensor.as_strided({}, {}, tensor.storage_offset()),
                at::empty({}, tensor.options().device(c10::kCPU)));
      NoteTakenBy(info_, device_);
      return;
    }
  }

  // For a call that is about to be recorded. `result`, of those that may be
  // known: what it makes or overwrites.
  template <typename Result>
  std::optional<HostWrite> OnHost(Result result) {
    if (ABSL_PREDICT_TRUE(info_.host_use == HostUse::kNone)) {
      return std::nullopt;
    }
    return HostWrite::OfCall(info_, arguments(), result(), device_.get());
  }

  // Whether the worker is known to have the operator.
  bool IsTaken() const { return !info_.is_custom || IsTakenBy(info_, device_); }

  // The same; if it is not, the call begins a segment: a worker that does not
  // know an operator refuses the whole of it.
  bool BeginTaken() {
    if (IsTaken()) return true;
    ThrowIfError(device_->Synchronize());
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

  // A check of the call; where it fails, the CPU's own words have precedence.
  template <typename Check>
  auto OrAsCpu(Check check) {
    try {
      return check();
    } catch (const Error&) {
      throw;  // Djinn's own
    } catch (const c10::Error&) {
      ThrowAsCpu(info_, arguments());
      throw;
    }
  }

  // The memo's answer or a new one. The scratch call holds the arguments.
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
    // Inference runs other kernels of this thread, which are shape-only and do
    // not touch the scratch call. A meta kernel in Python may do anything.
    unmemoised_ =
        OrAsCpu([&] { return InferWithinLimits(info_, arguments()); });
    if (info_.is_custom) {
      WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
      key = MemoKey(info_, arguments(), scratch_.call, &scratch_.key);
    }
    // Views are tensors of this very call: not for the memo.
    if (unmemoised_.outcome == Outcome::kViews) return unmemoised_;
    TryOnCpu(info_, arguments(), unmemoised_);
    return *scratch_.memo.Insert(info_.operator_id, key,
                                 std::move(unmemoised_));
  }

  void RunFresh() {
    WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
    const InferredResults& inferred = Infer();
    if (inferred.outcome == Outcome::kKnown && !IsTaken() && !ReturnsLists()) {
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
      case Outcome::kKnown:
        break;
    }
    std::vector<at::Tensor> tensors;
    tensors.reserve(inferred.results.size());
    for (const ResultMeta& meta : inferred.results) {
      tensors.push_back(AddKnownResult(meta));
    }
    std::vector<at::Tensor> made;
    if (!IsTaken()) made = tensors;
    std::optional<HostWrite> host = OnHost([&] { return tensors.at(0); });
    std::vector<c10::IValue> results =
        PackReturns(info_, inferred.lengths, std::move(tensors));
    Record(made);
    if (host.has_value()) std::move(*host).Keep();
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
    result.access = kBirth;
    result.data_type = DataTypeOf(tensor);
    result.sizes = {meta.sizes.data(), meta.sizes.size()};
    result.strides = {meta.strides.data(), meta.strides.size()};
    scratch_.call.AddResult(result);
    return tensor;
  }

  // The last resort: the call alone in its segment, and a wait for what it
  // returned.
  std::vector<c10::IValue> RunSynchronously(const InferredResults& inferred) {
    if (inferred.outcome == Outcome::kUnknown) CountSynchronous(info_);
    std::vector<StoragePtr> storages;  // null for what is undefined
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
    const bool taken = BeginTaken();
    const std::vector<ResultMetadata> metadata =
        ValueOrThrow(device_->RecordAndWait(lane_, &scratch_.call));
    if (!taken) NoteTakenBy(info_, device_);
    std::vector<c10::IValue> results;
    size_t next = 0;
    for (StoragePtr& storage : storages) {
      results.emplace_back(
          !storage ? at::Tensor()
                   : FromMetadata(metadata.at(next++), std::move(storage)));
    }
    return results;
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

  // Operators that return nothing but the arguments they write.
  void RunWriting() {
    WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
    if (!KnownToBeRight()) {
      if (!OrAsCpu([&] { return PrepareOutputs(info_, stack_); })) return;
      TryOnCpu(info_, arguments(), {});
      // Again: the check may have resized an output.
      WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
      scratch_.memo.Insert(
          info_.operator_id,
          MemoKey(info_, arguments(), scratch_.call, &scratch_.key), {});
    }
    if (info_.writes_by_others) RaiseVersions();
    std::optional<HostWrite> host =
        OnHost([&] { return arguments()[0].toTensor(); });
    Record();
    if (host.has_value()) std::move(*host).Keep();
    Replace(stack_, count_, ReturnedArguments(info_, arguments()));
  }

  // Of what is written, for what autograd has saved of it. Throws where nobody
  // may write.
  void RaiseVersions() {
    for (size_t i = 0; i < count_; ++i) {
      if (info_.arguments[i].access == kReads) continue;
      ForEachTensor(arguments()[i], [](const at::Tensor& tensor) {
        tensor.unsafeGetTensorImpl()->bump_version();
      });
    }
  }

  // Whether an equal call has passed the check before. The scratch call holds
  // the arguments; the sizes of outputs are among them.
  bool KnownToBeRight() {
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

// Whether the result belongs on another device than the tensor it follows.
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

// What is asked to see every call sees this one.
void ObserveCall(const OperatorInfo& info, torch::jit::Stack* stack) {
  NoteWork();
  if (!debug::Has(debug::kInterception)) return;
  LogCall(info, ArgumentsOf(info, *stack));
}

}  // namespace

void CaptureCall(const OperatorInfo& called, torch::jit::Stack* stack) {
  const OperatorInfo& info = SayOnce(called, stack);
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
    // Its composite asks that device.
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
