// Tests the broker in children of this process, which have one thread.
#include "gpu_worker/sandbox/file_broker.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gpu_worker/sandbox/sandbox_child.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;

// Returns what the file contains, or the error number as text.
std::string Contents(const FileBroker& broker, const std::string& path,
                     int flags = O_RDONLY) {
  const int file = broker.Open(path.c_str(), flags);
  if (file < 0) return std::to_string(-file);
  char bytes[64];
  const ssize_t size = read(file, bytes, sizeof(bytes));
  close(file);
  return size < 0 ? "unread" : std::string(bytes, static_cast<size_t>(size));
}

// Folders with what the broker may open and what it may not.
class FileBrokerTest : public testing::Test {
 protected:
  FileBrokerTest() {
    files_.Write("lib/libone.so.1", "one");
    files_.Write("lib/deep/libtwo.so", "two");
    files_.Write("lib/join.token", "secret");
    files_.Write("lib-other/libone.so", "other");
    files_.Write("facts/cpuinfo", "cpu");
    files_.Write("fact", "fact");
    files_.Write("secret.so", "secret");
    std::filesystem::create_symlink("../secret.so",
                                    files_.Path("lib/liblink.so"));
    std::filesystem::create_symlink("libone.so.1",
                                    files_.Path("lib/libone.so"));
    rules_.libraries = {files_.Path("lib")};
    rules_.readable = {files_.Path("facts"), files_.Path("fact"),
                       files_.Path("missing")};
    rules_.devices = {files_.Path("dev/nvidiactl"), files_.Path("dev/none")};
  }

  // Expects each of `act`'s results in a child with the broker.
  void Check(const std::function<std::string(const FileBroker&)>& act) {
    const int status = InChild([&] {
      const FileBroker broker = ConfinedBroker(rules_);
      const std::string wrong = act(broker);
      // The message reaches the test's log.
      if (!wrong.empty())
        (void)!write(STDERR_FILENO, wrong.data(), wrong.size());
      return wrong.empty() ? 0 : kEscaped;
    });
    if (ExitOf(status) == kNoLandlock) {
      GTEST_SKIP() << "this machine's kernel has no Landlock";
    }
    EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
  }
  // Returns what is wrong about what opening the file gives.
  std::string Differs(const FileBroker& broker, const std::string& name,
                      const std::string& expected, int flags = O_RDONLY) {
    const std::string got = Contents(broker, files_.Path(name), flags);
    return got == expected ? "" : name + " gives " + got + "\n";
  }

  const FakeGpu files_;
  FileRules rules_;
};

const std::string kRefused = std::to_string(EACCES);

TEST_F(FileBrokerTest, OpensWhatIsListed) {
  Check([&](const FileBroker& broker) {
    return Differs(broker, "lib/libone.so.1", "one") +
           Differs(broker, "lib/libone.so", "one") +
           Differs(broker, "lib/deep/libtwo.so", "two", O_RDONLY | O_CLOEXEC) +
           Differs(broker, "lib/deep/../libone.so.1", "one") +
           Differs(broker, "facts/cpuinfo", "cpu") +
           Differs(broker, "fact", "fact") +
           Differs(broker, "dev/nvidiactl", "nvidiactl", O_RDWR) +
           Differs(broker, "missing", std::to_string(ENOENT)) +
           Differs(broker, "lib/libnone.so", std::to_string(ENOENT));
  });
}

TEST_F(FileBrokerTest, RefusesOtherFilesAndWays) {
  Check([&](const FileBroker& broker) {
    std::string wrong;
    for (const char* const name :
         {"secret.so", "lib/join.token", "lib-other/libone.so",
          "lib/../secret.so", "dev/nvidia0", "dev/nvidiactl/../nvidia0",
          // A link that leads elsewhere, which only the kernel sees.
          "lib/liblink.so"}) {
      wrong += Differs(broker, name, kRefused);
    }
    for (const int flags : {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC,
                            O_RDONLY | O_CREAT, O_PATH, O_RDONLY | O_APPEND}) {
      wrong += Differs(broker, "fact", kRefused, flags);
    }
    wrong += Differs(broker, "dev/nvidiactl", kRefused, O_RDWR | O_TRUNC);
    wrong += Differs(broker, "dev/none", kRefused, O_RDWR | O_CREAT);
    for (const char* const path : {"fact", "", "/", "/etc/passwd", "/proc"}) {
      const std::string got = Contents(broker, path);
      if (got != kRefused) wrong += std::string(path) + " gives " + got + "\n";
    }
    return wrong;
  });
}

TEST_F(FileBrokerTest, ThreadsGetTheirOwnFiles) {
  Check([&](const FileBroker& broker) {
    std::vector<std::string> wrong(8);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < wrong.size(); ++i) {
      threads.emplace_back([&, i] {
        for (int j = 0; j < 50; ++j) {
          wrong[i] += i % 2 == 0 ? Differs(broker, "lib/libone.so.1", "one")
                                 : Differs(broker, "fact", "fact");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::string all;
    for (const std::string& one : wrong) all += one;
    return all;
  });
}

TEST_F(FileBrokerTest, OpensNothingBeforeAndTakesNoRulesAfterConfinement) {
  const int status = InChild([&] {
    if (!PrepareSandbox(STDERR_FILENO).ok()) return kNoSandbox;
    absl::StatusOr<FileBroker> broker = FileBroker::Fork();
    if (!broker.ok()) return kNoSandbox;
    const std::string path = files_.Path("fact");
    if (broker->Open(path.c_str(), O_RDONLY) != -EACCES) return kEscaped;
    const absl::Status confined = broker->Confine(rules_);
    if (absl::IsUnimplemented(confined)) return kNoLandlock;
    FileRules more;
    more.readable = {"/etc"};
    if (!confined.ok() || broker->Confine(more).ok()) return kEscaped;
    return broker->Open("/etc/passwd", O_RDONLY) == -EACCES ? 0 : kEscaped;
  });
  if (ExitOf(status) == kNoLandlock) GTEST_SKIP() << "no Landlock";
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST_F(FileBrokerTest, EndsWithItsProcess) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const int status = InChild([&] {
    if (!PrepareSandbox(STDERR_FILENO).ok()) return kNoSandbox;
    return FileBroker::Fork().ok() ? 0 : kNoSandbox;
  });
  EXPECT_EQ(ExitOf(status), 0);
  // The broker is this process' child now. Waits for its end.
  EXPECT_GT(waitpid(-1, nullptr, 0), 0);
  EXPECT_LT(waitpid(-1, nullptr, WNOHANG), 0);
  EXPECT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

TEST_F(FileBrokerTest, KernelWithoutLandlockIsNamed) {
  // Older kernels do not know the call; others were started without it.
  for (const uint32_t error : {ENOSYS, EOPNOTSUPP}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const int status = InChild([&] {
      if (!SetResultOfCall(SYS_landlock_create_ruleset,
                           SECCOMP_RET_ERRNO | error)) {
        return kNoSandbox;
      }
      absl::StatusOr<FileBroker> broker = FileBroker::Fork();
      if (!broker.ok()) return kNoSandbox;
      const absl::Status confined = broker->Confine(rules_);
      const std::string text = confined.ToString();
      if (write(ends[1], text.data(), text.size()) < 0) return kNoSandbox;
      // A broker that is not confined opens nothing.
      const std::string path = files_.Path("fact");
      if (broker->Open(path.c_str(), O_RDONLY) != -EACCES) return kEscaped;
      return absl::IsUnimplemented(confined) &&
                     ErrorReason(confined) == "NO_SANDBOX"
                 ? 0
                 : kEscaped;
    });
    EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
    close(ends[1]);
    char text[1024] = {};
    EXPECT_GT(read(ends[0], text, sizeof(text) - 1), 0);
    close(ends[0]);
    EXPECT_THAT(text, HasSubstr("CONFIG_SECURITY_LANDLOCK"));
  }
}

}  // namespace
}  // namespace djinn::worker
