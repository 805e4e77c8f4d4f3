#include "client_lib/capture/outputs/cpu_trial.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/device/warning_watch.h"
#include "client_lib/capture/operators/boxed_call.h"
#include "client_lib/capture/operators/scalars.h"
#include "client_lib/shape/stride_inference.h"
#include "common/torch/one_thread.h"

namespace djinn::capture {
namespace {

class SilentWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

at::Generator TrialGenerator() {
  thread_local const at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>();
  return generator;
}

// The largest number of elements of operands and results together.
constexpr int64_t kMostElements = 4096;
constexpr int64_t kMostSharedBytes = 65536;
// The size that replaces larger ones: a size of 1 still broadcasts, and equal
// sizes stay equal.
constexpr int64_t kSmallSize = 2;
// The number of attempts, for a combination of dtypes, that may end in errors
// which do not concern the dtypes.
constexpr int kMostAttempts = 4;
constexpr size_t kMostEntries = 16384;

// Returns whether the operands' sizes can be changed without changing the call
// otherwise, because none of the call's numbers is a size.
bool IsOfAnySize(const OperatorInfo& info) {
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    const ArgumentKind kind = info.arguments[i].kind;
    if (kind != ArgumentKind::kInteger && kind != ArgumentKind::kIntegerList) {
      continue;
    }
    const std::string& name = info.handle.schema().arguments()[i].name();
    if (name != "dim" && name != "dtype" && name != "memory_format" &&
        name != "reduction") {
      return false;
    }
  }
  return true;
}

bool IsTried(const OperatorInfo& info) {
  // A copy_ is captured for copies that CopyAny() has checked already.
  if (!absl::StartsWith(info.name, "aten::") || info.name == "aten::copy_") {
    return false;
  }
  // Errors of assertions are due to values, and the program chose their texts.
  if (absl::StrContains(info.name, "assert")) return false;
  const bool takes_generator =
      absl::c_any_of(info.arguments, [](const ArgumentInfo& argument) {
        return argument.kind == ArgumentKind::kGenerator;
      });
  return takes_generator || !info.may_draw;
}

// Returns whether zero is no sound value of the argument's elements. LAPACK
// trusts the row numbers in "pivots", which begin at 1; and a kernel that
// selects nothing accepts every dtype.
bool NeedsOnes(const OperatorInfo& info, size_t argument) {
  const std::string& name = info.handle.schema().arguments()[argument].name();
  return absl::StrContains(name, "pivots") ||
         (name == "mask" && absl::StartsWith(info.name, "aten::masked_select"));
}

// Returns whether the argument's elements say where others are. A kernel may
// trust them, and zero is where every tensor has an element.
bool SaysWhere(const OperatorInfo& info, size_t argument) {
  const std::string& name = info.handle.schema().arguments()[argument].name();
  return absl::StrContains(name, "ind") || absl::StrContains(name, "target") ||
         name == "sorter" || name == "offset2bag";
}

// Returns the number of elements between the tensor's first and last one.
int64_t Extent(const at::Tensor& tensor) {
  return static_cast<int64_t>(
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), 1));
}

// Says which small stand-ins for the operands exist: with the operands' own
// sizes (kExact), or with smaller sizes if sizes do not change the call
// otherwise (kSmall).
enum class Size { kNone, kExact, kSmall };

// Says whether outputs have stand-ins of their own sizes, or without elements.
enum class Outputs { kSized, kEmpty };

Size SizeOfStandIns(const OperatorInfo& info, Arguments arguments,
                    int64_t result_elements,
                    Outputs outputs = Outputs::kSized) {
  int64_t elements = result_elements, small = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (outputs == Outputs::kEmpty && info.arguments[i].is_out) continue;
    ForEachTensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!IsRemote(tensor)) return;
      elements += Extent(tensor);
      int64_t count = 1;
      for (const int64_t size : tensor.sizes()) {
        count *= std::min(size, kSmallSize);
        if (count > kMostElements) break;
      }
      small += count;
    });
  }
  if (elements <= kMostElements) return Size::kExact;
  return small <= kMostElements && IsOfAnySize(info) ? Size::kSmall
                                                     : Size::kNone;
}

// Every element of the stand-ins.
enum class Fill { kZeros, kOnes };

// Creates the stand-ins for the operands of one call. A tensor that is passed
// twice has one stand-in, and exact stand-ins share memory as the operands do,
// unless that memory is large.
class StandIns {
 public:
  explicit StandIns(Size size) : size_(size) {}

  // Says what the stand-ins hold that are created from now on.
  void set_fill(Fill fill) { fill_ = fill; }

  c10::IValue Of(const ArgumentInfo& info, const c10::IValue& value) {
    if (info.kind == ArgumentKind::kGenerator) {
      return TrialGenerator();
    }
    if (value.isDevice()) return c10::Device(c10::kCPU);
    if (value.isTensor()) return Of(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList()) {
        list.push_back(Of(tensor));
      }
      return list;
    }
    if (info.kind != ArgumentKind::kTensorList || !value.isList()) return value;
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isTensor() ? std::optional(Of(element.toTensor()))
                                        : std::nullopt);
    }
    return list;
  }

 private:
  at::Tensor Of(const at::Tensor& tensor) {
    if (!IsRemote(tensor)) return tensor;
    at::Tensor& copy = tensors_[tensor.unsafeGetTensorImpl()];
    if (copy.defined()) return copy;
    copy = size_ == Size::kExact ? Exact(tensor) : Small(tensor);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return copy;
  }

  at::Tensor Filled(c10::IntArrayRef sizes, c10::ScalarType type) const {
    return fill_ == Fill::kZeros ? at::zeros(sizes, type)
                                 : at::empty(sizes, type).fill_(1);
  }

  at::Tensor Small(const at::Tensor& tensor) const {
    c10::DimVector sizes(tensor.sizes());
    for (int64_t& size : sizes) size = std::min(size, kSmallSize);
    return Filled(sizes, tensor.scalar_type());
  }

  at::Tensor Exact(const at::Tensor& tensor) {
    const c10::StorageImpl* const storage =
        tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    const auto bytes = static_cast<int64_t>(storage->nbytes());
    if (bytes > kMostSharedBytes || fill_ == Fill::kOnes) {
      return Filled({Extent(tensor)}, tensor.scalar_type())
          .as_strided(tensor.sizes(), tensor.strides());
    }
    at::Tensor& shared = storages_[storage];
    if (!shared.defined()) shared = at::zeros({bytes}, at::kByte);
    return at::empty({0}, tensor.scalar_type())
        .set_(shared.storage(), tensor.storage_offset(), tensor.sizes(),
              tensor.strides());
  }

  const Size size_;
  Fill fill_ = Fill::kZeros;
  absl::flat_hash_map<const c10::TensorImpl*, at::Tensor> tensors_;
  absl::flat_hash_map<const c10::StorageImpl*, at::Tensor> storages_;
};

torch::jit::Stack MakeStack(const OperatorInfo& info, Arguments arguments,
                            Size size, Outputs outputs = Outputs::kSized,
                            Fill fill = Fill::kZeros) {
  StandIns stand_ins(size);
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (outputs == Outputs::kEmpty && info.arguments[i].is_out &&
        arguments[i].isTensor()) {
      stack.emplace_back(at::empty({0}, arguments[i].toTensor().scalar_type()));
      continue;
    }
    stand_ins.set_fill(SaysWhere(info, i) ? Fill::kZeros : fill);
    stack.push_back(stand_ins.Of(info.arguments[i], arguments[i]));
    if (arguments[i].isTensor() && NeedsOnes(info, i)) {
      stack.back().toTensor().fill_(1);
    }
  }
  return stack;
}

// Returns the kind of number on which a kernel's acceptance may depend.
char KindOf(double number) {
  if (number == 0) return '0';
  if (number > 0) return number > 1 ? '+' : '1';
  return number < 0 ? '-' : 'n';
}

char KindOf(const c10::Scalar& scalar) {
  if (scalar.isBoolean()) return 'b';
  if (scalar.isFloatingPoint()) return 'f';
  return scalar.isComplex() ? 'c' : 'i';
}

// Returns whether only the CPU's kernel checks the sizes of a call that writes
// to an operand. The sizes of elementwise operators are known to fit.
bool ChecksOwnSizes(const OperatorInfo& info) {
  return info.writes && !info.is_out && !info.output_rules.elementwise;
}

// Returns a key of everything on which a kernel's acceptance depends: dtypes,
// ranks, emptiness, modes, dimensions, and whether numbers overflow a dtype.
std::string KeyOf(const OperatorInfo& info, Arguments arguments) {
  std::string key(reinterpret_cast<const char*>(&info.operator_id),
                  sizeof(info.operator_id));
  const bool sizes = ChecksOwnSizes(info);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    key.push_back('|');
    if (value.isIntList()) {
      // A factory's sizes are many, and checked elsewhere.
      if (info.handle.schema().arguments()[i].name() == "size") continue;
      for (const int64_t number : value.toIntVector()) {
        absl::StrAppend(&key, number, ",");
      }
    } else if (value.isTensor() || value.isList()) {
      ForEachTensor(value, [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return key.push_back('-');
        key.push_back(static_cast<char>(tensor.scalar_type()));
        key.push_back(static_cast<char>(tensor.dim()));
        key.push_back(tensor.numel() == 0 ? 'e' : 'f');
        if (!sizes) return;
        for (const int64_t size : tensor.sizes())
          absl::StrAppend(&key, size, ",");
      });
    } else if (value.isScalar() &&
               info.arguments[i].kind == ArgumentKind::kScalar) {
      key.push_back(KindOf(value.toScalar()));
      if (value.isDouble()) key.push_back(KindOf(value.toDouble()));
    } else if (value.isDouble()) {
      key.push_back(KindOf(value.toDouble()));
    } else if (value.isBool()) {
      key.push_back(value.toBool() ? '1' : '0');
    } else if (value.isString()) {
      key += value.toStringRef();
    } else if (value.isInt()) {
      absl::StrAppend(&key, value.toInt());
    }
  }
  key.push_back('|');
  AppendOverflows(info, arguments, &key);
  return key;
}

// Returns the number of attempts for the call's key. It is kMostAttempts if
// another attempt would show nothing new. Each thread has its own table, which
// is emptied when it is full.
int& AttemptsOf(const OperatorInfo& info, Arguments arguments) {
  thread_local absl::flat_hash_map<std::string, int> attempts;
  if (attempts.size() >= kMostEntries) attempts.clear();
  return attempts[KeyOf(info, arguments)];
}

bool HasAnyOf(absl::string_view text,
              std::initializer_list<absl::string_view> parts) {
  return absl::c_any_of(parts, [&](absl::string_view part) {
    return absl::StrContains(text, part);
  });
}

// Returns whether the error concerns dtypes or, with exact stand-ins, sizes and
// numbers, and not the values of the stand-ins.
bool IsAboutTheCall(const c10::Error& error, Size size) {
  if (dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr) {
    return true;
  }
  const absl::string_view text = error.what_without_backtrace();
  if (absl::StrContains(text, "type")) return true;
  return size == Size::kExact &&
         HasAnyOf(text, {"support", "implemented", "must match the size",
                         "must be smaller", "non-zero size", "should be one of",
                         "label_smoothing must"});
}

// Returns whether the error concerns the dtype of an output.
bool IsAboutOutputs(const c10::Error& error) {
  return HasAnyOf(error.what_without_backtrace(),
                  {"type", "support", "implemented", "tensor out"});
}

// Executes the call on CPU tensors; PyTorch's warnings reach the program.
void RunAloud(const OperatorInfo& info, torch::jit::Stack* stack) {
  // A trial on an autograd thread would otherwise create compute threads for
  // that thread, and OpenMP slows down a process that has more compute threads
  // than cores.
  const OneThread one_thread;
  const at::DisableRecordFunctionGuard unprofiled;
  const c10::impl::ExcludeDispatchKeyGuard uncast(
      c10::autocast_dispatch_keyset);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  // Keeps the arguments alive, because a kernel that returns several outputs
  // uses them after the stack has released them.
  const torch::jit::Stack held = *stack;
  info.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                              stack);
}

// Returns whether the CPU's checks of the draw's numbers need no values.
bool DrawsByNumbers(const OperatorInfo& info) {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "bernoulli",  "cauchy",  "exponential",     "geometric",
      "log_normal", "normal",  "randint",         "randint_like",
      "random",     "uniform", "rrelu_with_noise"};
  if (!info.may_draw) return false;
  absl::string_view base = info.handle.schema().name();
  return absl::ConsumePrefix(&base, "aten::") &&
         names->contains(absl::StripSuffix(base, "_"));
}

// Makes the call's draw without elements, which throws the CPU's error about
// the call's numbers.
void TryNumbers(const OperatorInfo& info, Arguments arguments) {
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (info.arguments[i].kind == ArgumentKind::kGenerator) {
      stack.emplace_back(TrialGenerator());
    } else if (value.isTensor() && IsRemote(value.toTensor())) {
      stack.emplace_back(at::empty({0}, value.toTensor().scalar_type()));
    } else if (info.arguments[i].kind == ArgumentKind::kIntegerList) {
      stack.emplace_back(std::vector<int64_t>{0});
    } else if (value.isDevice()) {
      stack.emplace_back(c10::Device(c10::kCPU));
    } else {
      stack.push_back(value);
    }
  }
  RunAloud(info, &stack);
}

// Returns whether the operator accepts other elements where it refuses zeros
// and ones: lengths must add up to a size, and points fit a range.
bool NeedsOtherValues(const OperatorInfo& info) {
  for (const c10::Argument& argument : info.handle.schema().arguments()) {
    for (const char* name :
         {"offset", "length", "repeats", "zero_point", "indices_ptr", "crow"}) {
      if (absl::StrContains(argument.name(), name)) return true;
    }
  }
  return absl::StrContains(info.name, "sparse") || info.may_not_converge;
}

// Returns whether a mask among the operands says where elements are. Its values
// decide how many there are.
bool HasMaskThatSaysWhere(const OperatorInfo& info, Arguments arguments) {
  bool found = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!SaysWhere(info, i)) continue;
    ForEachDefinedTensor(arguments[i], [&](const at::Tensor& tensor) {
      found |= tensor.scalar_type() == at::kBool ||
               tensor.scalar_type() == at::kByte;
    });
  }
  return found;
}

// Returns whether the call fails in the same way whatever its operands hold,
// after it failed for zeros.
bool FailsForOnesToo(const OperatorInfo& info, Arguments arguments, Size size,
                     const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  // Smaller stand-ins have the operands' ranks, but not their sizes.
  const bool about_rank = absl::StrContains(text, "Dimension out of range");
  if ((size != Size::kExact && !about_rank) || NeedsOtherValues(info) ||
      HasMaskThatSaysWhere(info, arguments) ||
      dynamic_cast<const c10::LinAlgError*>(&error) != nullptr) {
    return false;
  }
  try {
    torch::jit::Stack stack =
        MakeStack(info, arguments, size, Outputs::kSized, Fill::kOnes);
    RunOnCpu(info, &stack);
  } catch (const c10::Error& other) {
    return other.what_without_backtrace() == text;
  } catch (const std::exception&) {
  }
  return false;
}

// Tries a factory that draws from the default generator, by making a draw of
// the same kind.
void TryToDraw(const OperatorInfo& info, Arguments arguments,
               const InferredResults& inferred) {
  if (inferred.results.size() != 1 || DrawsByNumbers(info)) return;
  const c10::ScalarType type = inferred.results[0].dtype;
  if (absl::StartsWith(info.name, "aten::randperm")) {
    at::native::check_supported_max_int_with_precision(arguments[0].toInt(),
                                                       at::empty({0}, type));
    at::empty({1}, type).random_(0, 1, TrialGenerator());
  } else if (absl::StartsWith(info.name, "aten::randn")) {
    at::empty({1}, type).normal_(0, 1, TrialGenerator());
  } else if (absl::StartsWith(info.name, "aten::rand")) {
    at::empty({1}, type).uniform_(0, 1, TrialGenerator());
  }
}

// Returns whether the CPU kernel may write out of bounds: to an output that
// repeats elements, or whose matrices are not evenly spaced.
bool MayWriteOutOfBounds(const OperatorInfo& info, Arguments arguments) {
  const bool triangle = absl::StartsWith(info.name, "aten::tri");
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!info.arguments[i].is_out || !arguments[i].isTensor()) continue;
    const at::Tensor& out = arguments[i].toTensor();
    if (at::has_internal_overlap(out) == at::MemOverlap::Yes ||
        (triangle && out.dim() > 3)) {
      return true;
    }
  }
  return false;
}

}  // namespace

void RunOnCpu(const OperatorInfo& info, torch::jit::Stack* stack) {
  SilentWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  RunAloud(info, stack);
}

void TryOnCpu(const OperatorInfo& info, Arguments arguments,
              const InferredResults& inferred, bool aloud) {
  if (DrawsByNumbers(info)) TryNumbers(info, arguments);
  if (!IsTried(info)) {
    TryToDraw(info, arguments, inferred);
    return;
  }
  int& attempts = AttemptsOf(info, arguments);
  if (attempts >= kMostAttempts) return;
  int64_t result_elements = 0;
  for (const ResultMeta& result : inferred.results) {
    if (result.known && result.defined) result_elements += NumElements(result);
  }
  const Size size = SizeOfStandIns(info, arguments, result_elements);
  if (size == Size::kNone) return;
  try {
    torch::jit::Stack stack = MakeStack(info, arguments, size);
    const WarningWatch watch;
    (aloud ? RunAloud : RunOnCpu)(info, &stack);
    // The next call of the kind warns, too.
    if (!watch.warned()) attempts = kMostAttempts;
  } catch (const c10::Error& error) {
    if (IsAboutTheCall(error, size) ||
        FailsForOnesToo(info, arguments, size, error)) {
      throw;
    }
    ++attempts;
  } catch (const std::exception& error) {
    // This is the error for a number that overflows the dtype.
    if (absl::StrContains(error.what(), "without overflow")) throw;
    ++attempts;
  }
}

bool TryOutputsOnCpu(const OperatorInfo& info, Arguments arguments) {
  if (MayWriteOutOfBounds(info, arguments) || !IsTried(info)) return false;
  Outputs outputs = Outputs::kSized;
  Size size = SizeOfStandIns(info, arguments, /*result_elements=*/0);
  if (size != Size::kExact) {
    // Lists of outputs cannot be empty.
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (info.arguments[i].is_out && !arguments[i].isTensor()) return false;
    }
    outputs = Outputs::kEmpty;
    size = SizeOfStandIns(info, arguments, /*result_elements=*/0, outputs);
  }
  if (size == Size::kNone) return false;
  try {
    torch::jit::Stack stack = MakeStack(info, arguments, size, outputs);
    RunOnCpu(info, &stack);
    return true;
  } catch (const c10::Error& error) {
    if (IsAboutOutputs(error) ||
        (outputs == Outputs::kSized && IsAboutTheCall(error, size))) {
      throw;
    }
  } catch (const std::exception&) {
  }
  return false;
}

void ThrowAsCpu(const OperatorInfo& info, Arguments arguments) {
  // Stand-ins of other sizes could cause another error.
  if (MayWriteOutOfBounds(info, arguments) || !IsTried(info) ||
      SizeOfStandIns(info, arguments,
                     /*result_elements=*/0) != Size::kExact) {
    return;
  }
  torch::jit::Stack stack = MakeStack(info, arguments, Size::kExact);
  RunOnCpu(info, &stack);
}

}  // namespace djinn::capture
