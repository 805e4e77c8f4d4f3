#include "gpu_worker/core/processor_watch.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/leave_processor.h"

namespace djinn::worker {
namespace {

class LinuxProcessorThread final : public ProcessorThread {
 public:
  LinuxProcessorThread()
      : schedstat_(open(
            absl::StrCat("/proc/self/task/", syscall(SYS_gettid), "/schedstat")
                .c_str(),
            O_RDONLY | O_CLOEXEC)) {}

  ~LinuxProcessorThread() override {
    if (schedstat_ >= 0) close(schedstat_);
  }

  int Processor() override { return sched_getcpu(); }

  // The file holds: nanoseconds run, nanoseconds waited, turns.
  std::optional<absl::Duration> Waited() override {
    char text[96];
    const ssize_t size =
        schedstat_ < 0 ? -1 : pread(schedstat_, text, sizeof(text), 0);
    if (size <= 0) return std::nullopt;
    absl::string_view rest(text, static_cast<size_t>(size));
    const size_t begin = rest.find(' ');
    if (begin == absl::string_view::npos) return std::nullopt;
    rest.remove_prefix(begin + 1);
    int64_t nanoseconds;
    if (!absl::SimpleAtoi(rest.substr(0, rest.find(' ')), &nanoseconds)) {
      return std::nullopt;
    }
    return absl::Nanoseconds(nanoseconds);
  }

  void Leave() override { LeaveProcessor(); }

 private:
  const int schedstat_;
};

}  // namespace

std::unique_ptr<ProcessorThread> OwnProcessorThread() {
  return std::make_unique<LinuxProcessorThread>();
}

bool ProcessorWatch::NoteTurn(absl::Duration now) {
  const int processor = thread_->Processor();
  if (processor != processor_) {
    // What it waited for the other one says nothing about this one.
    processor_ = processor;
    turns_ = 0;
    waited_ = thread_->Waited();
    return false;
  }
  if (++turns_ < kTurns) return false;
  turns_ = 0;
  const std::optional<absl::Duration> before = waited_;
  waited_ = thread_->Waited();
  if (!before.has_value() || !waited_.has_value()) return false;
  return pace_.Note(*waited_ - *before > kTurns * kTolerated, now);
}

}  // namespace djinn::worker
