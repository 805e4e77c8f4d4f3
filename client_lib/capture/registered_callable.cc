#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "client_lib/capture/host_effects.h"
#include "client_lib/capture/lane.h"
#include "client_lib/capture/process_session.h"
#include "client_lib/capture/remote_generator.h"
#include "client_lib/capture/remote_tensor.h"
#include "client_lib/capture/throw_status.h"
#include "common/error.h"
#include "common/mutex.h"
#include "djinn/compile.h"

namespace djinn {
namespace {

using capture::CurrentLane;
using capture::IsRemote;
using capture::StorageOf;
using Tensors = std::vector<at::Tensor>;

// Captures of one key that came to nothing before it is given up.
constexpr int kMaxFailures = 4;

template <typename T>
void Put(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutGeometry(const at::Tensor& tensor, std::string* out) {
  Put(tensor.scalar_type(), out);
  Put(tensor.dim(), out);
  for (const int64_t size : tensor.sizes()) Put(size, out);
  for (const int64_t stride : tensor.strides()) Put(stride, out);
  Put(tensor.storage_offset(), out);
  const uint8_t flags = static_cast<uint8_t>(
      (tensor.requires_grad() ? 1 : 0) | (tensor.is_conj() ? 2 : 0) |
      (tensor.is_neg() ? 4 : 0) | (tensor.is_inference() ? 8 : 0));
  Put(flags, out);
}

// What a thread's calls depend on besides their arguments.
void PutThreadState(std::string* out) {
  Put(at::GradMode::is_enabled(), out);
  Put(c10::InferenceMode::is_enabled(), out);
  for (const c10::DeviceType type :
       {c10::DeviceType::PrivateUse1, c10::DeviceType::CPU}) {
    Put(at::autocast::is_autocast_enabled(type), out);
    Put(at::autocast::get_autocast_dtype(type), out);
  }
  Put(c10::typeMetaToScalarType(c10::get_default_dtype()), out);
  Put(at::globalContext().deterministicAlgorithms(), out);
  Put(capture::CurrentDeviceIndex(), out);
}

// All that decides which recording a call may be carried out by, but for the
// identity of storages. Empty when an argument cannot be one.
std::string GuardOf(const std::string& key, const Tensors& arguments,
                    const Tensors& parameters) {
  std::string guard;
  guard.reserve(key.size() + 64 * (arguments.size() + parameters.size() + 1));
  Put(key.size(), &guard);
  guard += key;
  PutThreadState(&guard);
  Put(arguments.size(), &guard);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const at::Tensor& tensor = arguments[i];
    if (!IsRemote(tensor) || StorageOf(tensor) == nullptr) return "";
    Put(tensor.device().index(), &guard);
    PutGeometry(tensor, &guard);
    // Which arguments share memory, and which are the same tensor.
    size_t same_memory = 0;
    while (StorageOf(arguments[same_memory]) != StorageOf(tensor)) {
      ++same_memory;
    }
    size_t same_tensor = 0;
    while (!arguments[same_tensor].is_same(tensor)) ++same_tensor;
    Put(same_memory, &guard);
    Put(same_tensor, &guard);
  }
  for (const at::Tensor& tensor : parameters) {
    Put(tensor.unsafeGetTensorImpl(), &guard);
    if (!tensor.defined()) continue;
    if (tensor.has_storage()) Put(tensor.storage().data_ptr().get(), &guard);
    PutGeometry(tensor, &guard);
    Put(tensor.is_leaf() && tensor.grad().defined(), &guard);
  }
  return guard;
}

// A tensor that a call returns or leaves as a gradient.
struct TensorPlan {
  enum class Kind { kUndefined, kMade, kArgument };
  Kind kind = Kind::kUndefined;
  // Of the recording's outputs, or of the arguments.
  uint32_t index = 0;
  c10::ScalarType data_type = c10::ScalarType::Float;
  c10::DimVector sizes;
  c10::DimVector strides;
  int64_t offset = 0;
};

// A recording and what is around it on this side of the session.
struct Registration {
  std::shared_ptr<VirtualDevice> device;
  std::shared_ptr<const Recording> recording;
  // Which argument each given storage comes from.
  std::vector<uint32_t> given_arguments;
  // The storages themselves; where not null they must be the same.
  std::vector<StoragePtr> given;
  absl::flat_hash_set<const RemoteStorage*> kept;
  std::vector<TensorPlan> outputs;
  std::vector<std::pair<uint32_t, TensorPlan>> gradients;  // by parameter
  // Parameters whose gradient's storage is among `kept`.
  std::vector<std::pair<uint32_t, const RemoteStorage*>> kept_gradients;
  std::vector<uint32_t> written_arguments;
  std::vector<uint32_t> written_parameters;
  bool draws = false;
  // Two calls in succession gave it: until then it is not carried out.
  bool confirmed = false;
};

bool SameTensors(const TensorPlan& a, const TensorPlan& b) {
  return a.kind == b.kind && a.index == b.index && a.data_type == b.data_type &&
         a.sizes == b.sizes && a.strides == b.strides && a.offset == b.offset;
}

bool SameParts(const RecordingPart& a, const RecordingPart& b) {
  const auto same_slot = [](const RecordingPart::Slot& x,
                            const RecordingPart::Slot& y) {
    return x.source == y.source && x.index == y.index && x.dies == y.dies;
  };
  const auto same_value = [](const ScalarValue& x, const ScalarValue& y) {
    return x.size == y.size && std::memcmp(x.bytes, y.bytes, x.size) == 0;
  };
  const auto same_bits = [](double x, double y) {
    return std::memcmp(&x, &y, sizeof(x)) == 0;
  };
  return a.key == b.key &&
         std::equal(a.slots.begin(), a.slots.end(), b.slots.begin(),
                    b.slots.end(), same_slot) &&
         std::equal(a.floats.begin(), a.floats.end(), b.floats.begin(),
                    b.floats.end(), same_bits) &&
         std::equal(a.scalar_tensors.begin(), a.scalar_tensors.end(),
                    b.scalar_tensors.begin(), b.scalar_tensors.end(),
                    same_value);
}

// Whether two calls did the same, on other given storages.
bool SameCalls(const Registration& a, const Registration& b) {
  const auto same_storage = [](const StoragePtr& x, const StoragePtr& y) {
    return x.get() == y.get();
  };
  const auto same_gradient = [](const auto& x, const auto& y) {
    return x.first == y.first && SameTensors(x.second, y.second);
  };
  return a.device == b.device && a.given_arguments == b.given_arguments &&
         std::equal(a.recording->kept.begin(), a.recording->kept.end(),
                    b.recording->kept.begin(), b.recording->kept.end(),
                    same_storage) &&
         std::equal(a.recording->parts.begin(), a.recording->parts.end(),
                    b.recording->parts.begin(), b.recording->parts.end(),
                    SameParts) &&
         std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(),
                    b.outputs.end(), SameTensors) &&
         std::equal(a.gradients.begin(), a.gradients.end(), b.gradients.begin(),
                    b.gradients.end(), same_gradient);
}

at::Tensor MakeTensor(const TensorPlan& plan, const Tensors& arguments,
                      const std::vector<c10::Storage>& made) {
  switch (plan.kind) {
    case TensorPlan::Kind::kUndefined:
      return at::Tensor();
    case TensorPlan::Kind::kArgument:
      return arguments[plan.index];
    case TensorPlan::Kind::kMade:
      break;
  }
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(made[plan.index]),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(plan.data_type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(plan.sizes, plan.strides,
                                                      plan.offset);
  return tensor;
}

// As an operator that writes in place does, for what autograd has saved.
void BumpVersion(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

// A call being captured by this thread.
struct Capturing {
  std::string guard;
  uint32_t lane = 0;
  std::shared_ptr<VirtualDevice> device;
  Tensors arguments;
  Tensors parameters;
  Tensors gradients_before;
  std::unique_ptr<capture::HostEffects> effects;
  capture::OperatorObserver* outer_observer = nullptr;
};

thread_local Capturing* capturing = nullptr;

}  // namespace

class RegisteredCallable::Impl {
 public:
  std::optional<Result> Replay(const std::string& key, const Tensors& arguments,
                               const Tensors& parameters) {
    if (capturing != nullptr) return std::nullopt;
    const std::string guard = GuardOf(key, arguments, parameters);
    if (guard.empty()) return std::nullopt;
    std::shared_ptr<const Registration> registration;
    {
      MutexLock lock(&mu_);
      const auto found = entries_.find(guard);
      if (found == entries_.end()) return std::nullopt;
      found->second.last_use = ++uses_;
      registration = found->second.registration;
    }
    if (registration == nullptr || !registration->confirmed) {
      return std::nullopt;
    }
    std::vector<RemoteStorage*> given;
    if (!Fits(*registration, arguments, parameters, &given)) {
      return std::nullopt;
    }
    absl::StatusOr<std::vector<StoragePtr>> made = registration->device->Replay(
        CurrentLane(), registration->recording, given);
    if (ErrorReason(made.status()) == "STALE_RECORDING") {
      MutexLock lock(&mu_);
      entries_.erase(guard);
      return std::nullopt;
    }
    capture::ThrowIfError(made.status());
    std::vector<c10::Storage> storages;
    for (size_t i = 0; i < made->size(); ++i) {
      storages.push_back(
          capture::WrapStorage(std::move((*made)[i]),
                               registration->recording->outputs[i].size_bytes));
    }
    Result result{registration->recording->number, {}};
    result.outputs.reserve(registration->outputs.size());
    for (const TensorPlan& plan : registration->outputs) {
      result.outputs.push_back(MakeTensor(plan, arguments, storages));
    }
    for (const auto& [parameter, plan] : registration->gradients) {
      parameters[parameter].mutable_grad() =
          MakeTensor(plan, arguments, storages);
    }
    for (const uint32_t i : registration->written_arguments) {
      BumpVersion(arguments[i]);
    }
    for (const uint32_t i : registration->written_parameters) {
      BumpVersion(parameters[i]);
    }
    for (const auto& [parameter, storage] : registration->kept_gradients) {
      BumpVersion(parameters[parameter].grad());
    }
    MutexLock lock(&mu_);
    ++statistics_.replays;
    return result;
  }

  bool Begin(const std::string& key, const Tensors& arguments,
             const Tensors& parameters) {
    if (capturing != nullptr) return false;
    std::string guard = GuardOf(key, arguments, parameters);
    if (guard.empty()) {
      return Refuse("an argument is a tensor of this process");
    }
    {
      MutexLock lock(&mu_);
      const auto found = entries_.find(guard);
      if (found != entries_.end() && found->second.failures >= kMaxFailures) {
        return false;
      }
      ++statistics_.captures;
    }
    const at::Tensor* first = nullptr;
    for (const Tensors* tensors : {&arguments, &parameters}) {
      for (const at::Tensor& tensor : *tensors) {
        if (first == nullptr && IsRemote(tensor)) first = &tensor;
      }
    }
    if (first == nullptr) {
      return Refuse("no argument or parameter says on which device it runs");
    }
    auto begun = std::make_unique<Capturing>();
    begun->guard = std::move(guard);
    begun->lane = CurrentLane();
    begun->device = capture::OwnStorageOf(*first)->device();
    begun->arguments = arguments;
    begun->parameters = parameters;
    for (const at::Tensor& parameter : parameters) {
      begun->gradients_before.push_back(
          parameter.defined() && parameter.is_leaf() ? parameter.grad()
                                                     : at::Tensor());
    }
    capture::ThrowIfError(begun->device->StartRecording(begun->lane));
    begun->effects =
        std::make_unique<capture::HostEffects>(begun->device->index());
    begun->outer_observer = capture::ExchangeObserver(begun->effects.get());
    capturing = begun.release();
    return true;
  }

  uint64_t End(const Tensors& outputs) {
    TORCH_CHECK(capturing != nullptr, "nothing is being captured");
    std::unique_ptr<Capturing> ended = Stop();
    auto registration = std::make_shared<Registration>();
    const absl::Status status = Register(*ended, outputs, registration.get());
    if (!status.ok()) {
      Fail(ended->guard, std::string(status.message()));
      return 0;
    }
    const uint64_t number = registration->recording->number;
    MutexLock lock(&mu_);
    if (entries_.size() >= kMaxRecordings && !entries_.contains(ended->guard)) {
      ForgetOldest();
    }
    Entry& entry = entries_[ended->guard];
    entry.last_use = ++uses_;
    const Registration* const before = entry.registration.get();
    if (before != nullptr && SameCalls(*before, *registration)) {
      registration->confirmed = true;
      for (size_t i = 0; i < registration->given.size(); ++i) {
        // What never changed may be used under another name, too.
        if (registration->given[i].get() != before->given[i].get()) {
          registration->given[i] = StoragePtr();
        }
      }
      entry.failures = 0;
      statistics_.refusal.clear();
    } else if (before != nullptr && ++entry.failures >= kMaxFailures) {
      statistics_.refusal = "calls that should be alike are not";
    }
    entry.registration = std::move(registration);
    return number;
  }

  void Abandon() {
    if (capturing == nullptr) return;
    const std::unique_ptr<Capturing> ended = Stop();
    (void)ended->device->FinishRecording(ended->lane, {}, {});
  }

  CompileStatistics statistics() const {
    MutexLock lock(&mu_);
    return statistics_;
  }

 private:
  struct Entry {
    std::shared_ptr<const Registration> registration;
    int failures = 0;
    uint64_t last_use = 0;
  };

  static std::unique_ptr<Capturing> Stop() {
    std::unique_ptr<Capturing> ended(std::exchange(capturing, nullptr));
    capture::ExchangeObserver(ended->outer_observer);
    return ended;
  }

  bool Refuse(std::string why) {
    MutexLock lock(&mu_);
    statistics_.refusal = std::move(why);
    return false;
  }

  void Fail(const std::string& guard, std::string why) {
    MutexLock lock(&mu_);
    statistics_.refusal = std::move(why);
    if (entries_.size() >= kMaxRecordings && !entries_.contains(guard)) {
      ForgetOldest();
    }
    Entry& entry = entries_[guard];
    entry.registration = nullptr;
    entry.last_use = ++uses_;
    ++entry.failures;
  }

  void ForgetOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    entries_.erase(std::min_element(
        entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return a.second.last_use < b.second.last_use;
        }));
  }

  // Whether the storages are such as the recording can be carried out on.
  static bool Fits(const Registration& registration, const Tensors& arguments,
                   const Tensors& parameters,
                   std::vector<RemoteStorage*>* given) {
    for (size_t i = 0; i < registration.given_arguments.size(); ++i) {
      RemoteStorage* const storage =
          StorageOf(arguments[registration.given_arguments[i]]);
      const RemoteStorage* const same = registration.given[i].get();
      if (same != nullptr && same != storage) return false;
      if (registration.kept.contains(storage)) return false;
      given->push_back(storage);
    }
    for (const auto& [parameter, storage] : registration.kept_gradients) {
      if (StorageOf(parameters[parameter].grad()) != storage) return false;
    }
    if (registration.draws) {
      // Sends the seed or state that it was given last.
      const auto& generator = static_cast<const capture::RemoteGenerator&>(
          *capture::DefaultRemoteGenerator(
               static_cast<c10::DeviceIndex>(registration.device->index()))
               .unsafeGetGeneratorImpl());
      const StoragePtr storage =
          generator.StorageOn(registration.device, CurrentLane());
      if (!registration.kept.contains(storage.get())) return false;
    }
    return true;
  }

  static absl::Status Refusal(absl::string_view why) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_REGISTRABLE",
                     why);
  }

  // Ends the recording in every case.
  static absl::Status Register(const Capturing& ended, const Tensors& outputs,
                               Registration* registration) {
    std::vector<RemoteStorage*> given;
    for (uint32_t i = 0; i < ended.arguments.size(); ++i) {
      RemoteStorage* const storage = StorageOf(ended.arguments[i]);
      if (std::find(given.begin(), given.end(), storage) != given.end()) {
        continue;
      }
      given.push_back(storage);
      registration->given_arguments.push_back(i);
      registration->given.emplace_back(storage);
    }
    std::vector<RemoteStorage*> made;
    absl::Status status;
    for (const at::Tensor& tensor : outputs) {
      TensorPlan& plan = registration->outputs.emplace_back();
      if (tensor.defined() && tensor.requires_grad() &&
          ArgumentOf(tensor, ended.arguments) < 0) {
        status.Update(
            Refusal("it returns a tensor that autograd may still need (return "
                    "it detached, or call under no_grad)"));
      }
      status.Update(Plan(tensor, ended.arguments, &made, &plan));
    }
    for (uint32_t i = 0; i < ended.parameters.size(); ++i) {
      const at::Tensor& parameter = ended.parameters[i];
      if (!parameter.defined() || !parameter.is_leaf()) continue;
      const at::Tensor& gradient = parameter.grad();
      if (gradient.is_same(ended.gradients_before[i])) continue;
      TensorPlan& plan =
          registration->gradients.emplace_back(i, TensorPlan()).second;
      if (gradient.defined() && gradient.requires_grad()) {
        status.Update(
            Refusal("a gradient that it leaves has a gradient of its own"));
      }
      status.Update(Plan(gradient, {}, &made, &plan));
    }
    absl::StatusOr<std::shared_ptr<const Recording>> recording =
        ended.device->FinishRecording(ended.lane, given, made);
    if (!ended.effects->refusal().empty()) {
      return Refusal(ended.effects->refusal());
    }
    if (!status.ok()) return status;
    if (!recording.ok()) return recording.status();
    registration->device = ended.device;
    registration->recording = *std::move(recording);
    return Complete(ended, registration);
  }

  static int ArgumentOf(const at::Tensor& tensor, const Tensors& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].is_same(tensor)) return static_cast<int>(i);
    }
    return -1;
  }

  static absl::Status Plan(const at::Tensor& tensor, const Tensors& arguments,
                           std::vector<RemoteStorage*>* made,
                           TensorPlan* plan) {
    if (!tensor.defined()) return absl::OkStatus();
    if (const int argument = ArgumentOf(tensor, arguments); argument >= 0) {
      plan->kind = TensorPlan::Kind::kArgument;
      plan->index = static_cast<uint32_t>(argument);
      return absl::OkStatus();
    }
    if (!IsRemote(tensor) || StorageOf(tensor) == nullptr) {
      return Refusal("it returns a tensor of this process");
    }
    if (tensor.is_conj() || tensor.is_neg()) {
      return Refusal(
          "it returns a tensor that is lazily conjugated or negated");
    }
    plan->kind = TensorPlan::Kind::kMade;
    RemoteStorage* const storage = StorageOf(tensor);
    const auto found = std::find(made->begin(), made->end(), storage);
    plan->index = static_cast<uint32_t>(found - made->begin());
    if (found == made->end()) made->push_back(storage);
    plan->data_type = tensor.scalar_type();
    plan->sizes = c10::DimVector(tensor.sizes());
    plan->strides = c10::DimVector(tensor.strides());
    plan->offset = tensor.storage_offset();
    return absl::OkStatus();
  }

  // What can only be said once the recording is there.
  static absl::Status Complete(const Capturing& ended,
                               Registration* registration) {
    const Recording& recording = *registration->recording;
    absl::flat_hash_set<const RemoteStorage*> written;
    absl::flat_hash_set<const RemoteStorage*> generators;
    for (const RecordingPart& part : recording.parts) {
      for (size_t i = 0; i < part.slots.size(); ++i) {
        const RecordingPart::Slot& slot = part.slots[i];
        if (slot.source == RecordingPart::Slot::Source::kMade) continue;
        const RemoteStorage* const storage =
            slot.source == RecordingPart::Slot::Source::kGiven
                ? registration->given[slot.index].get()
                : recording.kept[slot.index].get();
        if (slot.writes > 0) written.insert(storage);
        if (part.structure.slots[i].kind == srg::Slot::Kind::kGenerator) {
          generators.insert(storage);
        }
      }
    }
    for (const StoragePtr& storage : recording.kept) {
      registration->kept.insert(storage.get());
    }
    for (uint32_t i = 0; i < ended.arguments.size(); ++i) {
      if (written.contains(StorageOf(ended.arguments[i]))) {
        registration->written_arguments.push_back(i);
      }
    }
    for (uint32_t i = 0; i < ended.parameters.size(); ++i) {
      const at::Tensor& parameter = ended.parameters[i];
      if (!IsRemote(parameter)) continue;
      if (written.contains(StorageOf(parameter))) {
        registration->written_parameters.push_back(i);
      }
      const at::Tensor& before = ended.gradients_before[i];
      if (IsRemote(before) && registration->kept.contains(StorageOf(before))) {
        if (!before.is_same(parameter.grad())) {
          return Refusal("it uses a gradient and then replaces it");
        }
        registration->kept_gradients.emplace_back(i, StorageOf(before));
      }
    }
    if (generators.empty()) return absl::OkStatus();
    registration->draws = true;
    const auto& generator = static_cast<const capture::RemoteGenerator&>(
        *capture::DefaultRemoteGenerator(
             static_cast<c10::DeviceIndex>(ended.device->index()))
             .unsafeGetGeneratorImpl());
    const StoragePtr own = generator.StorageOn(ended.device, ended.lane);
    if (generators.size() > 1 || !generators.contains(own.get())) {
      return Refusal("it draws from a generator of its own");
    }
    return absl::OkStatus();
  }

  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  CompileStatistics statistics_ ABSL_GUARDED_BY(mu_);
};

RegisteredCallable::RegisteredCallable() : impl_(std::make_unique<Impl>()) {}

RegisteredCallable::~RegisteredCallable() = default;

std::optional<RegisteredCallable::Result> RegisteredCallable::Replay(
    const std::string& key, const Tensors& arguments,
    const Tensors& parameters) {
  return impl_->Replay(key, arguments, parameters);
}

bool RegisteredCallable::Begin(const std::string& key, const Tensors& arguments,
                               const Tensors& parameters) {
  return impl_->Begin(key, arguments, parameters);
}

uint64_t RegisteredCallable::End(const Tensors& outputs) {
  return impl_->End(outputs);
}

void RegisteredCallable::Abandon() { impl_->Abandon(); }

CompileStatistics RegisteredCallable::statistics() const {
  return impl_->statistics();
}

CompiledFunction::CompiledFunction(Function function, CompileOptions options)
    : function_(std::move(function)), options_(std::move(options)) {}

Tensors CompiledFunction::operator()(const Tensors& arguments) {
  const std::string key = options_.key ? options_.key() : "";
  if (std::optional<RegisteredCallable::Result> result =
          callable_.Replay(key, arguments, options_.parameters)) {
    return std::move(result->outputs);
  }
  if (!callable_.Begin(key, arguments, options_.parameters)) {
    return function_(arguments);
  }
  Tensors outputs;
  try {
    outputs = function_(arguments);
  } catch (...) {
    callable_.Abandon();
    throw;
  }
  callable_.End(outputs);
  return outputs;
}

}  // namespace djinn
