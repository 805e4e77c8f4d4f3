#include "gpu_worker/supervisor/report_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/plain_text.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/lease/lease_verifier.h"
#include "common/trace/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/wire_format_lite.h"

namespace djinn::worker {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr size_t kMaxText = 512;
constexpr size_t kFingerprintBytes = 32;
// No memory moves more bytes per second.
constexpr double kMaxBytesPerSecond = 1e12;
// Leaves room for the sum over all executors.
constexpr uint64_t kMaxNumber = uint64_t{1} << 55;
// ToProtoDuration() clamps longer times.
constexpr int64_t kMaxSeconds =
    std::numeric_limits<int64_t>::max() / 1000000000;
constexpr int kMaxDepth = 16;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("message of an executor: ", what));
}

absl::Status Bad(const FieldDescriptor& field, absl::string_view what) {
  return Bad(absl::StrCat(field.full_name(), " ", what));
}

// Returns how many entries a list may have.
int MostEntries(const FieldDescriptor& field) {
  static const auto* const kMost = new std::map<std::string, int>{
      {"djinn.v1.WorkerState.contents", 1 << 16},
      {"djinn.v1.WorkerState.graphs", 1 << 16},
      {"djinn.v1.WorkerState.sessions", 1 << 16},
      {"djinn.v1.WorkerState.ended_leases", 1 << 16},
      {"djinn.v1.WorkerState.released_lease_ids", 1 << 16},
      {"djinn.v1.WorkerState.forgotten_lease_ids", 1 << 16},
      {"djinn.v1.WorkerState.links", 256},
      {"djinn.v1.RunsAnswer.leases", 1024},
      {"djinn.v1.ExecutorSpans.spans", 512}};
  const auto found = kMost->find(field.full_name());
  return found == kMost->end() ? 64 : found->second;
}

// Returns whether the supervisor never repeats the field unchanged.
bool IsReplaced(const FieldDescriptor& field) {
  return field.full_name() == "djinn.v1.WorkerState.contents" ||
         (field.message_type() != nullptr &&
          field.message_type()->full_name() == "djinn.v1.SignedLease");
}

bool NamesTenant(const FieldDescriptor& field) {
  return field.name() == "tenant" || field.name() == "served_tenant" ||
         field.name() == "last_tenant";
}

absl::Status CheckText(const FieldDescriptor& field, absl::string_view tenant,
                       int index, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  std::string scratch;
  const std::string& text =
      field.is_repeated()
          ? reflection.GetRepeatedStringReference(*message, &field, index,
                                                  &scratch)
          : reflection.GetStringReference(*message, &field, &scratch);
  const size_t most = field.full_name() == "djinn.v1.HeldGraph.fingerprint"
                          ? kFingerprintBytes
                          : kMaxText;
  if (text.size() > most) {
    return Bad(field, absl::StrCat("of ", text.size(), " bytes, at most ", most,
                                   " are allowed"));
  }
  if (field.type() == FieldDescriptor::TYPE_BYTES) return absl::OkStatus();
  if (NamesTenant(field) && !text.empty() && text != tenant) {
    return Bad(field, "is not the executor's tenant");
  }
  std::string cleaned = text;
  // A failure may have several lines.
  ReplaceControls(field.full_name() == "djinn.v1.RunFailure.message", &cleaned);
  if (cleaned == text) return absl::OkStatus();
  if (field.is_repeated()) {
    reflection.SetRepeatedString(message, &field, index, cleaned);
  } else {
    reflection.SetString(message, &field, cleaned);
  }
  return absl::OkStatus();
}

absl::Status CheckDuration(const FieldDescriptor& field,
                           google::protobuf::Duration* duration) {
  if (duration->seconds() > kMaxSeconds || duration->nanos() > 999'999'999) {
    return Bad(field, "is out of range");
  }
  if (duration->seconds() < 0 || duration->nanos() < 0) duration->Clear();
  return absl::OkStatus();
}

absl::Status Check(Message* message, absl::string_view tenant, int depth);

// Checks one entry of a list, or the whole field.
absl::Status CheckEntry(const FieldDescriptor& field, int index,
                        absl::string_view tenant, int depth, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return CheckText(field, tenant, index, message);
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      if (IsReplaced(field)) return absl::OkStatus();
      Message* const part =
          repeated ? reflection.MutableRepeatedMessage(message, &field, index)
                   : reflection.MutableMessage(message, &field);
      auto* const duration =
          google::protobuf::DynamicCastToGenerated<google::protobuf::Duration>(
              part);
      if (duration != nullptr) {
        DJINN_RETURN_IF_ERROR(CheckDuration(field, duration));
      }
      return Check(part, tenant, depth + 1);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int value =
          repeated ? reflection.GetRepeatedEnumValue(*message, &field, index)
                   : reflection.GetEnumValue(*message, &field);
      if (field.enum_type()->FindValueByNumber(value) != nullptr) break;
      return Bad(field, absl::StrCat("has unknown enum value ", value));
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value =
          repeated ? reflection.GetRepeatedDouble(*message, &field, index)
                   : reflection.GetDouble(*message, &field);
      if (std::isfinite(value) && value >= 0) break;
      return Bad(field, "is no such number");
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      // Numbers of fixed size are random ids and hashes.
      if (field.type() != FieldDescriptor::TYPE_UINT64) break;
      const uint64_t value =
          repeated ? reflection.GetRepeatedUInt64(*message, &field, index)
                   : reflection.GetUInt64(*message, &field);
      if (value <= kMaxNumber) break;
      return Bad(field, absl::StrCat("is ", value));
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const float value =
          repeated ? reflection.GetRepeatedFloat(*message, &field, index)
                   : reflection.GetFloat(*message, &field);
      if (std::isfinite(value) && value >= 0) break;
      return Bad(field, "is no such number");
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value =
          repeated ? reflection.GetRepeatedInt64(*message, &field, index)
                   : reflection.GetInt64(*message, &field);
      // Clients choose these, so an honest executor may send any.
      constexpr auto kMost = static_cast<int64_t>(kMaxNumber);
      const int64_t limited = std::clamp(value, -kMost, kMost);
      if (limited == value) break;
      if (repeated) {
        reflection.SetRepeatedInt64(message, &field, index, limited);
      } else {
        reflection.SetInt64(message, &field, limited);
      }
      break;
    }
    // All values of these types are within the bounds.
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_BOOL:
      break;
  }
  return absl::OkStatus();
}

absl::Status Check(Message* message, absl::string_view tenant, int depth) {
  if (depth > kMaxDepth) return Bad("too deep");
  const Reflection& reflection = *message->GetReflection();
  if (!reflection.GetUnknownFields(*message).empty()) {
    return Bad(absl::StrCat("an unknown field in ",
                            message->GetDescriptor()->full_name()));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* const field : fields) {
    int count = 1;
    if (field->is_repeated()) {
      count = reflection.FieldSize(*message, field);
      if (count > MostEntries(*field)) {
        return Bad(*field, absl::StrCat("has ", count, " entries, at most ",
                                        MostEntries(*field), " are allowed"));
      }
    }
    if (IsReplaced(*field)) continue;
    for (int i = 0; i < count; ++i) {
      DJINN_RETURN_IF_ERROR(CheckEntry(*field, i, tenant, depth, message));
    }
  }
  return absl::OkStatus();
}

// Counts down `left` for every message, text and packed list in the stream,
// down to its limit.
bool CountFields(CodedInputStream* in, const Descriptor& type, int depth,
                 size_t* left) {
  if (depth > kMaxDepth || *left == 0) return false;
  --*left;
  for (uint32_t tag; (tag = in->ReadTag()) != 0;) {
    const FieldDescriptor* const field =
        type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    // No message has groups. Skipping one would not count its fields.
    if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) return false;
    const bool delimited =
        wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (!delimited || field == nullptr || field->message_type() == nullptr) {
      if (delimited) {
        if (*left == 0) return false;
        --*left;
      }
      if (!WireFormatLite::SkipField(in, tag)) return false;
      continue;
    }
    int size = 0;
    if (!in->ReadVarintSizeAsInt(&size)) return false;
    const CodedInputStream::Limit limit = in->PushLimit(size);
    if (!CountFields(in, *field->message_type(), depth + 1, left) ||
        in->BytesUntilLimit() != 0) {
      return false;
    }
    in->PopLimit(limit);
  }
  return in->ConsumedEntireMessage();
}

void LimitMemory(uint64_t most, v1::WorkerState* report) {
  v1::MemoryUse* const memory = report->mutable_memory();
  memory->set_storage_bytes(std::min(memory->storage_bytes(), most));
  memory->set_content_bytes(std::min(memory->content_bytes(), most));
  memory->set_idle_content_bytes(std::min(memory->idle_content_bytes(), most));
  memory->set_transfer_bytes(std::min(memory->transfer_bytes(), most));
  memory->set_cache_bytes(std::min(memory->cache_bytes(), most));
  report->set_memory_bytes(std::min(report->memory_bytes(), most));
  for (v1::HeldGraph& graph : *report->mutable_graphs()) {
    graph.set_content_bytes(std::min(graph.content_bytes(), most));
  }
}

void LimitTime(absl::Duration most, google::protobuf::Duration* time) {
  if (FromProtoDuration(*time) > most) *time = ToProtoDuration(most);
}

void LimitTimes(absl::Duration most, v1::WorkerState* report) {
  v1::ExecutionUse* const executed = report->mutable_executed();
  LimitTime(most, executed->mutable_device_time());
  LimitTime(most, executed->mutable_executor_time());
  for (v1::PhaseUse& phase : *executed->mutable_phases()) {
    LimitTime(most, phase.mutable_device_time());
  }
  for (v1::HeldGraph& graph : *report->mutable_graphs()) {
    LimitTime(most, graph.mutable_device_time());
  }
}

void LimitUse(absl::Duration most, v1::LeaseUse* use) {
  LimitTime(most, use->mutable_device_time());
  // Phases add up to the whole.
  absl::Duration left = FromProtoDuration(use->device_time());
  for (v1::PhaseUse& phase : *use->mutable_phases()) {
    LimitTime(left, phase.mutable_device_time());
    left -= FromProtoDuration(phase.device_time());
  }
  const double bytes = absl::ToDoubleSeconds(most) * kMaxBytesPerSecond;
  if (static_cast<double>(use->bytes()) > bytes) {
    use->set_bytes(static_cast<uint64_t>(bytes));
  }
}

void LimitSessionMemory(uint64_t most, v1::SessionUse* use) {
  for (v1::StorageUse* const storages :
       {use->mutable_contents(), use->mutable_storages(),
        use->mutable_generators(), use->mutable_caches()}) {
    storages->set_size_bytes(std::min(storages->size_bytes(), most));
  }
  use->set_outstanding_bytes(std::min(use->outstanding_bytes(), most));
}

// Limits the use of leases and their sessions. Entries for other leases are not
// repeated.
void LimitLeases(const ToldExecutor& told, v1::WorkerState* report) {
  const auto age = [&told](const v1::SignedLease& lease) {
    const auto given = told.leases->find(UncheckedClaims(lease).lease_id());
    return given == told.leases->end() ? absl::ZeroDuration()
                                       : told.now - given->second.since;
  };
  for (v1::HeldSession& held : *report->mutable_sessions()) {
    if (held.has_lease_use()) {
      LimitUse(age(held.lease()), held.mutable_lease_use());
    }
    held.set_storage_bytes(std::min(held.storage_bytes(), told.memory_bytes));
    if (held.has_use()) {
      LimitSessionMemory(told.memory_bytes, held.mutable_use());
    }
  }
  for (v1::EndedLease& ended : *report->mutable_ended_leases()) {
    if (ended.has_use()) LimitUse(age(ended.lease()), ended.mutable_use());
  }
}

// Keeps one answer to each open question, with the leases of its session.
void KeepAnswers(const ToldExecutor& told, v1::WorkerState* report) {
  std::set<uint64_t> answered;
  google::protobuf::RepeatedPtrField<v1::RunsAnswer> kept;
  for (v1::RunsAnswer& answer : *report->mutable_runs_answers()) {
    const auto asked = told.questions->find(answer.question_id());
    if (asked == told.questions->end() ||
        !answered.insert(answer.question_id()).second) {
      continue;
    }
    v1::RunsAnswer* const added = kept.Add();
    added->set_question_id(answer.question_id());
    for (v1::LeaseRuns& lease : *answer.mutable_leases()) {
      const auto given = told.leases->find(lease.lease_id());
      if (given == told.leases->end() ||
          given->second.session_id != asked->second) {
        continue;
      }
      *added->add_leases() = std::move(lease);
    }
  }
  report->mutable_runs_answers()->Swap(&kept);
}

}  // namespace

absl::Status CheckNesting(absl::string_view bytes, const Descriptor& type,
                          size_t most) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  size_t left = most;
  if (CountFields(&in, type, 0, &left)) return absl::OkStatus();
  return Bad(
      left == 0 ? absl::StrCat("more than ", most, " messages and texts in one")
                : "the bytes are no message");
}

absl::Status CheckFields(Message* message, absl::string_view tenant) {
  return Check(message, tenant, 0);
}

namespace {

constexpr char kTenantKey[] = "djinn.tenant";
constexpr char kWorkerKey[] = "djinn.worker";

absl::Status CheckSpan(const Span& span) {
  const size_t parent = span.parent_span_id().size();
  if (span.trace_id().size() != 16 || span.span_id().size() != 8 ||
      (parent != 0 && parent != 8)) {
    return Bad("an id of a span that has a wrong size");
  }
  if (span.name().empty() || span.name().size() > kMaxSpanText ||
      span.status().message().size() > kMaxSpanText) {
    return Bad("a text of a span that is missing or too long");
  }
  if (span.start_time_unix_nano() > span.end_time_unix_nano()) {
    return Bad("a span that ends before it begins");
  }
  if (span.events_size() > 0 || span.links_size() > 0 ||
      !span.trace_state().empty() || span.dropped_attributes_count() > 0 ||
      span.dropped_events_count() > 0 || span.dropped_links_count() > 0 ||
      span.flags() != 0) {
    return Bad("a part of a span that executors do not send");
  }
  if (span.attributes_size() > kMaxSpanAttributes) {
    return Bad("a span with too many attributes");
  }
  if (span.ByteSizeLong() > kMaxSpanBytes)
    return Bad("a span that is too large");
  for (const auto& attribute : span.attributes()) {
    const auto& value = attribute.value();
    if (!absl::StartsWith(attribute.key(), "djinn.") ||
        attribute.key().size() > kMaxSpanText ||
        value.string_value().size() > kMaxSpanText ||
        !(value.has_string_value() || value.has_int_value() ||
          value.has_double_value())) {
      return Bad("an attribute of a span that executors do not send");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSpans(const SpanSource& source, v1::ExecutorSpans* spans) {
  DJINN_RETURN_IF_ERROR(CheckFields(spans, source.tenant));
  for (Span& span : *spans->mutable_spans()) {
    DJINN_RETURN_IF_ERROR(CheckSpan(span));
    auto& attributes = *span.mutable_attributes();
    attributes.erase(std::remove_if(attributes.begin(), attributes.end(),
                                    [](const auto& attribute) {
                                      return attribute.key() == kTenantKey ||
                                             attribute.key() == kWorkerKey;
                                    }),
                     attributes.end());
    AddText(kTenantKey, source.tenant, &span);
    AddText(kWorkerKey, source.worker_id, &span);
  }
  return absl::OkStatus();
}

absl::Status CheckReport(const ToldExecutor& told, v1::WorkerState* report) {
  for (const v1::PeerLink& link : report->links()) {
    if (!told.workers->contains(link.worker_id())) {
      return Bad("a link to a worker that the coordinator has not named");
    }
  }
  LimitMemory(told.memory_bytes, report);
  LimitTimes(told.age, report);
  LimitLeases(told, report);
  KeepAnswers(told, report);
  return absl::OkStatus();
}

}  // namespace djinn::worker
