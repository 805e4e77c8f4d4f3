// Keeps operators' inquiries about what sessions' clients keep against the loss
// of their workers: who was asked, and when an inquiry is given up.
//
// Not thread-safe: the cluster's lock guards it. Answers are handed over
// without that lock, by Wakes.
#ifndef COORDINATOR_TABLES_LINEAGE_INQUIRIES_H_
#define COORDINATOR_TABLES_LINEAGE_INQUIRIES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/recovery.pb.h"

namespace djinn::coordinator {

class LineageInquiries {
 public:
  // Most inquiries at a time.
  static constexpr size_t kMost = 64;
  // Time that a client has to answer, as GetLineage documents.
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  // Called once, from any thread, without locks. A failure is DeadlineExceeded
  // (CLIENT_SILENT), or the status that End() was called with.
  using Done = std::function<void(absl::StatusOr<v1::LineageAnswer>)>;

  // Begins an inquiry and returns the number of its question. Returns
  // ResourceExhausted (TOO_MANY_QUESTIONS), and does not call `done`, when
  // kMost inquiries are open.
  absl::StatusOr<uint64_t> Ask(std::string session_id, absl::Duration now,
                               Done done);
  // Takes the answer of a session's client. Ignores one that was not asked for,
  // or that comes too late.
  void Take(const std::string& session_id, const v1::LineageAnswer& answer,
            Wakes* wakes);
  // Expire() ends the inquiries that have passed their deadline; End() ends all
  // of them with `why`.
  void Expire(absl::Duration now, Wakes* wakes);
  void End(const absl::Status& why, Wakes* wakes);

 private:
  class Inquiry;

  // By the number of the question.
  std::map<uint64_t, std::shared_ptr<Inquiry>> inquiries_;
  uint64_t last_number_ = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_LINEAGE_INQUIRIES_H_
