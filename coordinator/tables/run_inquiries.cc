#include "coordinator/tables/run_inquiries.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "coordinator/tables/errors.h"

namespace djinn::coordinator {
namespace {

// The most answers in one report, which answers every question once.
constexpr int kMaxAnswers = static_cast<int>(RunInquiries::kMost);
// The most leases of one session at one worker.
constexpr int kMaxLeases = 1024;
// The most runs of one lease: many more than a worker keeps.
constexpr int kMaxRuns = 64;
constexpr int kMaxParts = 64;
constexpr size_t kMaxText = 4096;

absl::Status CheckCount(absl::string_view what, int count, int most) {
  if (count <= most) return absl::OkStatus();
  return Violation(
      absl::StrCat(count, " ", what, ": at most ", most, " are allowed"));
}

absl::Status CheckText(absl::string_view what, absl::string_view text) {
  if (text.size() <= kMaxText) return absl::OkStatus();
  return Violation(absl::StrCat(what, " of ", text.size(), " bytes: at most ",
                                kMaxText, " are allowed"));
}

absl::Status Check(const v1::RunRecord& run) {
  DJINN_RETURN_IF_ERROR(
      CheckCount("waits of a run", run.waits_size(), kMaxParts));
  DJINN_RETURN_IF_ERROR(
      CheckCount("preemptions of a run", run.preemptions_size(), kMaxParts));
  DJINN_RETURN_IF_ERROR(
      CheckCount("companions of a run", run.companions_size(), kMaxParts));
  DJINN_RETURN_IF_ERROR(CheckText("a fingerprint", run.fingerprint()));
  DJINN_RETURN_IF_ERROR(CheckText("a failure", run.failure().message()));
  DJINN_RETURN_IF_ERROR(CheckText("a reason", run.failure().reason()));
  DJINN_RETURN_IF_ERROR(
      CheckText("an operator", run.failure().operator_name()));
  const auto check = [](const v1::RunPreemption& preemption) -> absl::Status {
    DJINN_RETURN_IF_ERROR(CheckText("a tenant", preemption.tenant()));
    DJINN_RETURN_IF_ERROR(CheckText("a session", preemption.session_id()));
    return CheckText("a reason", preemption.reason());
  };
  DJINN_RETURN_IF_ERROR(check(run.preempted_by()));
  for (const v1::RunPreemption& preemption : run.preemptions()) {
    DJINN_RETURN_IF_ERROR(check(preemption));
  }
  for (const v1::RunCompanion& companion : run.companions()) {
    DJINN_RETURN_IF_ERROR(CheckText("a tenant", companion.tenant()));
    DJINN_RETURN_IF_ERROR(CheckText("a session", companion.session_id()));
  }
  return absl::OkStatus();
}

absl::Status WorkerLost(const std::string& worker_id) {
  return MakeError(absl::StatusCode::kUnavailable, "WORKER_LOST",
                   absl::StrCat("worker ", worker_id,
                                " is not connected: what it knows of runs "
                                "cannot be asked for"),
                   {{"worker", worker_id}});
}

absl::Status WorkerSilent(const std::string& worker_id) {
  return MakeError(
      absl::StatusCode::kDeadlineExceeded, "WORKER_SILENT",
      absl::StrCat("worker ", worker_id, " was asked and has not answered for ",
                   absl::FormatDuration(RunInquiries::kPatience),
                   ": it is busy or about to be lost"),
      {{"worker", worker_id}});
}

}  // namespace

// An operator's call that waits for answers.
class RunInquiries::Inquiry : public Waker {
 public:
  Inquiry(std::string session, absl::Duration end, Done call)
      : session_id(std::move(session)), deadline(end), done_(std::move(call)) {}

  // Called once, after the inquiry was removed.
  void Wake() override { done_(answers); }

  bool Awaits(const std::string& worker_id) const {
    const auto found = awaited.find(worker_id);
    return found != awaited.end() && found->second;
  }
  void Answer(const std::string& worker_id,
              absl::StatusOr<v1::RunsAnswer> answer) {
    awaited[worker_id] = false;
    answers.insert_or_assign(worker_id, std::move(answer));
  }
  bool over() const { return answers.size() == awaited.size(); }

  const std::string session_id;
  const absl::Duration deadline;
  // True for each worker that has yet to answer.
  std::map<std::string, bool> awaited;
  Answers answers;

 private:
  const Done done_;
};

absl::Status RunInquiries::Check(const v1::WorkerState& report) {
  DJINN_RETURN_IF_ERROR(
      CheckCount("answers", report.runs_answers_size(), kMaxAnswers));
  for (const v1::RunsAnswer& answer : report.runs_answers()) {
    DJINN_RETURN_IF_ERROR(
        CheckCount("leases of an answer", answer.leases_size(), kMaxLeases));
    for (const v1::LeaseRuns& lease : answer.leases()) {
      DJINN_RETURN_IF_ERROR(
          CheckCount("runs of a lease", lease.runs_size(), kMaxRuns));
      DJINN_RETURN_IF_ERROR(CheckText("a lease id", lease.lease_id()));
      DJINN_RETURN_IF_ERROR(CheckText("a worker id", lease.wait().worker_id()));
      DJINN_RETURN_IF_ERROR(
          CheckText("a tenant", lease.wait().served_tenant()));
      DJINN_RETURN_IF_ERROR(
          CheckText("a session", lease.wait().served_session_id()));
      for (const v1::RunRecord& run : lease.runs()) {
        DJINN_RETURN_IF_ERROR(coordinator::Check(run));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RunInquiries::Ask(std::string session_id,
                               const std::vector<Asked>& workers,
                               absl::Duration now, Done done, Wakes* wakes) {
  if (inquiries_.size() >= kMost) {
    return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_QUESTIONS",
                     absl::StrCat(kMost,
                                  " questions about runs wait for their "
                                  "answers, and no more may"));
  }
  auto inquiry = std::make_shared<Inquiry>(std::move(session_id),
                                           now + kPatience, std::move(done));
  for (const Asked& worker : workers) {
    inquiry->awaited[worker.worker_id] = true;
    if (!worker.connected) {
      inquiry->Answer(worker.worker_id, WorkerLost(worker.worker_id));
    }
  }
  if (inquiry->over()) {
    wakes->Add(std::move(inquiry));
  } else {
    inquiries_.emplace(++last_id_, std::move(inquiry));
  }
  return absl::OkStatus();
}

void RunInquiries::List(const std::string& worker_id,
                        v1::DesiredState* desired) const {
  for (const auto& [id, inquiry] : inquiries_) {
    if (!inquiry->Awaits(worker_id)) continue;
    v1::RunsQuestion* const question = desired->add_runs_questions();
    question->set_question_id(id);
    question->set_session_id(inquiry->session_id);
  }
}

bool RunInquiries::Take(const std::string& worker_id,
                        const v1::WorkerState& report, Wakes* wakes) {
  for (const v1::RunsAnswer& answer : report.runs_answers()) {
    const auto found = inquiries_.find(answer.question_id());
    // The question is another worker's, or was given up meanwhile.
    if (found == inquiries_.end() || !found->second->Awaits(worker_id)) {
      continue;
    }
    found->second->Answer(worker_id, answer);
    if (!found->second->over()) continue;
    wakes->Add(std::move(found->second));
    inquiries_.erase(found);
  }
  return report.runs_answers_size() > 0;
}

template <typename Why>
RunInquiries::Inquiries::iterator RunInquiries::Settle(
    Inquiries::iterator inquiry, Why why, Wakes* wakes) {
  for (const auto& [worker_id, awaited] : inquiry->second->awaited) {
    if (awaited) inquiry->second->answers.emplace(worker_id, why(worker_id));
  }
  wakes->Add(std::move(inquiry->second));
  return inquiries_.erase(inquiry);
}

void RunInquiries::Expire(absl::Duration now, Wakes* wakes) {
  for (auto it = inquiries_.begin(); it != inquiries_.end();) {
    if (now < it->second->deadline) {
      ++it;
    } else {
      it = Settle(it, WorkerSilent, wakes);
    }
  }
}

void RunInquiries::End(const absl::Status& why, Wakes* wakes) {
  for (auto it = inquiries_.begin(); it != inquiries_.end();) {
    it = Settle(it, [&](const std::string&) { return why; }, wakes);
  }
}

}  // namespace djinn::coordinator
