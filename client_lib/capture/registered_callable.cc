#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "client_lib/capture/call_guard.h"
#include "client_lib/capture/callable_models.h"
#include "client_lib/capture/callable_registration.h"
#include "client_lib/capture/lane.h"
#include "client_lib/capture/remote_tensor.h"
#include "client_lib/capture/throw_status.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/profile/profile_recorder.h"
#include "common/error.h"
#include "common/mutex.h"
#include "djinn/compile.h"

namespace djinn {
namespace {

using capture::CallableRegistration;
using capture::CapturedCall;
using Tensors = std::vector<at::Tensor>;

// Captures of one key that came to nothing before it is given up.
constexpr int kMaxFailures = 4;
// Captures of calls that were not met before, more than there are calls that
// were carried out again, before only every so many of them are captured: the
// lengths of sequences, say, may return or not.
constexpr int kMaxFruitless = 64;
constexpr uint64_t kRarely = 256;

// This thread's.
thread_local CapturedCall* capturing = nullptr;

// What the recording keeps using, but for generators, which are no callable's
// own. Storages that are gone are left out.
std::vector<StoragePtr> KeptOf(const CallableRegistration& registration) {
  std::vector<StoragePtr> kept;
  for (size_t i = 0; i < registration.kept.size(); ++i) {
    const StoragePtr& storage = registration.recording->kept[i];
    if (registration.kept[i].source !=
            CallableRegistration::Kept::Source::kGenerator &&
        !storage->dead()) {
      kept.push_back(storage);
    }
  }
  return kept;
}

// Of parameters, which autocast keeps until its outermost block ends: one made
// before would be a tensor that nobody named, and one made meanwhile a tensor
// that stays. Without them a parameter is cast once more. Not where there are
// gradients: through two casts they add up in another order than through one.
void ForgetCasts() {
  if (!at::GradMode::is_enabled() &&
      at::autocast::is_autocast_cache_enabled() &&
      at::autocast::is_autocast_enabled(c10::DeviceType::PrivateUse1)) {
    at::autocast::clear_cache();
  }
}

// The memory that it takes, roughly.
size_t BytesOf(const Recording& recording) {
  size_t bytes = sizeof(recording);
  for (const RecordingPart& part : recording.parts) {
    bytes += part.key.size() +
             part.slots.size() * (sizeof(part.slots[0]) + sizeof(srg::Slot));
    for (const srg::Node& node : part.structure.nodes) {
      bytes += sizeof(node) + node.arguments.size() * sizeof(srg::Argument) +
               node.results.size() * sizeof(srg::Result);
    }
  }
  return bytes;
}

}  // namespace

class RegisteredCallable::Impl {
 public:
  explicit Impl(std::string name) : models_(std::move(name)) {}

  std::optional<Result> Replay(const std::string& key, const Tensors& arguments,
                               const Tensors& parameters) {
    NoteWork();
    // Every operator is to be seen then.
    if (debug::Has(debug::kEager) || !capture::WhoSeesEveryCall().empty()) {
      return std::nullopt;
    }
    if (capturing != nullptr) return std::nullopt;
    std::string guard = capture::CallGuard(key, arguments, parameters);
    if (guard.empty()) return std::nullopt;
    guard += capture::GradientGuard(arguments, parameters);
    std::shared_ptr<const CallableRegistration> registration;
    bool counted = false;
    {
      MutexLock lock(&mu_);
      const auto found = entries_.find(guard);
      if (found == entries_.end()) return std::nullopt;
      found->second.last_use = ++uses_;
      registration = found->second.registration;
      counted = found->second.budget == Budget::kCounted;
    }
    if (registration == nullptr || !registration->confirmed) {
      return std::nullopt;
    }
    if (!counted && !Count(guard, registration)) return std::nullopt;
    absl::StatusOr<Tensors> outputs =
        capture::CarryOut(*registration, arguments, parameters);
    if (ErrorReason(outputs.status()) == "STALE_RECORDING") return std::nullopt;
    capture::ThrowIfError(outputs.status());
    MutexLock lock(&mu_);
    if (fruitless_ > 0) --fruitless_;
    ++statistics_.replays;
    return Result{registration->recording->number, *std::move(outputs)};
  }

  bool Begin(const std::string& key, const Tensors& arguments,
             const Tensors& parameters, uint64_t unasked) {
    if (debug::Has(debug::kEager)) return Refuse("DJINN_EAGER is set");
    if (std::string who = capture::WhoSeesEveryCall(); !who.empty()) {
      return Refuse(std::move(who));
    }
    if (capturing != nullptr) return false;
    const std::string call_guard =
        capture::CallGuard(key, arguments, parameters);
    if (call_guard.empty()) {
      if (HasHooksOfNodes(arguments) || HasHooksOfNodes(parameters)) {
        return Refuse("a node of autograd's has hooks");
      }
      return Refuse(
          "an argument is a tensor of this process, or a wrapped or named one");
    }
    if (NeedsGraph(arguments)) {
      return Refuse("autograd may need the graph of an argument");
    }
    if (LeadsToGraph(parameters)) {
      return Refuse("it refers to a tensor that has a graph behind it");
    }
    std::string guard =
        call_guard + capture::GradientGuard(arguments, parameters);
    std::shared_ptr<const CallableRegistration> before;
    bool failed_before = false;
    {
      MutexLock lock(&mu_);
      const auto found = entries_.find(guard);
      if (found != entries_.end() && found->second.failures >= kMaxFailures) {
        return false;
      }
      // Another capture would say nothing new.
      if (found != entries_.end() &&
          found->second.budget == Budget::kHeldBack) {
        statistics_.refusal = models_.refusal();
        return false;
      }
      const bool returns = found != entries_.end() &&
                           found->second.registration != nullptr &&
                           !found->second.registration->confirmed;
      // A function whose calls are never alike is not captured every time.
      if (!returns && !MayTry(unasked)) {
        statistics_.refusal = "no call was like an earlier one";
        return false;
      }
      if (found != entries_.end()) {
        before = found->second.registration;
        failed_before = found->second.failures > 0;
      }
      ++statistics_.captures;
    }
    const at::Tensor* first = nullptr;
    for (const Tensors* tensors : {&arguments, &parameters}) {
      for (const at::Tensor& tensor : *tensors) {
        if (first == nullptr && capture::IsRemote(tensor)) first = &tensor;
      }
    }
    if (first == nullptr) {
      return Refuse("no argument or parameter says on which device it runs");
    }
    auto begun = std::make_unique<CapturedCall>();
    begun->key = key;
    begun->call_guard = call_guard;
    begun->guard = std::move(guard);
    begun->lane = capture::CurrentLane();
    begun->device = capture::OwnStorageOf(*first)->device();
    begun->arguments = arguments;
    begun->parameters = parameters;
    for (const at::Tensor& parameter : parameters) {
      begun->gradients_before.push_back(
          parameter.defined() && parameter.is_leaf() ? parameter.grad()
                                                     : at::Tensor());
    }
    if (before != nullptr) {
      begun->given_gradients = capture::GradientsToGive(*before, parameters);
    } else if (failed_before) {
      // It may have used gradients and dropped them, which kept ones cannot be.
      for (uint32_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor& gradient = begun->gradients_before[i];
        if (capture::IsRemote(gradient) && gradient.has_storage() &&
            capture::OwnStorageOf(gradient)->device() == begun->device) {
          begun->given_gradients.push_back(i);
        }
      }
    }
    begun->outside_before =
        capture::OutsideOperators(arguments, begun->gradients_before);
    ForgetCasts();
    capture::ThrowIfError(begun->device->StartRecording(begun->lane));
    begun->effects =
        std::make_unique<capture::HostEffects>(begun->device, begun->lane);
    begun->outer_observer = capture::ExchangeObserver(begun->effects.get());
    begun->next_node = at::sequence_number::peek();
    capturing = begun.release();
    return true;
  }

  uint64_t End(const Tensors& outputs) {
    TORCH_CHECK(capturing != nullptr, "nothing is being captured");
    const std::unique_ptr<CapturedCall> ended = Stop();
    // Whatever is thrown, the lane goes on without being recorded.
    const absl::Cleanup finish = [&ended] {
      ended->device->DropRecording(ended->lane);
    };
    ForgetCasts();
    // What an operator did says more.
    if (ended->effects->refusal().empty()) {
      if (std::string what =
              ended->outside_before.WhatChanged(ended->arguments);
          !what.empty()) {
        Fail(ended->guard, std::move(what));
        return 0;
      }
      if (ended->outside_before.LocalGeneratorMoved()) {
        // The next call may be one during which no other thread draws.
        Refuse(
            "it seeds or draws from PyTorch's generator of this process, or "
            "another thread does meanwhile");
        return 0;
      }
    }
    if (capture::CallGuard(ended->key, ended->arguments, ended->parameters) !=
        ended->call_guard) {
      Fail(ended->guard, "it changes a mode, or the metadata of a tensor");
      return 0;
    }
    absl::StatusOr<std::shared_ptr<CallableRegistration>> made =
        capture::Register(*ended, outputs);
    if (!made.ok()) {
      Fail(ended->guard, std::string(made.status().message()));
      return 0;
    }
    const std::shared_ptr<CallableRegistration> registration = *std::move(made);
    const uint64_t number = registration->recording->number;
    Keep(ended->guard, registration);
    models_.Retain(DevicesInUse());
    return number;
  }

  void Abandon(const std::string& refusal) {
    if (capturing == nullptr) return;
    const std::unique_ptr<CapturedCall> ended = Stop();
    ended->device->DropRecording(ended->lane);
    if (!refusal.empty()) Fail(ended->guard, refusal);
  }

  void Forget() {
    absl::flat_hash_map<std::string, Entry> forgotten;  // without the lock
    {
      MutexLock lock(&mu_);
      forgotten.swap(entries_);
      bytes_ = 0;
      fruitless_ = 0;
      left_alone_ = 0;
      statistics_.refusal.clear();
    }
    models_.Retain({});
  }

  std::vector<uint64_t> Recordings() const {
    std::vector<uint64_t> recordings;
    MutexLock lock(&mu_);
    for (const auto& [guard, entry] : entries_) {
      if (entry.registration == nullptr) continue;
      recordings.push_back(entry.registration->recording->number);
    }
    return recordings;
  }

  CompileStatistics statistics() const {
    MutexLock lock(&mu_);
    return statistics_;
  }

 private:
  // Whether the worker counts what the entry's calls keep using.
  enum class Budget {
    kUnknown,
    kCounted,
    kHeldBack,  // it has no room for it, or another thread asks
  };
  struct Entry {
    std::shared_ptr<const CallableRegistration> registration;
    Budget budget = Budget::kUnknown;
    int failures = 0;
    uint64_t last_use = 0;
    size_t bytes = 0;
  };

  // Has the worker count what the callable keeps using, before its first call
  // is carried out as a whole. False: this one is not to be.
  bool Count(const std::string& guard,
             const std::shared_ptr<const CallableRegistration>& registration) {
    // Carrying it out will say that it is stale.
    if (absl::c_any_of(
            registration->recording->kept,
            [](const StoragePtr& storage) { return storage->dead(); })) {
      return true;
    }
    std::vector<StoragePtr> all;
    {
      MutexLock lock(&mu_);
      for (const auto& [other, entry] : entries_) {
        if (entry.registration == nullptr || !entry.registration->confirmed ||
            entry.registration->device != registration->device) {
          continue;
        }
        absl::c_move(KeptOf(*entry.registration), std::back_inserter(all));
      }
    }
    const auto before = [](const StoragePtr& a, const StoragePtr& b) {
      return a->id() < b->id();
    };
    const auto same = [](const StoragePtr& a, const StoragePtr& b) {
      return a.get() == b.get();
    };
    std::sort(all.begin(), all.end(), before);
    all.erase(std::unique(all.begin(), all.end(), same), all.end());
    const bool admitted =
        models_.Admit(capture::CurrentLane(), registration->device,
                      KeptOf(*registration), std::move(all));
    MutexLock lock(&mu_);
    const auto found = entries_.find(guard);
    // Another thread may have captured it anew.
    if (found != entries_.end() && found->second.registration == registration) {
      Budget& budget = found->second.budget;
      if (admitted && budget == Budget::kHeldBack) statistics_.refusal.clear();
      budget = admitted ? Budget::kCounted : Budget::kHeldBack;
    }
    return admitted;
  }

  absl::flat_hash_set<const VirtualDevice*> DevicesInUse() const {
    absl::flat_hash_set<const VirtualDevice*> devices;
    MutexLock lock(&mu_);
    for (const auto& [guard, entry] : entries_) {
      if (entry.registration != nullptr) {
        devices.insert(entry.registration->device.get());
      }
    }
    return devices;
  }

  void Keep(const std::string& guard,
            const std::shared_ptr<CallableRegistration>& registration) {
    MutexLock lock(&mu_);
    Entry& entry = Take(guard, BytesOf(*registration->recording));
    const CallableRegistration* const before = entry.registration.get();
    if (before != nullptr && capture::SameCalls(*before, *registration)) {
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
    entry.registration = registration;
    entry.budget = Budget::kUnknown;
  }

  // Whether what is done with the arguments may belong to a graph around it.
  static bool NeedsGraph(const Tensors& arguments) {
    return at::GradMode::is_enabled() &&
           absl::c_any_of(arguments, [](const at::Tensor& tensor) {
             return tensor.requires_grad();
           });
  }

  // Whether a graph that was made before is gone through, or made longer: which
  // values it keeps is not known. Those of leaves begin here.
  static bool LeadsToGraph(const Tensors& parameters) {
    return at::GradMode::is_enabled() &&
           absl::c_any_of(parameters, [](const at::Tensor& tensor) {
             return tensor.defined() && tensor.requires_grad() &&
                    !tensor.is_leaf();
           });
  }

  static bool HasHooksOfNodes(const Tensors& tensors) {
    return absl::c_any_of(tensors, [](const at::Tensor& tensor) {
      return capture::HooksOfNode(tensor) != 0;
    });
  }

  static std::unique_ptr<CapturedCall> Stop() {
    std::unique_ptr<CapturedCall> ended(std::exchange(capturing, nullptr));
    capture::ExchangeObserver(ended->outer_observer);
    return ended;
  }

  bool Refuse(std::string why) {
    MutexLock lock(&mu_);
    statistics_.refusal = std::move(why);
    return false;
  }

  void Fail(const std::string& guard, std::string why) {
    {
      MutexLock lock(&mu_);
      statistics_.refusal = std::move(why);
      Entry& entry = Take(guard, 0);
      entry.registration = nullptr;
      entry.budget = Budget::kUnknown;
      ++entry.failures;
    }
    models_.Retain(DevicesInUse());
  }

  // Whether a call that was not met before is to be captured, behind so many
  // others about which nobody asked.
  bool MayTry(uint64_t unasked) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (fruitless_ < kMaxFruitless) {
      ++fruitless_;
      return true;
    }
    left_alone_ += 1 + unasked;
    if (left_alone_ < kRarely) return false;
    left_alone_ = 0;
    return true;
  }

  // The entry for what takes so many bytes, in the place of others if need be.
  Entry& Take(const std::string& guard, size_t recording_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Entry& entry = entries_[guard];
    entry.last_use = ++uses_;
    bytes_ -= entry.bytes;
    entry.bytes = guard.size() + recording_bytes;
    bytes_ += entry.bytes;
    while (entries_.size() > kMaxRecordings ||
           (entries_.size() > kMinRecordings && bytes_ > kMaxBytes)) {
      ForgetOldest();
    }
    return entry;
  }

  void ForgetOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto oldest = std::min_element(
        entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return a.second.last_use < b.second.last_use;
        });
    bytes_ -= oldest->second.bytes;
    entries_.erase(oldest);
  }

  // Has a lock of its own.
  capture::CallableModels models_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t fruitless_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t left_alone_ ABSL_GUARDED_BY(mu_) = 0;
  CompileStatistics statistics_ ABSL_GUARDED_BY(mu_);
};

RegisteredCallable::RegisteredCallable(std::string name)
    : impl_(std::make_unique<Impl>(std::move(name))) {}

RegisteredCallable::~RegisteredCallable() = default;

std::optional<RegisteredCallable::Result> RegisteredCallable::Replay(
    const std::string& key, const Tensors& arguments,
    const Tensors& parameters) {
  return impl_->Replay(key, arguments, parameters);
}

bool RegisteredCallable::Begin(const std::string& key, const Tensors& arguments,
                               const Tensors& parameters, uint64_t unasked) {
  return impl_->Begin(key, arguments, parameters, unasked);
}

uint64_t RegisteredCallable::End(const Tensors& outputs) {
  return impl_->End(outputs);
}

void RegisteredCallable::Abandon(const std::string& refusal) {
  impl_->Abandon(refusal);
}

void RegisteredCallable::Forget() { impl_->Forget(); }

std::vector<uint64_t> RegisteredCallable::Recordings() const {
  return impl_->Recordings();
}

CompileStatistics RegisteredCallable::statistics() const {
  return impl_->statistics();
}

}  // namespace djinn
