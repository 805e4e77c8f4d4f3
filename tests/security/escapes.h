// Names the escapes that escaping_operators.cc tries.
#ifndef TESTS_SECURITY_ESCAPES_H_
#define TESTS_SECURITY_ESCAPES_H_

#include <cstdint>

namespace djinn {

enum class Escape : int64_t {
  kOpenFile,
  kOpenMemoryOfOther,
  kSocket,
  kConnectBySending,
  kFork,
  kTrace,
  kSignal,
  kLimitsOfOther,
  kClockOfOther,
  kMakeMemoryFile,
  kMakeSharedMemory,
  // Try each inherited descriptor until one succeeds.
  kResizeDescriptors,
  kMakeDescriptorsBlock,
};
inline constexpr Escape kLastEscape = Escape::kMakeDescriptorsBlock;

// System calls of a tenant that the filter allows.
enum class Attempt : int64_t {
  // Shuts the standard output and error down.
  kShutLogDown = 100,
  // Writes a line to the standard error that imitates another tenant's.
  kForgeLine,
  // Takes the event of turns back.
  kTakeEvent,
  // Sends a descriptor to the supervisor over each socket to it.
  kSendDescriptors,
  // Starts kManyThreads threads that stay.
  kStartThreads,
};
inline constexpr int kManyThreads = 1'000;
inline constexpr char kForged[] =
    "ts=2026-01-31T12:00:00.000Z level=error role=worker "
    "msg=\"executor ended\" tenant=victim why=forged\n";

}  // namespace djinn

#endif  // TESTS_SECURITY_ESCAPES_H_
