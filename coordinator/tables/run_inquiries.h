// Inquiries of operators about sessions' runs: which workers are asked, what
// they have answered, and when an inquiry is given up.
//
// An inquiry is for one session and asks all workers that it names, once each.
// It ends with the last answer, or at its deadline, whichever is first; then
// whoever asked is woken with what there is. The question stays in what a
// worker is told until it was answered, so that a stream that breaks in between
// costs nothing but time.
//
// Not thread-safe: the cluster's lock guards it. Answers are handed over
// without that lock, by Wakes.
#ifndef COORDINATOR_TABLES_RUN_INQUIRIES_H_
#define COORDINATOR_TABLES_RUN_INQUIRIES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator {

class RunInquiries {
 public:
  // Operators that wait at a time.
  static constexpr size_t kMost = 64;
  // How long workers have to answer, as ListRuns documents.
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  // By worker id; a failure is Unavailable (WORKER_LOST), DeadlineExceeded
  // (WORKER_SILENT), or what End() was told.
  using Answers = std::map<std::string, absl::StatusOr<v1::RunsAnswer>>;
  // Called once, by any thread, without locks.
  using Done = std::function<void(const Answers&)>;

  struct Asked {
    std::string worker_id;
    // Its stream is open.
    bool connected = false;
  };

  // InvalidArgument (PROTOCOL_VIOLATION) for more than a worker has to say, or
  // texts that are too long.
  static absl::Status Check(const v1::WorkerState& report);

  // Asks the workers. A worker that is not connected counts as having failed;
  // if none is connected, the inquiry is over. ResourceExhausted
  // (TOO_MANY_QUESTIONS); then `done` is not called.
  absl::Status Ask(std::string session_id, const std::vector<Asked>& workers,
                   absl::Duration now, Done done, Wakes* wakes);

  // Adds what the worker is asked.
  void List(const std::string& worker_id, v1::DesiredState* desired) const;
  // Takes the answers of a report. Returns whether it has any: the worker
  // should be told then that the questions are answered.
  bool Take(const std::string& worker_id, const v1::WorkerState& report,
            Wakes* wakes);
  // Gives up those that have waited long enough; all.
  void Expire(absl::Duration now, Wakes* wakes);
  void End(const absl::Status& why, Wakes* wakes);

  size_t size() const { return inquiries_.size(); }

 private:
  class Inquiry;
  using Inquiries = std::map<uint64_t, std::shared_ptr<Inquiry>>;

  // Ends the inquiry: the workers that have not answered failed for `why`.
  // Returns the next inquiry.
  template <typename Why>
  Inquiries::iterator Settle(Inquiries::iterator inquiry, Why why,
                             Wakes* wakes);

  // By question id.
  Inquiries inquiries_;
  uint64_t last_id_ = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_RUN_INQUIRIES_H_
