#include "gpu_worker/session/observe/run_records.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/base/proto_duration.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/profile.pb.h"

namespace djinn::worker {
namespace {

// The most bytes of a failure's texts: PyTorch's may be long.
constexpr size_t kMaxText = 500;

// Copies the first bytes of the text, and no partial character.
void AssignText(absl::string_view text, std::string* out) {
  size_t size = std::min(text.size(), kMaxText);
  if (size < text.size()) {
    // Every byte of a character but the first is 10xxxxxx.
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80)
      --size;
  }
  out->assign(text.data(), size);
}

}  // namespace

void RunRecords::Define(uint64_t id, absl::string_view fingerprint) {
  Fingerprint& kept = fingerprints_[id];
  kept = {};
  std::copy_n(fingerprint.begin(), std::min(fingerprint.size(), kept.size()),
              kept.begin());
}

void RunRecords::Receive(const RunGates::Times& waited) {
  arrivals_.push_back(waited);
}

void RunRecords::SetWaits(size_t place, const RunGates::Times& waited,
                          Record* record) const {
  // A run that was given up while it was about to begin has no waits.
  if (place >= arrivals_.size()) {
    record->waits = {};
    return;
  }
  const RunGates::Times& before = arrivals_[place];
  for (size_t i = 0; i < before.size(); ++i) {
    record->waits[i] = waited[i] - before[i];
  }
}

void RunRecords::Fill(const Waiting& run, size_t place,
                      const RunGates::Times& waited, Record* record) const {
  const v1::Run& message = run.message->run();
  record->number = run.message->sequence();
  record->lane = run.message->lane();
  record->size = message.size();
  record->fast = message.mode() == v1::EXECUTION_MODE_FAST;
  const auto found = fingerprints_.find(message.graph_id());
  if (found == fingerprints_.end()) {
    record->fingerprint.reset();
  } else {
    record->fingerprint = found->second;
  }
  record->arrived = run.arrived;
  record->deadline = run.deadline;
  SetWaits(place, waited, record);
  record->yield_count = 0;
  record->yielded_for = absl::ZeroDuration();
  record->preemptions.clear();
  record->shared_products = 0;
  record->companions.clear();
  record->reason.clear();
}

RunRecords::Record* RunRecords::current() {
  if (place_ == records_.size()) records_.emplace_back();
  return &records_[place_];
}

void RunRecords::Begin(const Waiting& run, v1::Phase phase,
                       const RunGates::Times& waited, absl::Duration now) {
  Record* const record = current();
  Fill(run, 0, waited, record);
  record->begun = true;
  record->began = now;
  record->end = {.state = v1::RunRecord::IN_SERVICE, .phase = phase};
  serving_ = true;
}

void RunRecords::Yield(const RunPeer& first, absl::string_view reason,
                       absl::Duration away) {
  if (!serving_) return;
  Record* const record = current();
  ++record->yield_count;
  record->yielded_for += away;
  std::vector<Preempted>& all = record->preemptions;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Preempted& other) {
        return other.session_id == first.session_id &&
               other.tenant == first.tenant && other.reason == reason;
      });
  if (found != all.end()) {
    // The latest one is dropped last.
    std::rotate(found, std::next(found), all.end());
  } else {
    if (all.size() == kPreemptions) all.erase(all.begin());
    all.push_back(
        {first.tenant, first.session_id, reason, 0, absl::ZeroDuration()});
  }
  ++all.back().count;
  all.back().time += away;
}

void RunRecords::Share(uint64_t products,
                       absl::Span<const std::shared_ptr<const RunPeer>> with) {
  if (!serving_) return;
  Record* const record = current();
  record->shared_products = products;
  const size_t count = std::min(with.size(), kCompanions);
  record->companions.assign(with.begin(),
                            with.begin() + static_cast<ptrdiff_t>(count));
}

bool RunRecords::Finish(const End& end, absl::Duration now,
                        v1::RunRecord* out) {
  if (!serving_) return false;
  serving_ = false;
  Record* const record = current();
  record->ended = now;
  record->end = end;
  if (const v1::ErrorDetail* const failure =
          std::exchange(record->end.failure, nullptr)) {
    AssignText(failure->reason(), &record->reason);
    AssignText(failure->message(), &record->message);
    AssignText(failure->operator_name(), &record->operator_name);
    record->node.reset();
    if (failure->has_node()) record->node = failure->node();
  }
  if (out != nullptr) DescribeOne(*record, now, out);
  KeepCurrent();
  if (!arrivals_.empty()) arrivals_.pop_front();
  return true;
}

void RunRecords::Abandon(absl::Span<const Waiting> waiting,
                         const RunGates::Times& waited, absl::Duration now) {
  const size_t before = serving_ ? 1 : 0;
  // The run in service continues, so its record follows those of the abandoned
  // runs.
  Record serving;
  if (serving_) std::swap(serving, *current());
  const size_t first = waiting.size() > kOver ? waiting.size() - kOver : 0;
  for (size_t i = first; i < waiting.size(); ++i) {
    Record* const record = current();
    Fill(waiting[i], before + i, waited, record);
    record->begun = false;
    record->ended = now;
    record->end = {.state = v1::RunRecord::CANCELLED};
    KeepCurrent();
  }
  if (serving_) std::swap(serving, *current());
  arrivals_.resize(std::min(arrivals_.size(), before));
}

void RunRecords::DescribeOne(const Record& record, absl::Duration now,
                             v1::RunRecord* out) {
  const bool over = record.end.state != v1::RunRecord::IN_SERVICE &&
                    record.end.state != v1::RunRecord::WAITING;
  const absl::Duration until = over ? record.ended : now;
  out->set_number(record.number);
  out->set_lane(record.lane);
  if (record.fingerprint.has_value()) {
    out->set_fingerprint(absl::BytesToHexString(absl::string_view(
        record.fingerprint->data(), record.fingerprint->size())));
  }
  out->set_size(record.size);
  out->set_fast(record.fast);
  out->set_phase(record.end.phase);
  out->set_state(record.end.state);
  *out->mutable_age() =
      ToProtoDuration(std::max(now - record.arrived, absl::ZeroDuration()));
  int64_t waited = 0;
  for (size_t gate = 0; gate < record.waits.size(); ++gate) {
    const int64_t time = record.waits[gate];
    if (time <= 0) continue;
    waited += time;
    v1::RunWait* const wait = out->add_waits();
    wait->set_gate(static_cast<v1::RunGate>(gate));
    *wait->mutable_time() = ToProtoDuration(absl::Nanoseconds(time));
  }
  *out->mutable_waited() = ToProtoDuration(absl::Nanoseconds(waited));
  if (record.begun) {
    *out->mutable_served() =
        ToProtoDuration(std::max(until - record.began, absl::ZeroDuration()));
  }
  if (record.end.planned > absl::ZeroDuration()) {
    *out->mutable_planned() = ToProtoDuration(record.end.planned);
  }
  *out->mutable_device_time() = ToProtoDuration(record.end.device_time);
  if (record.yield_count > 0) {
    out->set_yield_count(record.yield_count);
    *out->mutable_yielded_for() = ToProtoDuration(record.yielded_for);
  }
  for (const Preempted& preempted : record.preemptions) {
    v1::RunPreemption* const preemption = out->add_preemptions();
    preemption->set_tenant(preempted.tenant);
    preemption->set_session_id(preempted.session_id);
    preemption->set_reason(std::string(preempted.reason));
    preemption->set_count(preempted.count);
    *preemption->mutable_time() = ToProtoDuration(preempted.time);
  }
  out->set_shared_products(record.shared_products);
  for (const std::shared_ptr<const RunPeer>& peer : record.companions) {
    v1::RunCompanion* const companion = out->add_companions();
    companion->set_tenant(peer->tenant);
    companion->set_session_id(peer->session_id);
  }
  if (record.deadline != absl::InfiniteDuration()) {
    *out->mutable_deadline() =
        ToProtoDuration(record.deadline - record.arrived);
  }
  if (!record.reason.empty()) {
    v1::RunFailure* const failure = out->mutable_failure();
    failure->set_reason(record.reason);
    failure->set_message(record.message);
    failure->set_operator_name(record.operator_name);
    if (record.node.has_value()) failure->set_node(*record.node);
  }
}

void RunRecords::Describe(
    absl::Span<const Waiting> waiting, const Moment& moment,
    google::protobuf::RepeatedPtrField<v1::RunRecord>* out) const {
  for (size_t i = 0; i < records_.size(); ++i) {
    if (i != place_) DescribeOne(records_[i], moment.now, out->Add());
  }
  // A run that was given up in its middle ends after the runs that waited then.
  std::sort(out->begin(), out->end(),
            [](const v1::RunRecord& a, const v1::RunRecord& b) {
              return a.number() < b.number();
            });
  if (serving_) DescribeOne(records_[place_], moment.now, out->Add());
  const size_t before = serving_ ? 1 : 0;
  for (size_t i = 0; i < waiting.size() && i < kWaiting; ++i) {
    Record record;
    Fill(waiting[i], before + i, moment.waited, &record);
    record.end.state = v1::RunRecord::WAITING;
    v1::RunRecord* const described = out->Add();
    DescribeOne(record, moment.now, described);
    described->set_gate(moment.gate);
    *described->mutable_gate_time() = ToProtoDuration(
        std::max(moment.now - std::max(moment.since, record.arrived),
                 absl::ZeroDuration()));
    described->set_messages_ahead(
        static_cast<uint32_t>(record.number - moment.completed - 1));
  }
}

}  // namespace djinn::worker
