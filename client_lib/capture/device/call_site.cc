
#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/session/model/call_sites.h"
#include "client_lib/session/model/debug_flags.h"
#include "common/base/mutex.h"
#include "djinn/debug.h"
#include "djinn/hints.h"

namespace djinn {
namespace {

std::atomic<CallSiteSource> source = nullptr;

thread_local std::string module_path;

// Maps autograd nodes to the sites of their forward calls. PyTorch identifies a
// node by the forward thread and that thread's count of nodes, and numbers a
// node just before the node's call is captured.
class ForwardSites {
 public:
  static ForwardSites& Get() {
    static ForwardSites* const sites = new ForwardSites;
    return *sites;
  }

  // Notes the site of the node that this thread numbered last. Only the node's
  // first call is noted.
  void NoteCall(uint32_t site) {
    const uint64_t next = at::sequence_number::peek();
    if (next == 0) return;
    MutexLock lock(&mu_);
    if (recent_.size() >= kMaxRecent) older_ = std::exchange(recent_, {});
    recent_.try_emplace({at::RecordFunction::currentThreadId(), next - 1},
                        site);
  }

  // Returns 0 if the site is unknown.
  uint32_t Find(const torch::autograd::Node& node) const {
    const Key key(node.thread_id(), node.sequence_nr());
    MutexLock lock(&mu_);
    for (const Sites* sites : {&recent_, &older_}) {
      const auto found = sites->find(key);
      if (found != sites->end()) return found->second;
    }
    return 0;
  }

 private:
  // The table keeps at most twice this number of sites. One forward pass has
  // fewer.
  static constexpr size_t kMaxRecent = 1 << 17;
  using Key = std::pair<uint64_t, uint64_t>;
  using Sites = absl::flat_hash_map<Key, uint32_t>;

  mutable Mutex mu_;
  Sites recent_ ABSL_GUARDED_BY(mu_);
  Sites older_ ABSL_GUARDED_BY(mu_);
};

// Calls no CallSiteSource, because the caller may hold an autograd node's lock.
CallSite InBackward(const torch::autograd::Node& node) {
  const uint32_t forward = ForwardSites::Get().Find(node);
  if (forward == 0) return {absl::StrCat("the backward of ", node.name()), {}};
  CallSite site = CallSiteTable::Global().Get(forward);
  if (!site.location.empty()) {
    site.location = absl::StrCat("the backward of ", site.location);
  }
  return site;
}

CallSite Here() {
  const CallSiteSource ask = source;
  return {ask == nullptr ? std::string() : ask(), module_path};
}

// Returns the site of a call of which only the phase is known.
uint32_t PhaseSite(v1::Phase phase) {
  static const auto* const sites = [] {
    auto* const all = new std::vector<uint32_t>;
    for (int i = 0; i < v1::Phase_ARRAYSIZE; ++i) {
      all->push_back(
          CallSiteTable::Global().Add({"", "", static_cast<v1::Phase>(i)}));
    }
    return all;
  }();
  return (*sites)[phase];
}

}  // namespace

ModuleScope::ModuleScope(const std::string& name) : outer_(module_path) {
  module_path = outer_.empty() ? name : absl::StrCat(outer_, ".", name);
}

ModuleScope::~ModuleScope() { module_path = outer_; }

std::string ExchangeModulePath(std::string path) {
  return std::exchange(module_path, std::move(path));
}

Phase SignalPhase(Phase phase) {
  debug::Set(debug::kPhases, debug::kPhases);
  return static_cast<Phase>(
      capture::ExchangeLanePhase(static_cast<v1::Phase>(phase)));
}

void SetCallSiteSource(CallSiteSource chosen) { source = chosen; }

namespace capture {

uint32_t CurrentCallSite() {
  if (!debug::Has(debug::kCallSites)) return PhaseSite(LanePhase());
  const auto node = torch::autograd::get_current_node();
  CallSite known = node != nullptr ? InBackward(*node) : Here();
  known.phase = LanePhase();
  const uint32_t site = CallSiteTable::Global().Add(known);
  if (site != 0 && c10::GradMode::is_enabled()) {
    ForwardSites::Get().NoteCall(site);
  }
  return site;
}

std::string DescribeCurrentCallSite() { return Describe(Here()); }

}  // namespace capture
}  // namespace djinn
