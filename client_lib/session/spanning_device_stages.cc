// A device that begins on several workers: what it repeats is cut into stages
// by the coordinator, and its storages go to the members that are to keep them.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/spanning_device.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Questions that wait for their answers; the oldest is forgotten.
constexpr size_t kMaxQuestions = 16;
// Storages that plans were made for.
constexpr size_t kMaxKept = 1 << 20;

std::string Describe(const v1::StagePlan& plan) {
  std::string text;
  for (const v1::StagePlan::Stage& stage : plan.stages()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", stage.node_count(),
                    " calls on ", stage.worker_id());
  }
  return text;
}

}  // namespace

void SpanningDevice::Spread() {
  const int workers = std::exchange(workers_wanted_, 1);
  while (count() < workers && AddMember(/*needed_bytes=*/0)) {
  }
  // It is cut where its cost is known: until then all of it stays together.
  filling_ = 0;
}

void SpanningDevice::OnRepeat(RemoteDevice::RepeatedStructure repeated) {
  // Only moves bytes: the device's own, as for rows of a recording.
  if (repeated.structure.operators_size() == 1 &&
      repeated.structure.operators(0).name() == "aten::copy_") {
    return;
  }
  v1::StageRequest request;
  request.set_virtual_device(static_cast<uint32_t>(index_));
  {
    MutexLock lock(&stages_mu_);
    if (count() < 2 || kept_.size() > kMaxKept) return;
    // A part of what was cut already.
    for (const uint64_t storage : repeated.storages) {
      if (kept_.contains(storage)) return;
    }
    request.set_number(++last_question_);
    questions_.emplace(last_question_, std::move(repeated.storages));
    if (questions_.size() > kMaxQuestions) questions_.erase(questions_.begin());
  }
  context_->link->SendStructure(std::move(repeated.structure),
                                std::move(repeated.notes), std::move(request));
}

void SpanningDevice::OnStages(const v1::StageAnswer& answer) {
  if (answer.has_batch()) return OnShares(answer);
  const v1::StagePlan& plan = answer.plan();
  const std::string structure = plan.fingerprint().substr(0, 12);
  const auto members = static_cast<uint32_t>(count());
  {
    MutexLock lock(&stages_mu_);
    const auto question = questions_.find(answer.number());
    if (question == questions_.end()) return;
    const std::vector<uint64_t> storages = std::move(question->second);
    questions_.erase(question);
    const auto& kept = answer.member_of_slot();
    if (kept.empty()) {
      log::Info("a device's work stays on one worker",
                {{"device", index_},
                 {"structure", structure},
                 {"why", plan.problem()}});
      return;
    }
    if (static_cast<size_t>(kept.size()) != storages.size()) {
      log::Warning("a plan of stages is not of what it was asked about",
                   {{"device", index_}, {"structure", structure}});
      return;
    }
    // Asked before the answer about another structure with these came: one plan
    // is enough.
    for (const uint64_t storage : storages) {
      if (kept_.contains(storage)) return;
    }
    for (int slot = 0; slot < kept.size(); ++slot) {
      if (kept[slot] == 0 || kept[slot] > members) continue;
      kept_[storages[static_cast<size_t>(slot)]] =
          static_cast<int8_t>(kept[slot] - 1);
    }
    plans_.fetch_add(1, std::memory_order_release);
  }
  log::Info("a device's work was cut into stages",
            {{"device", index_},
             {"structure", structure},
             {"stages", Describe(plan)}});
}

void SpanningDevice::ForgetKeeper(RemoteStorage* storage) {
  StorageCopies& copies = CopiesOf(storage);
  copies.kept_by = -1;
  ForgetPlanned(*storage, copies);
}

void SpanningDevice::ForgetPlanned(const RemoteStorage& storage,
                                   const StorageCopies& copies) {
  MutexLock lock(&stages_mu_);
  if (copies.at_home) kept_.erase(storage.id());
  for (const StoragePtr& copy : copies.at) {
    if (copy) kept_.erase(copy->id());
  }
}

int SpanningDevice::KeeperOf(RemoteStorage* storage) {
  const uint32_t plans = plans_.load(std::memory_order_acquire);
  StorageCopies& copies = CopiesOf(storage);
  if (copies.plans == plans) return copies.kept_by;
  copies.plans = plans;
  MutexLock lock(&stages_mu_);
  const auto look = [&](const RemoteStorage& copy) {
    const auto found = kept_.find(copy.id());
    if (found != kept_.end()) copies.kept_by = found->second;
  };
  // The question was about the member's storage that had it then.
  if (copies.at_home) look(*storage);
  for (const StoragePtr& copy : copies.at) {
    if (copy) look(*copy.get());
  }
  return copies.kept_by;
}

}  // namespace djinn
