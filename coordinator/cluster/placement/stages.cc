#include "coordinator/cluster/placement/stages.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

#include "coordinator/cluster/leases/fleet.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/worker_registry.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/stages/stages.h"

namespace djinn::coordinator::stages {
namespace {

// Most answers that may wait for the client. It asks again for others.
constexpr size_t kMaxAnswers = 8;
// Most plans that are remembered of a virtual device. A forgotten plan is
// computed again when the session asks again.
constexpr size_t kMaxPlans = 4;

}  // namespace

std::optional<StageMembers> MembersOf(ClusterState& state, const StreamId& id,
                                      uint32_t virtual_device) {
  MutexLock lock(&state.mu);
  StageMembers members;
  Session* const session = state.FindSession(id);
  if (session == nullptr) return std::nullopt;
  if (!session->pace.stage_questions.Take(state.clock->Monotonic())) {
    return std::nullopt;
  }
  const scheduler::Fleet& known = fleet::Fresh(state);
  for (uint32_t member = 0; member < kMaxMembers; ++member) {
    const Lease* const lease =
        state.leases.FindDevice(session->id, {virtual_device, member});
    if (lease == nullptr || lease->state != Lease::State::kGranted) continue;
    const scheduler::Fleet::Member* const worker = known.Find(lease->worker_id);
    if (worker == nullptr) continue;
    scheduler::StageWorker stage_worker;
    stage_worker.device = worker->facts.device;
    stage_worker.speed = worker->facts.speed;
    stage_worker.link_bytes_per_second = worker->facts.link_bytes_per_second;
    // The first member has all of the virtual device's storages, so it needs no
    // more memory.
    if (member > 0) {
      stage_worker.available_bytes = worker->facts.available_bytes;
    }
    members.workers.push_back(std::move(stage_worker));
    members.numbers.push_back(member);
    members.worker_ids.push_back(lease->worker_id);
  }
  // A measured rate replaces the configured one.
  for (size_t i = 0; i < members.workers.size(); ++i) {
    const Worker* const worker = state.workers.Find(members.worker_ids[i]);
    if (worker == nullptr) continue;
    std::optional<uint64_t> slowest;
    for (const std::string& other : members.worker_ids) {
      const auto link = worker->facts.links.find(other);
      if (link == worker->facts.links.end()) continue;
      slowest = std::min(slowest.value_or(link->second), link->second);
    }
    if (!slowest.has_value()) continue;
    members.workers[i].link_bytes_per_second = static_cast<double>(*slowest);
  }
  members.factors = state.known.works.factors();
  return members;
}

v1::StagePlan InForce(ClusterState& state, const StreamId& id,
                      uint32_t virtual_device, const std::string& fingerprint) {
  MutexLock lock(&state.mu);
  Session* const session = state.FindSession(id);
  if (session == nullptr) return {};
  const auto plans = session->plans.stages.find(virtual_device);
  if (plans == session->plans.stages.end()) return {};
  for (const v1::StagePlan& plan : plans->second) {
    const bool cut = !plan.stages().empty();
    if (cut && plan.fingerprint() == fingerprint) return plan;
  }
  return {};
}

void Answer(ClusterState& state, const StreamId& id, v1::StageAnswer answer) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  Session* const session = state.FindSession(id);
  if (session == nullptr) return;
  size_t waiting = 0;
  for (const v1::SessionResponse& response : session->link.outbox) {
    waiting += response.has_stages() ? 1 : 0;
  }
  if (waiting >= kMaxAnswers) return;
  if (answer.has_batch()) {
    session->plans.batches[answer.virtual_device()] = answer;
  } else {
    std::deque<v1::StagePlan>& plans =
        session->plans.stages[answer.virtual_device()];
    // An earlier plan with stages stays if the new one has none.
    std::erase_if(plans, [&](const v1::StagePlan& plan) {
      return plan.fingerprint() == answer.plan().fingerprint() &&
             (plan.stages().empty() || !answer.plan().stages().empty());
    });
    plans.push_back(answer.plan());
    if (plans.size() > kMaxPlans) plans.pop_front();
  }
  v1::SessionResponse response;
  *response.mutable_stages() = std::move(answer);
  notifications::Send(std::move(response), session, &wakes);
}

}  // namespace djinn::coordinator::stages
