#include "client_lib/session/device/answers/answer_table.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/srg/graph.h"
#include "common/srg/proto_codec.h"

namespace djinn {

bool HasCode(const v1::ErrorDetail& detail) {
  return detail.code() >= 1 && detail.code() <= 16;
}

void AddUse(const v1::MeteredUse& use, v1::MeteredUse* sum) {
  sum->set_device_nanoseconds(sum->device_nanoseconds() +
                              use.device_nanoseconds());
  sum->set_received_bytes(sum->received_bytes() + use.received_bytes());
  sum->set_sent_bytes(sum->sent_bytes() + use.sent_bytes());
  sum->set_runs(sum->runs() + use.runs());
}

void AnswerTable::Register(EncodedMessage* message) {
  const v1::Ordered& ordered = message->request->ordered();
  const uint64_t sequence = ordered.sequence();
  if (ordered.has_run()) ++statistics_.runs;
  if (ordered.has_define_graph()) ++statistics_.graphs_defined;
  if (ordered.install().has_inline_value()) ++statistics_.uploads_inline;
  if (ordered.install().has_content()) ++statistics_.uploads_sent;
  if (!message->sites.empty()) {
    call_sites_.Add(sequence, std::move(message->sites));
  }
  Registration& registration = message->registration;
  if (auto* defined = std::get_if<DefinedGraph>(&registration)) {
    defining_[defined->id] = std::move(defined->fingerprint);
  } else if (auto* metadata =
                 std::get_if<std::shared_ptr<MetadataWait>>(&registration)) {
    metadata_[sequence] = std::move(*metadata);
  } else if (auto* read =
                 std::get_if<std::shared_ptr<ReadWait>>(&registration)) {
    RegisterRead(ordered, std::move(*read));
  } else if (auto* meter =
                 std::get_if<std::shared_ptr<MeterWait>>(&registration)) {
    meters_[sequence] = std::move(*meter);
  } else if (auto* model =
                 std::get_if<std::shared_ptr<ModelWait>>(&registration)) {
    RegisterModel(ordered, std::move(*model));
  } else if (auto* profile =
                 std::get_if<std::shared_ptr<ProfileWait>>(&registration)) {
    (*profile)->sequence = sequence;
    last_report_ = std::move(*profile);
  }
}

void AnswerTable::RegisterRead(const v1::Ordered& ordered,
                               std::shared_ptr<ReadWait> wait) {
  wait->transfer_id = ordered.read().transfer_id();
  wait->sequence = ordered.sequence();
  if (wait->transfer_id != 0) wait->chunks.emplace(wait->bytes);
  reads_.AddSent(ordered.sequence(), std::move(wait));
}

void AnswerTable::RegisterModel(const v1::Ordered& ordered,
                                std::shared_ptr<ModelWait> wait) {
  wait->model_id = ordered.register_model().model_id();
  if (!ordered.register_model().storages().empty()) {
    models_[ordered.sequence()] = std::move(wait);
    return;
  }
  // All storages are gone, so that no answer comes.
  wait->done = true;
  wait->changed.SignalAll();
}

absl::Status AnswerTable::TakeMetadata(const v1::RunMetadata& reply) {
  auto found = metadata_.extract(reply.sequence());
  if (found.empty()) {
    return Violation(absl::StrCat("metadata of ", reply.sequence(),
                                  ", which asked for none"));
  }
  MetadataWait& wait = *found.mapped();
  if (reply.has_error()) {
    wait.error = call_sites_.StatusOf(reply.error());
    if (!HasCode(reply.error()))
      return Violation("a metadata error without a code");
  } else {
    const auto count = static_cast<size_t>(reply.results_size());
    if (count != wait.expected ||
        reply.storage_bytes_size() != reply.results_size()) {
      return Violation(absl::StrCat(
          "metadata of ", count, " results and ", reply.storage_bytes_size(),
          " storages for ", wait.expected, " unknown results"));
    }
    for (int i = 0; i < reply.results_size(); ++i) {
      const absl::StatusOr<srg::TensorView> view =
          srg::FromProto(reply.results(i));
      if (!view.ok()) return Violation(view.status().message());
      const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(*view);
      if (!extent.ok()) return Violation(extent.status().message());
      if (*extent > reply.storage_bytes(i)) {
        return Violation(absl::StrCat("a result of ", *extent,
                                      " bytes in a storage of ",
                                      reply.storage_bytes(i)));
      }
      wait.results.push_back({*view, reply.storage_bytes(i)});
    }
  }
  wait.done = true;
  wait.changed.SignalAll();
  return absl::OkStatus();
}

absl::Status AnswerTable::TakeAdmitted(const v1::Admitted& admitted,
                                       const v1::Lease& lease) {
  const auto found = defining_.find(admitted.graph_id());
  if (found == defining_.end()) {
    return Violation(absl::StrCat("graph ", admitted.graph_id(),
                                  " was answered and not defined"));
  }
  const std::string own = std::move(found->second);
  defining_.erase(found);
  if (admitted.has_refused()) {
    if (HasCode(admitted.refused())) return absl::OkStatus();
    return Violation("a refused graph without a code");
  }
  if (admitted.cache_hit()) ++statistics_.plan_cache_hits;
  admitted_.push_back(admitted.graph_id());
  if (admitted.fingerprint() == own) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInternal, "FINGERPRINT_MISMATCH",
      absl::StrCat("worker ", lease.worker_id(), " at ", lease.worker_address(),
                   " understood graph ", admitted.graph_id(), " as ",
                   absl::BytesToHexString(admitted.fingerprint()),
                   ", it was sent as ", absl::BytesToHexString(own)),
      {{"worker", lease.worker_id()}});
}

absl::Status AnswerTable::TakeRead(uint64_t number, v1::ReadReply* reply,
                                   bool* held) {
  // Abandoned reads stay in the table, too.
  const std::shared_ptr<ReadWait> wait = reads_.TakeAnswered(reply->sequence());
  if (wait == nullptr) {
    return Violation(absl::StrCat("an answer to ", reply->sequence(),
                                  ", which reads nothing or was answered"));
  }
  switch (reply->outcome_case()) {
    case v1::ReadReply::kValue:
      if (reply->value().size() != wait->bytes) {
        return Violation(absl::StrCat("a value of ", reply->value().size(),
                                      " bytes for a read of ", wait->bytes));
      }
      wait->value.emplace(std::move(*reply->mutable_value()));
      reads_.Finish(wait.get());
      break;
    case v1::ReadReply::kBulkBytes:
      if (wait->transfer_id == 0 || reply->bulk_bytes() != wait->bytes) {
        return Violation(absl::StrCat(
            reply->bulk_bytes(), " bulk bytes for a read of ", wait->bytes));
      }
      // Some or all bytes may have arrived already, because the streams are not
      // ordered.
      wait->announced = true;
      wait->reply_number = number;
      *held = !wait->chunks->complete();
      if (!*held) reads_.Finish(wait.get());
      break;
    case v1::ReadReply::kError:
      if (!HasCode(reply->error()))
        return Violation("a read error without a code");
      wait->error = call_sites_.StatusOf(reply->error());
      reads_.Finish(wait.get());
      break;
    case v1::ReadReply::kHash:
      return Violation("a hash instead of a value");
    case v1::ReadReply::OUTCOME_NOT_SET:
      return Violation("a read reply without an outcome");
  }
  if (wait->done && wait->transfer_id != 0) {
    reads_.EraseBulk(wait->transfer_id);
  }
  return absl::OkStatus();
}

absl::Status AnswerTable::TakeMetered(const v1::Metered& metered) {
  const auto found = meters_.extract(metered.sequence());
  if (found.empty()) {
    return Violation("said what was used, which nobody asked");
  }
  MeterWait& wait = *found.mapped();
  wait.use = metered.use();
  AddUse(used_elsewhere_, &wait.use);
  wait.done = true;
  wait.changed.SignalAll();
  return absl::OkStatus();
}

absl::Status AnswerTable::TakeModel(const v1::ModelRegistered& registered) {
  if (registered.has_refused() && !HasCode(registered.refused())) {
    return Violation("a refused model without a code");
  }
  const auto found = models_.extract(registered.sequence());
  if (found.empty()) {
    return Violation("answered for a model, which nobody registers");
  }
  ModelWait& wait = *found.mapped();
  if (registered.has_refused()) {
    wait.refusal = StatusFromDetail(registered.refused());
  }
  wait.done = true;
  wait.changed.SignalAll();
  return absl::OkStatus();
}

void AnswerTable::TakeReport(const v1::ProfileReport& report) {
  if (last_report_ == nullptr || report.sequence() != last_report_->sequence) {
    return;
  }
  last_report_->done = true;
  last_report_->changed.SignalAll();
  last_report_.reset();
}

void AnswerTable::BeginAnew(const v1::MeteredUse& use) {
  AddUse(use, &used_elsewhere_);
  admitted_.clear();
  defining_.clear();
  call_sites_.BeginAnew();
}

Unanswered AnswerTable::Forget() {
  Unanswered waits;
  for (auto& [sequence, wait] : meters_) {
    waits.meters.push_back(std::move(wait));
  }
  for (auto& [sequence, wait] : models_) {
    waits.models.push_back(std::move(wait));
  }
  Clear();
  BeginAnew({});
  return waits;
}

void AnswerTable::Clear() {
  metadata_.clear();
  defining_.clear();
  meters_.clear();
  models_.clear();
  last_report_.reset();
  reads_.Clear();
}

void AnswerTable::AddStatistics(Statistics* sum) const {
  sum->runs += statistics_.runs;
  sum->graphs_defined += statistics_.graphs_defined;
  sum->plan_cache_hits += statistics_.plan_cache_hits;
  sum->uploads_inline += statistics_.uploads_inline;
  sum->uploads_sent += statistics_.uploads_sent;
}

}  // namespace djinn
