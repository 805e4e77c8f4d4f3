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
// Of a structure that is kept to be asked about again.
constexpr size_t kMaxStructureBytes = 1 << 20;
// A structure that was cut is asked about again when a part of it is used so
// often, and then as much more often each time: as its sender tells of it.
constexpr uint64_t kFirstAgain = 16;
constexpr uint64_t kAgain = 8;

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

std::shared_ptr<CutStructure> SpanningDevice::CutOf(
    absl::Span<const uint64_t> storages) const {
  for (const uint64_t storage : storages) {
    const auto found = kept_.find(storage);
    if (found != kept_.end()) return found->second.cut;
  }
  return nullptr;
}

void SpanningDevice::OnRepeat(int member,
                              RemoteDevice::RepeatedStructure repeated) {
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
    Question question;
    question.cut = CutOf(repeated.storages);
    if (question.cut != nullptr) {
      CutStructure& cut = *question.cut;
      if (repeated.uses < cut.next_uses || cut.structure.nodes().empty()) {
        return;
      }
      cut.next_uses = kAgain * repeated.uses;
      repeated.structure = cut.structure;
      repeated.notes = cut.notes;
    } else if (member != 0) {
      // What has overflowed there: the plan would be for what is left.
      return;
    } else {
      if (repeated.structure.ByteSizeLong() <= kMaxStructureBytes) {
        question.structure = repeated.structure;
        question.notes = repeated.notes;
      }
      question.storages = std::move(repeated.storages);
    }
    request.set_number(++last_question_);
    questions_.emplace(last_question_, std::move(question));
    if (questions_.size() > kMaxQuestions) questions_.erase(questions_.begin());
  }
  context_->link->SendStructure(std::move(repeated.structure),
                                std::move(repeated.notes), std::move(request));
}

std::vector<int8_t> SpanningDevice::ReadMembers(const v1::StageAnswer& answer,
                                                size_t slots) const {
  std::vector<int8_t> members;
  if (static_cast<size_t>(answer.member_of_slot_size()) != slots) {
    log::Warning("a plan of stages is not of what it was asked about",
                 {{"device", index_},
                  {"structure", answer.plan().fingerprint().substr(0, 12)}});
    return members;
  }
  for (const uint32_t member : answer.member_of_slot()) {
    const bool known = member > 0 && member <= static_cast<uint32_t>(count());
    members.push_back(static_cast<int8_t>(known ? member - 1 : -1));
  }
  return members;
}

void SpanningDevice::OnStages(const v1::StageAnswer& answer) {
  if (answer.has_batch()) return OnShares(answer);
  const v1::StagePlan& plan = answer.plan();
  const std::string structure = plan.fingerprint().substr(0, 12);
  bool again = false;
  {
    MutexLock lock(&stages_mu_);
    const auto found = questions_.find(answer.number());
    if (found == questions_.end()) return;
    Question question = std::move(found->second);
    questions_.erase(found);
    again = question.cut != nullptr;
    if (answer.member_of_slot().empty()) {
      log::Info(again ? "a device's stages stay as they are"
                      : "a device's work stays on one worker",
                {{"device", index_},
                 {"structure", structure},
                 {"why", plan.problem()}});
      return;
    }
    std::vector<int8_t> members =
        ReadMembers(answer, again ? question.cut->member_of_slot.size()
                                  : question.storages.size());
    if (members.empty()) return;
    if (again) {
      CutStructure& cut = *question.cut;
      // What is left may be estimated otherwise by now.
      cut.order = StageOrder(cut.structure, plan);
      if (members == cut.member_of_slot) return;
      cut.member_of_slot = std::move(members);
    } else {
      // Asked before the answer about another structure with these came: one
      // plan is enough.
      if (CutOf(question.storages) != nullptr) return;
      const auto cut = std::make_shared<CutStructure>();
      cut->structure = std::move(question.structure);
      cut->order = StageOrder(cut->structure, plan);
      cut->notes = std::move(question.notes);
      cut->member_of_slot = std::move(members);
      cut->next_uses = kFirstAgain;
      for (uint32_t slot = 0; slot < question.storages.size(); ++slot) {
        if (cut->member_of_slot[slot] < 0) continue;
        kept_[question.storages[slot]] = {cut, slot};
      }
    }
    plans_.fetch_add(1, std::memory_order_release);
  }
  log::Info(again ? "a device's work was cut otherwise"
                  : "a device's work was cut into stages",
            {{"device", index_},
             {"structure", structure},
             {"stages", Describe(plan)}});
}

void SpanningDevice::ForgetKeeper(RemoteStorage* storage) {
  StorageCopies& copies = CopiesOf(storage);
  copies.kept_by = -1;
  copies.placed = PlacedSlot();
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

void SpanningDevice::BeginRound() {
  round_ = context_->rounds.fetch_add(1, std::memory_order_relaxed) + 1;
  remaining_.fill(StageOrder::kUnknown);
}

double SpanningDevice::RemainingFrom(const Call& call, int member) {
  if (plans_.load(std::memory_order_relaxed) == 0) return StageOrder::kUnknown;
  double remaining = 0;
  bool known = false, begins = false;
  {
    MutexLock lock(&stages_mu_);
    for (const Touch& touch : call.touches()) {
      const PlacedSlot& placed = CopiesOf(touch.storage.get()).placed;
      if (placed.cut == nullptr) continue;
      const StageOrder::Use use = placed.cut->order.Next(placed.slot);
      begins |= use.begins_run;
      remaining = std::max(remaining, use.remaining_seconds);
      known = true;
    }
  }
  if (begins) BeginRound();
  // What uses nothing that is kept belongs to what goes before it there, as the
  // plan has it.
  if (known) remaining_[member] = remaining;
  return remaining_[member];
}

int SpanningDevice::KeeperOf(RemoteStorage* storage) {
  const uint32_t plans = plans_.load(std::memory_order_acquire);
  StorageCopies& copies = CopiesOf(storage);
  if (copies.plans == plans) return copies.kept_by;
  copies.plans = plans;
  MutexLock lock(&stages_mu_);
  const auto look = [&](const RemoteStorage& copy) {
    const auto found = kept_.find(copy.id());
    if (found != kept_.end()) copies.placed = found->second;
  };
  if (copies.placed.cut == nullptr) {
    // The question was about the member's storage that had it then.
    if (copies.at_home) look(*storage);
    for (const StoragePtr& copy : copies.at) {
      if (copy) look(*copy.get());
    }
  }
  copies.kept_by = copies.placed.member();
  return copies.kept_by;
}

}  // namespace djinn
