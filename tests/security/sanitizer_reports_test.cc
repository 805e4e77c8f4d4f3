#include "tests/security/sanitizer_reports.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Returns a report as a process in a sandbox makes it, with these frames.
std::string Report(const std::string& frames) {
  return "==8==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60\n"
         "READ of size 64 at 0x60 thread T5\n" +
         frames +
         "\n\n0x60 is located 0 bytes after a region\n"
         "allocated by thread T5 here:\n"
         "    #0 0x7f in malloc (/bin/djinn-worker+0x1)\n";
}

TEST(SanitizerReportsTest, FaultInAKernelIsNotDjinns) {
  const auto reports = SanitizerReports(
      "ts=1 msg=before\n" +
      Report("    #0 0x7f (/lib/x86_64-linux-gnu/libasan.so.8+0x1)\n"
             "    #1 0x7f (/lib/x86_64-linux-gnu/libtorch_cpu.so.2.6+0x2)\n"
             "    #2 0x55 (/bin/gpu_worker/djinn-worker+0x3)") +
      "ts=2 msg=after\n");
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_FALSE(reports[0].in_djinn);
  EXPECT_THAT(reports[0].text, HasSubstr("heap-buffer-overflow"));
  EXPECT_THAT(reports[0].text, HasSubstr("libtorch_cpu"));
  EXPECT_THAT(reports[0].text, Not(HasSubstr("malloc")));
}

TEST(SanitizerReportsTest, FaultInDjinnsProgramIsDjinns) {
  const auto reports = SanitizerReports(
      Report("    #0 0x7f in memcpy "
             "../../src/libsanitizer/sanitizer_common/interceptors.inc:827\n"
             "    #1 0x55 (/bin/gpu_worker/djinn-worker+0x3)\n"
             "    #2 0x7f (/lib/libtorch_cpu.so.2.6+0x2)") +
      Report("    #0 0x55 in djinn::Parse() common/srg/decode.cc:7:3"));
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_TRUE(reports[0].in_djinn);
  EXPECT_TRUE(reports[1].in_djinn);
}

TEST(SanitizerReportsTest, UndefinedBehaviourIsWhereItWasCompiled) {
  const auto reports = SanitizerReports(
      "gpu_worker/plan.cc:3:1: runtime error: signed integer overflow\n"
      "    #0 0x55 (/bin/gpu_worker/djinn-worker+0x3)\n"
      "external/torch/include/c10/util.h:9:1: runtime error: shift\n"
      "ts=1 msg=refused why=\"CUDA: runtime error: text\"\n");
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_TRUE(reports[0].in_djinn);
  EXPECT_FALSE(reports[1].in_djinn);
}

TEST(SanitizerReportsTest, RefusedRequestForMemoryIsNoReport) {
  EXPECT_THAT(
      SanitizerReports("==8==ERROR: AddressSanitizer: requested "
                       "allocation size 0xfff exceeds the maximum\n"
                       "    #0 0x55 (/bin/gpu_worker/djinn-worker+0x3)\n"),
      IsEmpty());
  EXPECT_THAT(SanitizerReports("ts=1 msg=started\n"), IsEmpty());
}

}  // namespace
}  // namespace djinn
