// Keeps operators' inquiries about sessions' runs: which workers are asked,
// what they have answered, and when an inquiry is given up.
//
// An inquiry is about one session and asks each of the workers that it names
// once. It ends with the last answer or at its deadline, whichever is first.
// The operator's call then gets the answers that have arrived. A question stays
// in the messages to a worker until the worker has answered it, so a stream
// that breaks in between costs nothing but time.
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
  // Most inquiries at a time.
  static constexpr size_t kMost = 64;
  // Time that workers have to answer, as ListRuns documents.
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  // Answers by worker id. A failure is Unavailable (WORKER_LOST),
  // DeadlineExceeded (WORKER_SILENT), or the status that End() was called with.
  using Answers = std::map<std::string, absl::StatusOr<v1::RunsAnswer>>;
  // Called once, from any thread, without locks.
  using Done = std::function<void(const Answers&)>;

  struct Asked {
    std::string worker_id;
    // True when the worker's stream is open.
    bool connected = false;
  };

  // Returns InvalidArgument (PROTOCOL_VIOLATION) for a report with more answers
  // than a worker can have, or texts that are too long.
  static absl::Status Check(const v1::WorkerState& report);

  // Asks the workers. A worker that is not connected counts as having failed;
  // if none is connected, the inquiry is over. Returns ResourceExhausted
  // (TOO_MANY_QUESTIONS), and does not call `done`, when kMost inquiries are
  // open.
  absl::Status Ask(std::string session_id, const std::vector<Asked>& workers,
                   absl::Duration now, Done done, Wakes* wakes);

  // Adds the worker's open questions to a message for it.
  void List(const std::string& worker_id, v1::DesiredState* desired) const;
  // Takes the answers of a report. Returns whether it has any; the next message
  // should then go out soon, since it no longer lists those questions.
  bool Take(const std::string& worker_id, const v1::WorkerState& report,
            Wakes* wakes);
  // Expire() ends the inquiries that have passed their deadline; End() ends all
  // of them with `why`.
  void Expire(absl::Duration now, Wakes* wakes);
  void End(const absl::Status& why, Wakes* wakes);

  size_t size() const { return inquiries_.size(); }

 private:
  class Inquiry;
  using Inquiries = std::map<uint64_t, std::shared_ptr<Inquiry>>;

  // Ends the inquiry: each worker that has not answered fails with what `why`
  // returns. Returns the next inquiry.
  template <typename Why>
  Inquiries::iterator Settle(Inquiries::iterator inquiry, Why why,
                             Wakes* wakes);

  // By question id.
  Inquiries inquiries_;
  uint64_t last_id_ = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_RUN_INQUIRIES_H_
