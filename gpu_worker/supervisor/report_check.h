// Checks the messages of executors, before the supervisor repeats any part of
// them to the coordinator, to operators or in logs.
//
// A tenant that finds a hole in a kernel controls its executor, which then may
// send anything. If a message is one that no executor of this program sends,
// the check returns an error, and the supervisor ends the executor. An honest
// executor may send odd values because of its client, or because it does not
// know of a change yet: the supervisor replaces or omits these values.
//
// The bounds depend on the types of fields, so that fields that are added later
// are bounded, too. Numbers of fixed size are random ids and hashes, and have
// no bounds.
#ifndef GPU_WORKER_SUPERVISOR_REPORT_CHECK_H_
#define GPU_WORKER_SUPERVISOR_REPORT_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "djinn/v1/supervision.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "google/protobuf/message.h"
#include "gpu_worker/supervisor/relay.h"

namespace djinn::worker {

// Size of the largest message of an executor that has no lease, and what each
// lease adds to that.
inline constexpr size_t kMaxReportBytes = size_t{8} << 20;
inline constexpr size_t kMoreBytesPerLease = size_t{4} << 10;
// Most messages, texts and packed lists within a message, and what each lease
// adds to that. Full lists of contents and graphs have some 330,000.
inline constexpr size_t kMaxNestedFields = 600'000;
inline constexpr size_t kMoreFieldsPerLease = 128;

// The facts about an executor that decide what it may report.
struct ToldExecutor {
  // Its tenant; empty for the spare executor.
  std::string tenant;
  // Memory that the executor was given, and the time since it was started.
  uint64_t memory_bytes = 0;
  absl::Duration age;
  absl::Duration now;
  // Its leases.
  const RelayedLeases* leases = nullptr;
  // Session ids by the ids of open questions that it was asked.
  const std::map<uint64_t, std::string>* questions = nullptr;
  // Workers that the coordinator has named.
  const std::set<std::string>* workers = nullptr;
};

// Returns InvalidArgument when the encoded message of type `type` holds more
// than `most` messages, texts and packed lists, holds a group, or is cut off.
// Parsing such bytes would take up to a hundred times their size.
absl::Status CheckNesting(absl::string_view bytes,
                          const google::protobuf::Descriptor& type,
                          size_t most);

// Checks every field of the message, and the fields of messages within. Returns
// InvalidArgument, with the field's name, for texts of more than 512 bytes,
// fingerprints of more than 32, lists that are too long, numbers beyond 2^55,
// times beyond 292 years, and values that do not exist. Replaces control
// characters in texts, and times below 0. Limits signed numbers to 2^55. Does
// not check fields that the supervisor never repeats: leases and contents.
absl::Status CheckFields(google::protobuf::Message* message,
                         absl::string_view tenant);

// The sender of spans.
struct SpanSource {
  std::string tenant;
  std::string worker_id;
};
// Checks the spans of an executor with CheckFields(). Also returns
// InvalidArgument for ids of a wrong size, for more attributes or longer texts
// than span.h allows, for attributes that are not Djinn's, and for parts of a
// span that executors do not send. Replaces the tenant and the worker of the
// spans by those of `source`.
absl::Status CheckSpans(const SpanSource& source, v1::ExecutorSpans* spans);

// Checks a report that CheckFields() has accepted. Returns InvalidArgument when
// it names a link to a worker that the executor cannot know. Removes answers to
// questions that are not open, and answers about sessions that are not the
// tenant's. Limits sizes to the executor's memory, device times to its age, and
// the use of a lease to the time since the supervisor gave it.
absl::Status CheckReport(const ToldExecutor& told, v1::WorkerState* report);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_REPORT_CHECK_H_
