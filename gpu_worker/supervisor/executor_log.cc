#include "gpu_worker/supervisor/executor_log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/strip.h"
#include "common/log/log.h"

namespace djinn::worker {

int ExecutorLog::polled() const { return allowance_ < 1 ? -1 : pipe_.get(); }

std::vector<std::string> ExecutorLog::Take() {
  std::vector<std::string> lines;
  Cut(&lines);
  while (pipe_.valid() && allowance_ >= 1) {
    char bytes[kMaxLineBytes];
    const ssize_t got = read(pipe_.get(), bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    // All writers are gone.
    if (got == 0) pipe_ = Descriptor();
    if (got <= 0) break;
    unread_.append(bytes, static_cast<size_t>(got));
    Cut(&lines);
  }
  return lines;
}

std::vector<std::string> ExecutorLog::TakeLast() {
  allowance_ += kLastLines;
  std::vector<std::string> lines = Take();
  if (!unread_.empty() && allowance_ >= 1) Add(unread_, &lines);
  unread_.clear();
  pipe_ = Descriptor();
  return lines;
}

void ExecutorLog::Age(absl::Duration passed) {
  allowance_ = std::min(
      kBurst, allowance_ + kLinesPerSecond * absl::ToDoubleSeconds(passed));
}

void ExecutorLog::Cut(std::vector<std::string>* lines) {
  size_t taken = 0;
  while (allowance_ >= 1) {
    const absl::string_view rest =
        absl::string_view(unread_).substr(taken, kMaxLineBytes);
    const size_t end = rest.find('\n');
    if (end == rest.npos && rest.size() < kMaxLineBytes) break;
    Add(rest.substr(0, end), lines);
    taken += end == rest.npos ? rest.size() : end + 1;
  }
  unread_.erase(0, taken);
}

void ExecutorLog::Add(absl::string_view line, std::vector<std::string>* lines) {
  allowance_ -= 1 + static_cast<double>(line.size() / kBytesPerLine);
  // An empty line says nothing.
  if (!line.empty()) lines->emplace_back(line);
}

absl::string_view ConsumeHead(absl::string_view* line) {
  constexpr size_t kTime = 24;  // 2026-01-31T12:00:00.000Z
  for (const absl::string_view level : {"debug", "info", "warning", "error"}) {
    absl::string_view rest = *line;
    if (!absl::ConsumePrefix(&rest, "ts=") || rest.size() < kTime) break;
    rest.remove_prefix(kTime);
    if (absl::ConsumePrefix(&rest, " level=") &&
        absl::ConsumePrefix(&rest, level) &&
        absl::ConsumePrefix(&rest, " role=executor ")) {
      *line = rest;
      return level;
    }
  }
  return "warning";
}

void LogForExecutor(absl::string_view tenant, uint64_t number,
                    const std::vector<std::string>& lines) {
  constexpr absl::string_view kMessage = "executor wrote";
  for (absl::string_view line : lines) {
    const absl::string_view level = ConsumeHead(&line);
    const log::Fields fields = {
        {"tenant", tenant}, {"number", number}, {"line", line}};
    if (level == "debug") {
      log::Debug(kMessage, fields);
    } else if (level == "info") {
      log::Info(kMessage, fields);
    } else if (level == "warning") {
      log::Warning(kMessage, fields);
    } else {
      log::Error(kMessage, fields);
    }
  }
}

}  // namespace djinn::worker
