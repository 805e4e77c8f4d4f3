#include "common/io/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Make(const std::string& name, const std::string& contents,
                 mode_t mode) {
  const std::string path = testing::TempDir() + "/" + name;
  std::remove(path.c_str());
  std::ofstream(path) << contents;
  EXPECT_EQ(chmod(path.c_str(), mode), 0);
  return path;
}

TEST(SecretFileTest, ATokenIsOneWord) {
  EXPECT_EQ(ReadToken(Make("token", " hunter2\n", 0600)).value(), "hunter2");
  for (const char* contents : {"", " \n", "very secret", "gehe\xc3\xaem"}) {
    const absl::Status status =
        ReadToken(Make("token", contents, 0600)).status();
    EXPECT_EQ(ErrorReason(status), "SECRET_FILE");
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("/token must hold one printable ASCII word"),
                      Not(HasSubstr("secret"))));
  }
}

TEST(SecretFileTest, UnreadableFileIsNamed) {
  EXPECT_THAT(std::string(ReadToken("/no/such.token").status().message()),
              HasSubstr("cannot read /no/such.token: No such file"));
  EXPECT_THAT(std::string(ReadToken(testing::TempDir()).status().message()),
              HasSubstr("not a regular file"));
  const std::string pipe = testing::TempDir() + "/pipe";
  std::remove(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(std::string(ReadToken(pipe).status().message()),
              HasSubstr("/pipe: not a regular file"));
}

TEST(SecretFileTest, AFileTooLargeForATokenIsRefused) {
  const absl::Status status =
      ReadToken(Make("token", std::string(5000, 'x'), 0600)).status();
  EXPECT_EQ(ErrorReason(status), "SECRET_FILE");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/token: larger than 4096 bytes"));
}

TEST(SecretFileTest, AFileThatAnybodyMayWriteIsRefused) {
  const absl::Status status = ReadToken(Make("token", "word", 0602)).status();
  EXPECT_EQ(ErrorReason(status), "SECRET_FILE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("chmod 600"));
}

// Secrets are mounted into containers as symbolic links.
TEST(SecretFileTest, AFileThatAnybodyMayReadIsWarnedOf) {
  const std::string target = Make("target", "word", 0644);
  const std::string path = testing::TempDir() + "/link";
  std::remove(path.c_str());
  ASSERT_EQ(symlink(target.c_str(), path.c_str()), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReadToken(path).value(), "word");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("level=warning"), HasSubstr(path),
                    Not(HasSubstr("word\n"))));
  chmod(target.c_str(), 0440);
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReadToken(path).value(), "word");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace djinn
