#include "client_lib/capture/capture_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <xxhash.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/optimization.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "client_lib/capture/argument_writer.h"
#include "client_lib/capture/call_log.h"
#include "client_lib/capture/call_site.h"
#include "client_lib/capture/copy.h"
#include "client_lib/capture/cpu_trial.h"
#include "client_lib/capture/custom_operators.h"
#include "client_lib/capture/default_dtype.h"
#include "client_lib/capture/lane.h"
#include "client_lib/capture/limited_inference.h"
#include "client_lib/capture/output_checks.h"
#include "client_lib/capture/remote_tensor.h"
#include "client_lib/capture/shape_inference.h"
#include "client_lib/capture/shape_only.h"
#include "client_lib/capture/throw_status.h"
#include "client_lib/session/debug_flags.h"
#include "client_lib/session/profile_recorder.h"
#include "client_lib/shape/stride_inference.h"
#include "common/mutex.h"
#include "common/torch/data_type.h"
#include "djinn/error.h"

namespace djinn::capture {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using Outcome = InferredResults::Outcome;

// Results of earlier calls by template bytes. Per thread, so without a lock;
// bounded by starting afresh.
class ShapeMemo {
 public:
  // Null when the call is new. Valid until the next Insert().
  const InferredResults* Find(uint32_t operator_id, absl::string_view bytes) {
    const auto found = entries_.find(Reference{operator_id, bytes});
    return found == entries_.end() ? nullptr : &found->second;
  }

  const InferredResults* Insert(uint32_t operator_id, absl::string_view bytes,
                                InferredResults inferred) {
    if (entries_.size() >= kMaxEntries) entries_.clear();
    return &entries_
                .insert_or_assign(Key{operator_id, std::string(bytes)},
                                  std::move(inferred))
                .first->second;
  }

 private:
  static constexpr size_t kMaxEntries = 16384;

  struct Reference {
    uint32_t operator_id;
    absl::string_view bytes;
  };
  struct Key {
    uint32_t operator_id;
    std::string bytes;
    operator Reference() const { return {operator_id, bytes}; }  // NOLINT
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Reference& key) const {
      return XXH3_64bits_withSeed(key.bytes.data(), key.bytes.size(),
                                  key.operator_id);
    }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const Reference& a, const Reference& b) const {
      return a.operator_id == b.operator_id && a.bytes == b.bytes;
    }
  };

  absl::flat_hash_map<Key, InferredResults, Hash, Equal> entries_;
};

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
// those decide the shape. Floats are holes, so they are not in the bytes.
absl::string_view MemoKey(const OperatorInfo& info, const Call& call,
                          std::string* buffer) {
  if (!info.reals_shape) return call.bytes();
  buffer->assign(call.bytes().data(), call.bytes().size());
  for (const double value : call.floats()) {
    buffer->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return *buffer;
}

// Replaces the last `count` values of the stack.
void Replace(torch::jit::Stack* stack, size_t count,
             std::vector<c10::IValue> results) {
  stack->resize(stack->size() - count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

// What an operator returns that hands back arguments it wrote.
std::vector<c10::IValue> ReturnedArguments(const OperatorInfo& info,
                                           Arguments arguments) {
  std::vector<c10::IValue> results;
  for (const int source : info.returned_arguments) {
    results.push_back(arguments[source]);
  }
  return results;
}

// Packs tensors into returns, lists as lists.
std::vector<c10::IValue> PackReturns(const OperatorInfo& info,
                                     const std::vector<size_t>& lengths,
                                     std::vector<at::Tensor> tensors) {
  std::vector<c10::IValue> returns;
  size_t next = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (!info.returns_list[i]) {
      returns.emplace_back(std::move(tensors[next++]));
      continue;
    }
    c10::List<at::Tensor> list;
    for (size_t k = 0; k < lengths[i]; ++k) {
      list.push_back(std::move(tensors[next++]));
    }
    returns.emplace_back(std::move(list));
  }
  return returns;
}

// The arguments of the functional form of an operator that writes.
std::vector<c10::IValue> FunctionalArguments(const OperatorInfo& info,
                                             Arguments arguments) {
  std::vector<c10::IValue> inputs;
  const at::Tensor* out = nullptr;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!info.arguments[i].is_out) {
      inputs.push_back(arguments[i]);
    } else if (out == nullptr && arguments[i].isTensor()) {
      out = &arguments[i].toTensor();
    }
  }
  if (info.functional_is_factory && out != nullptr) {
    inputs.emplace_back(out->scalar_type());
    inputs.emplace_back();
    inputs.emplace_back(out->device());
    inputs.emplace_back();
  }
  return inputs;
}

// Shape-only mode ------------------------------------------------------------

// Whether there are tensors to read, and no elements in them.
bool AllEmpty(const OperatorInfo& info, Arguments arguments) {
  bool any = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.arguments[i].is_out || !arguments[i].isTensor()) continue;
    const at::Tensor& tensor = arguments[i].toTensor();
    if (!tensor.defined()) continue;
    if (tensor.numel() != 0) return false;
    any = true;
  }
  return any;
}

// Sizes the empty tensors that a composite hands to its out= kernel to size. A
// structured meta function has sized them before.
void SizeOutputs(const OperatorInfo& info, Arguments arguments) {
  if (ShapeOnlyScope::Structured()) return;
  std::vector<at::Tensor> outputs;
  bool unsized = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!info.arguments[i].is_out || !arguments[i].isTensor()) continue;
    outputs.push_back(arguments[i].toTensor());
    unsized |= outputs.back().sizes() == c10::IntArrayRef({0});
  }
  if (!unsized) return;
  thread_local std::vector<const OperatorInfo*> asking;
  if (info.functional == nullptr || absl::c_linear_search(asking, &info)) {
    // The functional form is the very composite that asks. Of nothing but empty
    // tensors, an empty one is likely; the worker compares.
    if (!AllEmpty(info, arguments)) throw NoShape(info.name);
    return;
  }
  asking.push_back(&info);
  const absl::Cleanup done = [] { asking.pop_back(); };
  const InferredResults inferred =
      InferResults(*info.functional, FunctionalArguments(info, arguments));
  if (inferred.outcome != Outcome::kKnown ||
      inferred.results.size() != outputs.size()) {
    throw NoShape(info.name);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ResultMeta& result = inferred.results[i];
    if (!result.defined) continue;
    outputs[i].resize_(result.sizes);
    outputs[i].unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes,
                                                            result.strides);
  }
}

void CheckInPlace(const OperatorInfo& info, const at::Tensor& self,
                  const ResultMeta& result) {
  TORCH_CHECK(self.sizes() == c10::IntArrayRef(result.sizes),
              "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ",
              c10::IntArrayRef(result.sizes));
  TORCH_CHECK(info.output_rules.own_type ||
                  c10::canCast(result.dtype, self.scalar_type()),
              "result type ", result.dtype,
              " can't be cast to the desired output type ", self.scalar_type());
}

// A composite's step in place has to fit as well: a mask that is added.
void CheckStepInPlace(const OperatorInfo& info, Arguments arguments) {
  if (info.is_out || info.functional == nullptr ||
      !info.output_rules.elementwise || !arguments[0].isTensor()) {
    return;
  }
  const InferredResults inferred =
      InferResults(*info.functional, FunctionalArguments(info, arguments));
  if (inferred.outcome == Outcome::kKnown && inferred.results.size() == 1) {
    CheckInPlace(info, arguments[0].toTensor(), inferred.results[0]);
  }
}

void ShapeOnlyCall(const OperatorInfo& info, torch::jit::Stack* stack) {
  const size_t count = info.arguments.size();
  const Arguments arguments(stack->data() + (stack->size() - count), count);
  if (info.writes && !info.fresh_results) {
    SizeOutputs(info, arguments);
    CheckStepInPlace(info, arguments);
    Replace(stack, count, ReturnedArguments(info, arguments));
    return;
  }
  const InferredResults inferred = InferResults(info, arguments);
  switch (inferred.outcome) {
    case Outcome::kUnknown:
      throw NoShape(info.name);
    case Outcome::kViews:
      Replace(stack, count, inferred.views);
      return;
    case Outcome::kKnown:
      break;
  }
  std::vector<at::Tensor> tensors;
  for (const ResultMeta& meta : inferred.results) {
    tensors.push_back(meta.defined ? NewRemoteTensor(nullptr, meta.sizes,
                                                     meta.strides, meta.dtype)
                                   : at::Tensor());
  }
  Replace(stack, count,
          PackReturns(info, inferred.lengths, std::move(tensors)));
}

// Recording ------------------------------------------------------------------

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
  Arguments arguments() const {
    return Arguments(stack_->data() + (stack_->size() - count_), count_);
  }

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
    absl::string_view key = MemoKey(info_, scratch_.call, &scratch_.key);
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
      key = MemoKey(info_, scratch_.call, &scratch_.key);
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
    std::vector<c10::IValue> results =
        PackReturns(info_, inferred.lengths, std::move(tensors));
    Record(made);
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
      if (!OrAsCpu([&] { return CheckWritten(); })) return;
      TryOnCpu(info_, arguments(), {});
      // Again: the check may have resized an output.
      WriteArguments(info_, device_, lane_, arguments(), &scratch_.call);
      scratch_.memo.Insert(info_.operator_id,
                           MemoKey(info_, scratch_.call, &scratch_.key), {});
    }
    Record();
    Replace(stack_, count_, ReturnedArguments(info_, arguments()));
  }

  // Returns false when the whole call has been carried out.
  bool CheckWritten() {
    if (info_.output_rules.elementwise) CheckOverlap(info_, arguments());
    if (info_.functional != nullptr) {
      if (!CheckAgainstFunctional()) return false;
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(
          !info_.is_out, info_.name,
          " has no functional counterpart by which its result's shape could "
          "be known");
    }
    if (!info_.output_rules.elementwise || CopiesIntegers()) {
      CheckOverlap(info_, arguments());
    }
    return true;
  }

  bool CopiesIntegers() const {
    return info_.output_rules.copies_integers &&
           c10::isIntegralType(arguments()[0].toTensor().scalar_type(),
                               /*includeBool=*/true);
  }

  // Whether an equal call has passed the check before. The scratch call holds
  // the arguments; the sizes of outputs are among them.
  bool KnownToBeRight() {
    return scratch_.memo.Find(info_.operator_id,
                              MemoKey(info_, scratch_.call, &scratch_.key)) !=
           nullptr;
  }

  // Infers what the functional form would return: the errors PyTorch raises,
  // and the sizes that out= arguments must have. Returns false when the whole
  // call has been carried out, because only the worker could tell.
  bool CheckAgainstFunctional() {
    const std::vector<at::Tensor> written = Written();
    const std::vector<c10::IValue> inputs =
        FunctionalArguments(info_, arguments());
    const InferredResults inferred =
        InferWithinLimits(*info_.functional, inputs);
    if (inferred.outcome == Outcome::kUnknown && info_.is_out) {
      RunThroughFunctional(inputs, written);
      return false;
    }
    if (inferred.outcome == Outcome::kUnknown ||
        inferred.results.size() != written.size()) {
      return true;
    }
    if (SizesOutputItself(inferred, written)) {
      for (size_t i = 0; i < written.size(); ++i) {
        CheckOut(info_, arguments(), written[i], inferred.results[i]);
      }
      RunThroughFunctional(inputs, written);
      return false;
    }
    const bool laid_out = info_.output_rules.laid_out;
    for (size_t i = 0; i < written.size(); ++i) {
      const ResultMeta& result = inferred.results[i];
      if (!result.defined) continue;
      if (!info_.is_out) {
        CheckInPlace(info_, written[i], result);
      } else if (inferred.outcome == Outcome::kViews) {
        // What looks like a view when it is returned is copied here.
        PrepareOut(written[i], EmptyLike(result.dtype, result), laid_out);
      } else {
        PrepareOut(written[i], result, laid_out);
      }
    }
    return true;
  }

  // Whether the kernel would give an output its size. It then walks through
  // memory as the operands lie, which shows in the last bits, and lets the
  // output share theirs: as when it makes its result, and a copy is made after.
  bool SizesOutputItself(const InferredResults& inferred,
                         const std::vector<at::Tensor>& written) const {
    if (!info_.is_out || !info_.output_rules.elementwise || Generated() ||
        CopiesIntegers() || inferred.outcome != Outcome::kKnown) {
      return false;
    }
    for (size_t i = 0; i < written.size(); ++i) {
      if (inferred.results[i].defined &&
          written[i].sizes() != c10::IntArrayRef(inferred.results[i].sizes)) {
        return true;
      }
    }
    return false;
  }

  // PyTorch generates some from the functional form: they resize first, and
  // neither convert nor lay out as the result is.
  bool Generated() const {
    return info_.handle.hasKernelForDispatchKey(
        c10::DispatchKey::CompositeExplicitAutograd);
  }

  // The tensors that stand for the functional form's results.
  std::vector<at::Tensor> Written() const {
    std::vector<at::Tensor> written;
    for (size_t i = 0; i < count_; ++i) {
      const ArgumentInfo& argument = info_.arguments[i];
      if (argument.access == kReads || argument.is_out != info_.is_out) {
        continue;
      }
      const c10::IValue& value = arguments()[i];
      if (value.isTensor()) {
        written.push_back(value.toTensor());
      } else if (argument.is_out) {
        for (const at::Tensor& tensor : value.toTensorList()) {
          written.push_back(tensor);
        }
      }
    }
    return written;
  }

  // `laid_out`: an output that is resized gets the result's strides.
  void PrepareOut(const at::Tensor& out, const ResultMeta& result,
                  bool laid_out) {
    if (Generated()) {
      ResizeOut(out, result.sizes);
      TORCH_CHECK(out.scalar_type() == result.dtype,
                  "Expected out tensor to have dtype ",
                  c10::scalarTypeToTypeMeta(result.dtype), ", but got ",
                  out.dtype(), " instead");
      return;
    }
    CheckOut(info_, arguments(), out, result);
    if (ResizeOut(out, result.sizes) && laid_out) {
      // Strides with gaps need more memory than the elements.
      const auto extent = static_cast<int64_t>(
          at::detail::computeStorageNbytes(result.sizes, result.strides, 1));
      if (extent > out.numel()) out.resize_({extent});
      out.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes,
                                                       result.strides);
    }
  }

  // Returns whether there was anything to do.
  static bool ResizeOut(const at::Tensor& out, const c10::DimVector& sizes) {
    if (out.sizes() == c10::IntArrayRef(sizes)) return false;
    if (out.numel() != 0) {
      TORCH_WARN(
          "An output with one or more elements was resized since it had shape ",
          out.sizes(), ", which does not match the required output shape ",
          c10::IntArrayRef(sizes), ".");
    }
    out.resize_(sizes);
    return true;
  }

  void RunThroughFunctional(const std::vector<c10::IValue>& inputs,
                            const std::vector<at::Tensor>& written) {
    torch::jit::Stack functional(inputs.begin(), inputs.end());
    if (info_.functional->is_split) {
      info_.functional->handle.callBoxed(functional);
    } else {
      CaptureCall(*info_.functional, &functional);
    }
    std::vector<c10::IValue> returned = ReturnedArguments(info_, arguments());
    for (size_t i = 0; i < written.size(); ++i) {
      const at::Tensor result = functional[i].toTensor();
      PrepareOut(written[i], Describe(result), /*laid_out=*/true);
      written[i].copy_(result);
    }
    Replace(stack_, count_, std::move(returned));
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
  const size_t count = info.arguments.size();
  LogCall(info, Arguments(stack->data() + (stack->size() - count), count));
}

}  // namespace

void CaptureCall(const OperatorInfo& info, torch::jit::Stack* stack) {
  if (ABSL_PREDICT_FALSE(
          (debug::Flags() & (debug::kInterception | debug::kProfile)) != 0) &&
      !ShapeOnlyScope::Active()) {
    ObserveCall(info, stack);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(info.refusal.empty(), info.refusal);
  if (info.filling.has_value()) {
    CheckFits(stack->end()[-static_cast<ptrdiff_t>(info.arguments.size())],
              stack->end()[static_cast<ptrdiff_t>(*info.filling) -
                           static_cast<ptrdiff_t>(info.arguments.size())]);
  }
  const size_t count = info.arguments.size();
  if (info.is_view) {
    RunView(info, stack);
  } else if (info.reentry != c10::DispatchKey::Undefined &&
             LeavesDevice(info, Arguments(stack->data() + stack->size() - count,
                                          count))) {
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
