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
#include "client_lib/callable/call_guard.h"
#include "client_lib/callable/callable_models.h"
#include "client_lib/callable/callable_registration.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/device/throw_status.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/profile/request_tracer.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "djinn/compile.h"

namespace djinn {
namespace {

using capture::CallableRegistration;
using capture::CapturedCall;
using Tensors = std::vector<at::Tensor>;

// The limit on failed captures with one guard. Calls with that guard are not
// captured after that.
constexpr int kMaxFailures = 4;
// The limit on captures without a match, in excess of replays. Above it, only
// one in kCallsPerRareCapture new calls is captured: the calls may never recur,
// for example if every sequence has another length.
constexpr int kMaxUnmatchedCaptures = 64;
constexpr uint64_t kCallsPerRareCapture = 256;

// The call that this thread captures, or null.
thread_local CapturedCall* capturing = nullptr;

// Clears autocast's cache of cast parameters, which otherwise lives until the
// outermost autocast block ends. A cast from before the capture would be an
// unknown tensor, and a cast from within the capture would outlive the call.
// Casting a parameter a second time costs little. The cache stays if gradients
// are recorded, because gradients through two casts add up in another order
// than through one cast.
void ClearCastCache() {
  if (!at::GradMode::is_enabled() &&
      at::autocast::is_autocast_cache_enabled() &&
      at::autocast::is_autocast_enabled(c10::DeviceType::PrivateUse1)) {
    at::autocast::clear_cache();
  }
}

}  // namespace

class RegisteredCallable::Impl {
 public:
  Impl(std::string name, Kind kind) : kind_(kind), models_(std::move(name)) {}

  std::optional<Result> Replay(const std::string& key, const Tensors& arguments,
                               const Tensors& parameters,
                               const Values& values) {
    NoteWork();
    // Every operator must be seen in these cases.
    if (debug::Has(debug::kEager) || !capture::FindCallInterceptor().empty()) {
      return std::nullopt;
    }
    if (capturing != nullptr) return std::nullopt;
    std::string guard = capture::CallGuard(key, arguments, parameters);
    if (guard.empty()) return std::nullopt;
    AddGradients(arguments, parameters, &guard);
    std::shared_ptr<const CallableRegistration> registration;
    std::shared_ptr<const std::vector<int32_t>> places;
    bool admitted = false;
    {
      MutexLock lock(&mu_);
      const auto found = entries_.find(guard);
      if (found == entries_.end()) return std::nullopt;
      found->second.last_use = ++uses_;
      registration = found->second.registration;
      places = found->second.places;
      admitted = found->second.budget == Budget::kAdmitted;
    }
    if (registration == nullptr || !registration->confirmed) {
      return std::nullopt;
    }
    const CapturedGraph& graph = *registration->captured_graph;
    std::shared_ptr<const CapturedNumbers> numbers;
    if (values != nullptr) {
      std::vector<uint64_t> now;
      if (places == nullptr || !values(graph.number, &now)) return std::nullopt;
      if (!now.empty()) numbers = capture::ReplaceNumbers(graph, *places, now);
    }
    if (!admitted && !AdmitModel(guard, registration)) return std::nullopt;
    absl::StatusOr<Tensors> outputs = capture::ReplayCall(
        *registration, arguments, parameters, std::move(numbers));
    if (ErrorReason(outputs.status()) == "STALE_RECORDING") return std::nullopt;
    capture::ThrowIfError(outputs.status());
    MutexLock lock(&mu_);
    if (unmatched_captures_ > 0) --unmatched_captures_;
    ++statistics_.replays;
    return Result{graph.number, *std::move(outputs)};
  }

  bool Begin(const std::string& key, const Tensors& arguments,
             const Tensors& parameters, uint64_t skipped_calls,
             const VaryingNumbers& varying) {
    if (debug::Has(debug::kEager)) return Refuse("DJINN_EAGER is set");
    if (std::string who = capture::FindCallInterceptor(); !who.empty()) {
      return Refuse(std::move(who));
    }
    if (capturing != nullptr) return false;
    const std::string call_guard =
        capture::CallGuard(key, arguments, parameters);
    if (call_guard.empty()) {
      if (HaveNodeHooks(arguments) || HaveNodeHooks(parameters)) {
        return Refuse("an autograd node of an argument or parameter has hooks");
      }
      return Refuse(
          "an argument is a tensor of this process, a wrapped tensor or a "
          "named tensor");
    }
    if (NeedsGraph(arguments)) {
      return Refuse("autograd may need the graph of an argument");
    }
    if (LeadsToGraph(parameters)) {
      return Refuse("it refers to a tensor that has a graph behind it");
    }
    std::string guard = call_guard;
    AddGradients(arguments, parameters, &guard);
    std::shared_ptr<const CallableRegistration> before;
    bool failed_before = false;
    {
      MutexLock lock(&mu_);
      const auto found = entries_.find(guard);
      if (found != entries_.end() && found->second.failures >= kMaxFailures) {
        return false;
      }
      // Another capture would give the same result.
      if (found != entries_.end() &&
          found->second.budget == Budget::kHeldBack) {
        statistics_.refusal = models_.refusal();
        return false;
      }
      const bool returns = found != entries_.end() &&
                           found->second.registration != nullptr &&
                           !found->second.registration->confirmed;
      // This limits the captures of a function whose calls never recur.
      if (!returns && !MayCapture(skipped_calls)) {
        statistics_.refusal = "no call equals an earlier one";
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
        if (first == nullptr && capture::IsRemote(tensor) &&
            tensor.has_storage()) {
          first = &tensor;
        }
      }
    }
    if (first == nullptr) {
      return Refuse("no argument or parameter is on a remote device");
    }
    auto begun = std::make_unique<CapturedCall>();
    begun->is_graph = kind_ == Kind::kGraph;
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
      begun->input_gradients = capture::GradientInputs(*before, parameters);
    } else if (failed_before && kind_ == Kind::kFunction) {
      // The failed call may have used gradients and then dropped them.
      // Gradients that may be dropped must be inputs, because captured storages
      // have to stay.
      for (uint32_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor& gradient = begun->gradients_before[i];
        if (capture::IsRemote(gradient) && gradient.has_storage() &&
            capture::OwnStorageOf(gradient)->device() == begun->device) {
          begun->input_gradients.push_back(i);
        }
      }
    }
    begun->before =
        capture::SideEffectSnapshot(arguments, begun->gradients_before);
    ClearCastCache();
    // The failed call may have been the first one to draw after a seed.
    if (failed_before) capture::SendGenerator(begun->device, begun->lane);
    capture::ThrowIfError(begun->device->graphs().Start(begun->lane));
    begun->numbers_vary = varying.numbers;
    begun->observer = std::make_unique<capture::SideEffectObserver>(
        begun->device, begun->lane);
    for (const at::Tensor& counter : varying.counters) {
      begun->observer->Allow(counter);
    }
    begun->outer_observer = capture::ExchangeObserver(begun->observer.get());
    begun->next_node = at::sequence_number::peek();
    capturing = begun.release();
    return true;
  }

  uint64_t End(const Tensors& outputs) {
    TORCH_CHECK(
        capturing != nullptr,
        "this thread captures no call: Begin() must return true before End()");
    const std::unique_ptr<CapturedCall> ended = Stop();
    // If anything throws, the lane stops recording.
    const absl::Cleanup finish = [&ended] {
      ended->device->graphs().Drop(ended->lane);
    };
    ClearCastCache();
    // A refusal of an operator is more precise.
    if (ended->observer->refusal().empty()) {
      if (std::string what = ended->before.FirstChange(ended->arguments);
          !what.empty()) {
        Fail(ended->guard, std::move(what));
        return 0;
      }
      if (ended->before.CpuGeneratorChanged()) {
        // This refusal does not count as a failure of the guard, because
        // another thread may have drawn the numbers and may not do so in the
        // next call.
        Refuse(
            "it seeds or draws from PyTorch's generator of this process, or "
            "another thread did so during the call");
        return 0;
      }
    }
    if (capture::CallGuard(ended->key, ended->arguments, ended->parameters) !=
        ended->call_guard) {
      Fail(ended->guard, "it changes a mode, or the metadata of a tensor");
      return 0;
    }
    absl::StatusOr<std::shared_ptr<CallableRegistration>> registered =
        capture::Register(*ended, outputs);
    if (!registered.ok()) {
      Fail(ended->guard, std::string(registered.status().message()));
      return 0;
    }
    const std::shared_ptr<CallableRegistration> registration =
        *std::move(registered);
    const uint64_t number = registration->captured_graph->number;
    Register(ended->guard, registration, ended->numbers_vary);
    models_.Retain(DevicesInUse());
    return number;
  }

  void Abandon(const std::string& refusal) {
    if (capturing == nullptr) return;
    const std::unique_ptr<CapturedCall> ended = Stop();
    ended->device->graphs().Drop(ended->lane);
    if (!refusal.empty()) Fail(ended->guard, refusal);
  }

  Numbers NumbersOf(uint64_t captured_graph) const {
    MutexLock lock(&mu_);
    for (const auto& [guard, entry] : entries_) {
      if (!Is(entry, captured_graph)) continue;
      return {capture::NumbersOf(*entry.registration->captured_graph),
              entry.registration->predecessor};
    }
    return {};
  }

  void Vary(uint64_t captured_graph, std::vector<int32_t> places) {
    MutexLock lock(&mu_);
    for (auto& [guard, entry] : entries_) {
      if (!Is(entry, captured_graph)) continue;
      TORCH_CHECK(
          places.size() ==
              capture::NumbersOf(*entry.registration->captured_graph).size(),
          "the captured graph has another count of numbers");
      entry.places =
          std::make_shared<const std::vector<int32_t>>(std::move(places));
      return;
    }
  }

  void Forget() {
    absl::flat_hash_map<std::string, Entry>
        forgotten;  // destroyed without the lock
    {
      MutexLock lock(&mu_);
      forgotten.swap(entries_);
      bytes_ = 0;
      unmatched_captures_ = 0;
      uncaptured_calls_ = 0;
      statistics_.refusal.clear();
    }
    models_.Retain({});
  }

  std::vector<uint64_t> CapturedGraphs() const {
    std::vector<uint64_t> captured_graphs;
    MutexLock lock(&mu_);
    for (const auto& [guard, entry] : entries_) {
      if (entry.registration == nullptr) continue;
      captured_graphs.push_back(entry.registration->captured_graph->number);
    }
    return captured_graphs;
  }

  CompileStatistics statistics() const {
    MutexLock lock(&mu_);
    return statistics_;
  }

 private:
  // Says whether the worker has admitted the storages that the entry's calls
  // capture.
  enum class Budget {
    kUnknown,
    kAdmitted,
    kHeldBack,  // the budget has no room, or another thread asks
  };
  struct Entry {
    std::shared_ptr<const CallableRegistration> registration;
    Budget budget = Budget::kUnknown;
    int failures = 0;
    uint64_t last_use = 0;
    size_t bytes = 0;
    // See RegisteredCallable::Vary().
    std::shared_ptr<const std::vector<int32_t>> places;
  };

  static bool Is(const Entry& entry, uint64_t captured_graph) {
    return entry.registration != nullptr &&
           entry.registration->captured_graph->number == captured_graph;
  }

  // Registers the storages that the callable captures with the worker, before
  // its first replay. Returns false if this call must not be replayed.
  bool AdmitModel(
      const std::string& guard,
      const std::shared_ptr<const CallableRegistration>& registration) {
    // The replay will report that the captured graph is stale.
    if (absl::c_any_of(
            registration->captured_graph->kept,
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
        absl::c_move(capture::CapturedOf(*entry.registration),
                     std::back_inserter(all));
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
                      capture::CapturedOf(*registration), std::move(all));
    MutexLock lock(&mu_);
    const auto found = entries_.find(guard);
    // Another thread may have captured the call again.
    if (found != entries_.end() && found->second.registration == registration) {
      Budget& budget = found->second.budget;
      if (admitted && budget == Budget::kHeldBack) statistics_.refusal.clear();
      budget = admitted ? Budget::kAdmitted : Budget::kHeldBack;
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

  void Register(const std::string& guard,
                const std::shared_ptr<CallableRegistration>& registration,
                bool numbers_vary) {
    MutexLock lock(&mu_);
    Entry& entry =
        FindOrAdd(guard, capture::BytesOf(*registration->captured_graph));
    const CallableRegistration* const before = entry.registration.get();
    if (kind_ == Kind::kGraph) {
      registration->confirmed = true;
      for (StoragePtr& input : registration->inputs) input = StoragePtr();
      entry.failures = 0;
      statistics_.refusal.clear();
    } else if (before != nullptr &&
               capture::SameCalls(*before, *registration, numbers_vary)) {
      registration->confirmed = true;
      registration->predecessor = before->captured_graph->number;
      for (size_t i = 0; i < registration->inputs.size(); ++i) {
        // An input that was another storage this time may be any storage.
        if (registration->inputs[i].get() != before->inputs[i].get()) {
          registration->inputs[i] = StoragePtr();
        }
      }
      entry.failures = 0;
      statistics_.refusal.clear();
    } else if (before != nullptr && ++entry.failures >= kMaxFailures) {
      statistics_.refusal = "equal calls issued different operators";
    }
    entry.registration = registration;
    entry.places = nullptr;
    entry.budget = Budget::kUnknown;
  }

  // Completes the guard of a call. A graph uses no gradients of its operands.
  void AddGradients(const Tensors& arguments, const Tensors& parameters,
                    std::string* guard) const {
    if (kind_ == Kind::kFunction) {
      *guard += capture::GradientGuard(arguments, parameters);
    }
  }

  // Returns whether results of the call may belong to an autograd graph that
  // continues after the call.
  static bool NeedsGraph(const Tensors& arguments) {
    return at::GradMode::is_enabled() &&
           absl::c_any_of(arguments, [](const at::Tensor& tensor) {
             return tensor.requires_grad();
           });
  }

  // Returns whether the call may use or extend an autograd graph that existed
  // before the call, whose saved values are unknown. A graph of leaf tensors
  // begins in the call.
  static bool LeadsToGraph(const Tensors& parameters) {
    return at::GradMode::is_enabled() &&
           absl::c_any_of(parameters, [](const at::Tensor& tensor) {
             return tensor.defined() && tensor.requires_grad() &&
                    !tensor.is_leaf();
           });
  }

  static bool HaveNodeHooks(const Tensors& tensors) {
    return absl::c_any_of(tensors, [](const at::Tensor& tensor) {
      return capture::CountNodeHooks(tensor) != 0;
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
      Entry& entry = FindOrAdd(guard, 0);
      entry.registration = nullptr;
      entry.budget = Budget::kUnknown;
      ++entry.failures;
    }
    models_.Retain(DevicesInUse());
  }

  // Returns whether a new call is captured. The caller skipped the question for
  // the last `skipped_calls` calls.
  bool MayCapture(uint64_t skipped_calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (unmatched_captures_ < kMaxUnmatchedCaptures) {
      ++unmatched_captures_;
      return true;
    }
    uncaptured_calls_ += 1 + skipped_calls;
    if (uncaptured_calls_ < kCallsPerRareCapture) return false;
    uncaptured_calls_ = 0;
    return true;
  }

  // Returns the guard's entry, now of this size. It may evict other entries.
  Entry& FindOrAdd(const std::string& guard, size_t captured_graph_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Entry& entry = entries_[guard];
    entry.last_use = ++uses_;
    bytes_ -= entry.bytes;
    entry.bytes = guard.size() + captured_graph_bytes;
    bytes_ += entry.bytes;
    while (entries_.size() > kMaxCapturedGraphs ||
           (entries_.size() > kMinCapturedGraphs && bytes_ > kMaxBytes)) {
      EvictOldest();
    }
    return entry;
  }

  void EvictOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto oldest = std::min_element(
        entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return a.second.last_use < b.second.last_use;
        });
    bytes_ -= oldest->second.bytes;
    entries_.erase(oldest);
  }

  const Kind kind_;
  // This object has its own lock.
  capture::CallableModels models_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t unmatched_captures_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t uncaptured_calls_ ABSL_GUARDED_BY(mu_) = 0;
  CompileStatistics statistics_ ABSL_GUARDED_BY(mu_);
};

RegisteredCallable::RegisteredCallable(std::string name, Kind kind)
    : impl_(std::make_unique<Impl>(std::move(name), kind)) {}

RegisteredCallable::~RegisteredCallable() = default;

std::optional<RegisteredCallable::Result> RegisteredCallable::Replay(
    const std::string& key, const Tensors& arguments, const Tensors& parameters,
    const Values& values) {
  return impl_->Replay(key, arguments, parameters, values);
}

bool RegisteredCallable::Begin(const std::string& key, const Tensors& arguments,
                               const Tensors& parameters,
                               uint64_t skipped_calls,
                               const VaryingNumbers& varying) {
  return impl_->Begin(key, arguments, parameters, skipped_calls, varying);
}

RegisteredCallable::Numbers RegisteredCallable::NumbersOf(
    uint64_t captured_graph) const {
  return impl_->NumbersOf(captured_graph);
}

void RegisteredCallable::Vary(uint64_t captured_graph,
                              std::vector<int32_t> places) {
  impl_->Vary(captured_graph, std::move(places));
}

uint64_t RegisteredCallable::End(const Tensors& outputs) {
  return impl_->End(outputs);
}

void RegisteredCallable::Abandon(const std::string& refusal) {
  impl_->Abandon(refusal);
}

void RegisteredCallable::Forget() { impl_->Forget(); }

std::vector<uint64_t> RegisteredCallable::CapturedGraphs() const {
  return impl_->CapturedGraphs();
}

CompileStatistics RegisteredCallable::statistics() const {
  return impl_->statistics();
}

}  // namespace djinn
