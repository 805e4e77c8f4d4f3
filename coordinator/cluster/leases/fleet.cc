#include "coordinator/cluster/leases/fleet.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/saturating.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::coordinator::fleet {
namespace {

// Seconds of a run, on a worker that has not reported any.
constexpr double kSecondsPerRun = 5e-3;
// Time after which announced bytes no longer count as promised. A session that
// has not uploaded them by then will not.
constexpr absl::Duration kPromiseTime = absl::Seconds(30);

// Returns the kind of a device: "cuda" for "cuda:0".
std::string KindOf(const std::string& device) {
  return device.substr(0, device.find(':'));
}

semantics::DeviceSpeed SpeedOf(const Worker& worker) {
  return {worker.facts.speed.flops_per_second(),
          worker.facts.speed.bytes_per_second(),
          worker.facts.speed.seconds_per_call()};
}

// Returns the sum of PromisedBytes() over the worker's leases. Counts for each
// tenant no more than its sessions together may still add at the worker.
uint64_t PromisedAt(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  struct OfTenant {
    uint64_t promised = 0;
    uint64_t most = 0;
  };
  absl::flat_hash_map<absl::string_view, OfTenant> tenants;
  for (Lease* lease : state.leases.PromisingOfWorker(worker.id)) {
    if (state.clock->Monotonic() - lease->created > kPromiseTime) {
      state.leases.EndPromise(lease);
      continue;
    }
    OfTenant& of = tenants[lease->tenant];
    of.promised = SaturatingSum(of.promised, PromisedBytes(state, *lease));
    of.most = std::max(of.most, lease->tenant_limits.memory_bytes());
  }
  uint64_t promised = 0;
  for (const auto& [tenant, of] : tenants) {
    const uint64_t has = worker.HeldBytesOf(tenant);
    promised = SaturatingSum(
        promised, std::min(of.promised, of.most - std::min(of.most, has)));
  }
  return promised;
}

}  // namespace

scheduler::StateKey KeyOf(const std::string& tenant, const ContentKey& key) {
  return absl::HashOf(tenant, key.first.high, key.first.low, key.second);
}

uint64_t PromisedBytes(ClusterState& state, const Lease& lease) {
  if (state.clock->Monotonic() - lease.created > kPromiseTime) return 0;
  const Worker::Held* const held = state.HeldFor(lease);
  const uint64_t brought = held == nullptr ? 0 : held->storage_bytes;
  return lease.promised_bytes - std::min(lease.promised_bytes, brought);
}

void Refresh(ClusterState& state, const Worker& worker) {
  if (!worker.usable()) {
    state.known.fleet.Remove(worker.id);
    return;
  }
  scheduler::WorkerFacts facts;
  facts.id = worker.id;
  facts.device = KindOf(worker.facts.device);
  facts.numerics = worker.facts.numerics;
  facts.memory_bytes = worker.facts.memory_bytes;
  facts.leases = static_cast<uint32_t>(state.leases.CountOfWorker(worker.id));
  // The worker reports memory that it would evict on demand as free.
  facts.available_bytes =
      worker.facts.free_bytes -
      std::min(worker.facts.free_bytes, PromisedAt(state, worker));
  facts.queued_runs = worker.facts.queued_runs;
  facts.queued_seconds =
      worker.facts.queued_runs * (worker.load.seconds_per_run > 0
                                      ? worker.load.seconds_per_run
                                      : kSecondsPerRun);
  facts.busy_share = worker.load.busy_share;
  facts.speed = SpeedOf(worker);
  facts.price_per_second = worker.facts.price_per_hour / 3600;
  facts.link_bytes_per_second =
      static_cast<double>(worker.facts.link_bytes_per_second);
  facts.client_bytes_per_second =
      static_cast<double>(worker.facts.client_bytes_per_second);
  facts.capabilities = worker.facts.capabilities;
  facts.phases = worker.facts.phases;
  facts.cordoned = state.moves.Cordoned(worker.id);
  if (worker.facts.gpu_health.has_value()) {
    facts.failure = worker.facts.gpu_health->failure();
  }
  state.known.fleet.Put(std::move(facts));
}

void PutOff(ClusterState& state, const std::string& worker_id) {
  state.known.stale.insert(worker_id);
}

const scheduler::Fleet& Fresh(ClusterState& state) {
  for (const std::string& worker_id : std::exchange(state.known.stale, {})) {
    if (const Worker* const worker = state.workers.Find(worker_id)) {
      Refresh(state, *worker);
    }
  }
  return state.known.fleet;
}

bool Absorb(ClusterState& state, const Worker& worker) {
  const scheduler::Fleet::Member* const before = Fresh(state).Find(worker.id);
  const bool known = before != nullptr;
  const uint64_t available = known ? before->facts.available_bytes : 0;
  absl::flat_hash_set<scheduler::StateKey> held;
  for (const auto& [tenant, contents] : worker.cache.contents) {
    for (const ContentKey& key : contents) held.insert(KeyOf(tenant, key));
  }
  Refresh(state, worker);
  state.known.fleet.SetHeld(worker.id, std::move(held));
  for (const Worker::Ran& ran : worker.load.ran) {
    state.known.works.Learn(ran.fingerprint, KindOf(worker.facts.device),
                            SpeedOf(worker), ran.runs, ran.time);
  }
  return !known ||
         state.known.fleet.Find(worker.id)->facts.available_bytes > available;
}

}  // namespace djinn::coordinator::fleet
