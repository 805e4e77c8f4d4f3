// Measures how soon a program that generates reads its results: the first one
// from the arrival of its prompt, and each later one from the one before. Runs
// of other known phases end a generation.
//
// The phase of a graph is unknown until the coordinator has analyzed it, about
// a second after its first run, and the prompts of a service may all have
// graphs of their own. So the first run of a graph whose phase is unknown may
// be a prompt. The value that is read behind it counts as its first result once
// a decoding run follows.
//
// Not thread-safe.
#ifndef GPU_WORKER_SESSION_OBSERVE_RESULT_TIMES_H_
#define GPU_WORKER_SESSION_OBSERVE_RESULT_TIMES_H_

#include <optional>
#include <utility>

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

  // Notes the end of a run of this phase, which arrived at `arrived`. `first`
  // is whether it is the first run of its graph. Returns the first result of an
  // earlier run if that turns out to have been a prompt.
  std::optional<Result> NoteRun(v1::Phase phase, absl::Duration arrived,
                                bool first) {
    if (phase == v1::PHASE_UNSPECIFIED) {
      if (first && !fresh_ && !maybe_.has_value())
        maybe_ = Unknown{.arrived = arrived};
      return std::nullopt;
    }
    const std::optional<Unknown> maybe = std::exchange(maybe_, std::nullopt);
    fresh_ = phase == v1::PHASE_LLM_PREFILL || phase == v1::PHASE_LLM_DECODE;
    if (!fresh_) {
      asked_.reset();
      last_.reset();
    } else if (phase == v1::PHASE_LLM_PREFILL) {
      // A prompt may take several runs.
      if (!asked_.has_value()) asked_ = arrived;
      last_.reset();
    } else if (maybe.has_value() && maybe->read.has_value()) {
      last_ = maybe->read;
      return Result{.first = true, .took = *maybe->read - maybe->arrived};
    }
    return std::nullopt;
  }

  // Returns whether a value that is read now may be a result: the first one
  // behind a run.
  bool expects_result() const {
    return fresh_ || (maybe_.has_value() && !maybe_->read.has_value());
  }
  // Must only be called if a result is expected.
  std::optional<Result> NoteResult(absl::Duration now) {
    if (!fresh_) {
      maybe_->read = now;
      return std::nullopt;
    }
    maybe_.reset();
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
  // The first run of a graph whose phase is unknown.
  struct Unknown {
    absl::Duration arrived;
    // The time at which a value was read behind it.
    std::optional<absl::Duration> read = std::nullopt;
  };

  bool fresh_ = false;
  std::optional<Unknown> maybe_;
  std::optional<absl::Duration> asked_;
  std::optional<absl::Duration> last_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_RESULT_TIMES_H_
