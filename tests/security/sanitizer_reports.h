// Finds the sanitizers' reports in the log of a process.
#ifndef TESTS_SECURITY_SANITIZER_REPORTS_H_
#define TESTS_SECURITY_SANITIZER_REPORTS_H_

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace djinn {

struct SanitizerReport {
  // The line that names the fault, and the frames of its first stack.
  std::string text;
  // Whether the fault lies in Djinn's own code: in the first frame outside of
  // the sanitizer and of the C and C++ libraries, which act for their caller.
  bool in_djinn = false;
};

namespace sanitizer_reports_internal {

// Returns whether Djinn's own code is at fault in the frame. A frame that was
// not resolved, as in a sandbox, names its module: "(/path/module+0x12)". Only
// Djinn's programs have the debug information that resolves others.
inline bool IsOfDjinn(absl::string_view frame) {
  return absl::StrContains(frame, "/djinn-") || !absl::EndsWith(frame, ")") ||
         absl::StrContains(frame, "djinn::");
}

// Returns whether the frame is of the sanitizer, or of the C or C++ library.
// Where those have debug information, its paths are relative.
inline bool ActsForItsCaller(absl::string_view frame) {
  for (const absl::string_view part :
       {" ../", "/libasan.so", "/libubsan.so", "/libc.so", "/libstdc++.so",
        "/libm.so"}) {
    if (absl::StrContains(frame, part)) return true;
  }
  return false;
}

// The sanitizer ends a process that asks for memory that there is not; without
// it, the request fails.
inline bool IsRefusedRequest(absl::string_view line) {
  for (const absl::string_view part :
       {"requested allocation size", "out of memory", "failed to allocate",
        "calloc parameters overflow"}) {
    if (absl::StrContains(line, part)) return true;
  }
  return false;
}

}  // namespace sanitizer_reports_internal

// Returns the reports of the address and of the undefined-behaviour sanitizer.
// Refused requests for memory are none.
inline std::vector<SanitizerReport> SanitizerReports(absl::string_view log) {
  namespace internal = sanitizer_reports_internal;
  constexpr size_t kMaxFrames = 16;
  std::vector<SanitizerReport> reports;
  // Frames of the report that is being read.
  size_t frames = 0;
  bool open = false;
  bool decided = false;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    const bool address = absl::StrContains(line, "ERROR: AddressSanitizer");
    // The line begins with a place in a source file. A log line of Djinn's own
    // does not, whatever text it quotes.
    const bool undefined = absl::StrContains(line, ": runtime error: ") &&
                           !absl::StartsWith(line, "ts=");
    if (address || undefined) {
      open = !internal::IsRefusedRequest(line);
      if (!open) continue;
      frames = 0;
      reports.push_back({std::string(line), false});
      // The place is where the check was compiled: in Djinn's own code or in a
      // header of PyTorch.
      decided = undefined;
      if (undefined) {
        reports.back().in_djinn = !absl::StrContains(
            line.substr(0, line.find(": runtime error: ")), "torch/");
      }
      continue;
    }
    const absl::string_view frame = absl::StripLeadingAsciiWhitespace(line);
    if (!open || !absl::StartsWith(frame, "#")) {
      // The first stack has ended. Lines before it describe the fault.
      if (frames > 0) open = false;
      continue;
    }
    if (++frames > kMaxFrames) continue;
    absl::StrAppend(&reports.back().text, "\n", line);
    if (decided || internal::ActsForItsCaller(frame)) continue;
    decided = true;
    reports.back().in_djinn = internal::IsOfDjinn(frame);
  }
  return reports;
}

}  // namespace djinn

#endif  // TESTS_SECURITY_SANITIZER_REPORTS_H_
