// Measures how soon a program that generates reads its results: the first one
// from the arrival of its prompt, and each later one from the one before. Runs
// whose phase is neither prefill nor decode count as no generation.
//
// Not thread-safe.
#ifndef GPU_WORKER_SESSION_OBSERVE_RESULT_TIMES_H_
#define GPU_WORKER_SESSION_OBSERVE_RESULT_TIMES_H_

#include <optional>

#include "absl/time/time.h"
#include "djinn/v1/notes.pb.h"

namespace djinn::worker {

class ResultTimes {
 public:
  struct Result {
    // True for the first result of a prompt.
    bool first = false;
    absl::Duration took;
  };

  // Notes the end of a run of this phase, which arrived at `arrived`.
  void NoteRun(v1::Phase phase, absl::Duration arrived) {
    fresh_ = phase == v1::PHASE_LLM_PREFILL || phase == v1::PHASE_LLM_DECODE;
    if (!fresh_) {
      asked_.reset();
      last_.reset();
    } else if (phase == v1::PHASE_LLM_PREFILL) {
      // A prompt may take several runs.
      if (!asked_.has_value()) asked_ = arrived;
      last_.reset();
    }
  }

  // Returns whether a value that is read now is a result: the first one behind
  // a run.
  bool expects_result() const { return fresh_; }
  std::optional<Result> NoteResult(absl::Duration now) {
    std::optional<Result> result;
    if (asked_.has_value()) {
      result = {.first = true, .took = now - *asked_};
    } else if (last_.has_value()) {
      result = {.took = now - *last_};
    }
    asked_.reset();
    last_ = now;
    fresh_ = false;
    return result;
  }

 private:
  bool fresh_ = false;
  std::optional<absl::Duration> asked_;
  std::optional<absl::Duration> last_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_RESULT_TIMES_H_
