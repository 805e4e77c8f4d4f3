#include "client_lib/session/multi_worker/stage_plans.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Limit on questions that wait for answers; the oldest is forgotten.
constexpr size_t kMaxQuestions = 16;
// Limit on storages that plans place.
constexpr size_t kMaxKept = 1 << 20;
// Size of the largest graph that is kept for another question.
constexpr size_t kMaxGraphBytes = 1 << 20;
// The coordinator is asked a second time about a cut graph when a stage of it
// was used kFirstAgain times, and then each time the uses have grown by the
// factor kAgain. The senders report uses at the same intervals.
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

void RoundClock::Begin() {
  round_ = context_->rounds.fetch_add(1, std::memory_order_relaxed) + 1;
  remaining_.fill(StageOrder::kUnknown);
}

uint64_t StagePlans::NextQuestion() {
  MutexLock lock(&mu_);
  return ++last_question_;
}

std::shared_ptr<CutGraph> StagePlans::CutOf(
    absl::Span<const uint64_t> storages) const {
  for (const uint64_t storage : storages) {
    const auto found = kept_.find(storage);
    if (found != kept_.end()) return found->second.cut;
  }
  return nullptr;
}

void StagePlans::OnRepeat(int member, RepeatedGraph repeated) {
  // A graph of a single copy only moves bytes. The device itself makes such
  // graphs for the rows of captured graphs.
  if (repeated.graph.operators_size() == 1 &&
      repeated.graph.operators(0).name() == "aten::copy_") {
    return;
  }
  v1::StageRequest request;
  request.set_virtual_device(static_cast<uint32_t>(workers_->index()));
  {
    MutexLock lock(&mu_);
    if (workers_->count() < 2 || kept_.size() > kMaxKept) return;
    Question question;
    question.cut = CutOf(repeated.storages);
    if (question.cut != nullptr) {
      CutGraph& cut = *question.cut;
      if (repeated.uses < cut.next_uses || cut.graph.nodes().empty()) {
        return;
      }
      cut.next_uses = kAgain * repeated.uses;
      repeated.graph = cut.graph;
      repeated.notes = cut.notes;
    } else if (member != 0) {
      // The first replica has overflowed, and a plan would cover only the rest.
      return;
    } else {
      if (repeated.graph.ByteSizeLong() <= kMaxGraphBytes) {
        question.graph = repeated.graph;
        question.notes = repeated.notes;
      }
      question.storages = std::move(repeated.storages);
    }
    request.set_number(++last_question_);
    questions_.emplace(last_question_, std::move(question));
    if (questions_.size() > kMaxQuestions) questions_.erase(questions_.begin());
  }
  context_->link->SendGraph(std::move(repeated.graph),
                            std::move(repeated.notes), std::move(request));
}

std::vector<int8_t> StagePlans::ReadMembers(const v1::StageAnswer& answer,
                                            size_t slots) const {
  std::vector<int8_t> members;
  if (static_cast<size_t>(answer.member_of_slot_size()) != slots) {
    log::Warning(
        "ignored a stage plan: it has another number of slots than the graph",
        {{"device", workers_->index()},
         {"graph", answer.plan().fingerprint().substr(0, 12)}});
    return members;
  }
  for (const uint32_t member : answer.member_of_slot()) {
    const bool known =
        member > 0 && member <= static_cast<uint32_t>(workers_->count());
    members.push_back(static_cast<int8_t>(known ? member - 1 : -1));
  }
  return members;
}

bool StagePlans::Apply(const v1::StageAnswer& answer, Question question) {
  const bool again = question.cut != nullptr;
  std::vector<int8_t> members =
      ReadMembers(answer, again ? question.cut->member_of_slot.size()
                                : question.storages.size());
  if (members.empty()) return false;
  if (again) {
    CutGraph& cut = *question.cut;
    // The estimates of the remaining times may have changed.
    cut.order = StageOrder(cut.graph, answer.plan());
    if (members == cut.member_of_slot) return false;
    cut.member_of_slot = std::move(members);
    return true;
  }
  // This question was sent before an answer about another graph with these
  // storages came. One plan suffices.
  if (CutOf(question.storages) != nullptr) return false;
  const auto cut = std::make_shared<CutGraph>();
  cut->graph = std::move(question.graph);
  cut->order = StageOrder(cut->graph, answer.plan());
  cut->notes = std::move(question.notes);
  cut->member_of_slot = std::move(members);
  cut->next_uses = kFirstAgain;
  for (uint32_t slot = 0; slot < question.storages.size(); ++slot) {
    if (cut->member_of_slot[slot] < 0) continue;
    kept_[question.storages[slot]] = {cut, slot};
  }
  return true;
}

void StagePlans::OnAnswer(const v1::StageAnswer& answer) {
  const v1::StagePlan& plan = answer.plan();
  const std::string graph = plan.fingerprint().substr(0, 12);
  bool again = false;
  {
    MutexLock lock(&mu_);
    auto found = questions_.extract(answer.number());
    if (found.empty()) return;
    again = found.mapped().cut != nullptr;
    if (answer.member_of_slot().empty()) {
      log::Info(again ? "a device's stages stay as they are"
                      : "a device's work stays on one worker",
                {{"device", workers_->index()},
                 {"graph", graph},
                 {"why", plan.problem()}});
      return;
    }
    if (!Apply(answer, std::move(found.mapped()))) return;
    count_.fetch_add(1, std::memory_order_release);
  }
  log::Info(again ? "a device's work was cut otherwise"
                  : "a device's work was cut into stages",
            {{"device", workers_->index()},
             {"graph", graph},
             {"stages", Describe(plan)}});
}

std::optional<StageOrder::Use> StagePlans::NextUse(
    absl::Span<const PlacedSlot* const> placed) {
  std::optional<StageOrder::Use> sum;
  MutexLock lock(&mu_);
  for (const PlacedSlot* const slot : placed) {
    if (slot->cut == nullptr) continue;
    const StageOrder::Use use = slot->cut->order.Next(slot->slot);
    if (!sum.has_value()) sum.emplace(StageOrder::Use{false, 0});
    sum->begins_run |= use.begins_run;
    sum->remaining_seconds =
        std::max(sum->remaining_seconds, use.remaining_seconds);
  }
  return sum;
}

int StagePlans::KeeperOf(const RemoteStorage& storage, StorageCopies* copies) {
  const uint32_t plans = count();
  if (copies->plans == plans) return copies->kept_by;
  copies->plans = plans;
  MutexLock lock(&mu_);
  const auto look = [&](const RemoteStorage& copy) {
    const auto found = kept_.find(copy.id());
    if (found != kept_.end()) copies->placed = found->second;
  };
  if (copies->placed.cut == nullptr) {
    // The answer concerns the replica's storage that had the value when the
    // question was sent.
    if (copies->at_home) look(storage);
    for (const StoragePtr& copy : copies->at) {
      if (copy) look(*copy.get());
    }
  }
  copies->kept_by = copies->placed.member();
  return copies->kept_by;
}

void StagePlans::Keep(const RemoteStorage& copy, const PlacedSlot& placed) {
  // A storage without bytes has no id yet that a run could name.
  if (copy.id() == 0) return;
  MutexLock lock(&mu_);
  kept_[copy.id()] = placed;
}

void StagePlans::Forget(const RemoteStorage& copy) {
  if (count() == 0) return;
  MutexLock lock(&mu_);
  kept_.erase(copy.id());
}

void StagePlans::ForgetCopies(const RemoteStorage& storage,
                              const StorageCopies& copies) {
  MutexLock lock(&mu_);
  if (copies.at_home) kept_.erase(storage.id());
  for (const StoragePtr& copy : copies.at) {
    if (copy) kept_.erase(copy->id());
  }
}

}  // namespace djinn
