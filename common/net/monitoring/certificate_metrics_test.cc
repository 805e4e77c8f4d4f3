#include "common/net/monitoring/certificate_metrics.h"

#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/net/testing/authority.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CertificateMetricsTest, AnExpiryIsThatOfTheFile) {
  Authority authority("expiry");
  const absl::Time before = absl::Now();
  const ServerTls files = authority.Issue("server", {.end = absl::Hours(72)});
  const absl::StatusOr<absl::Time> expiry =
      CertificateExpiry(files.certificate_file);
  ASSERT_TRUE(expiry.ok()) << expiry.status();
  // Certificates know whole seconds.
  EXPECT_GE(*expiry, before + absl::Hours(72) - absl::Seconds(1));
  EXPECT_LE(*expiry, absl::Now() + absl::Hours(72));
}

TEST(CertificateMetricsTest, AScrapeReadsTheFileThatIsThereNow) {
  Authority authority("renewed");
  ServerTls files = authority.Issue("server", {.end = absl::Hours(1)});
  const MetricsSource source = CertificateMetrics(
      {{"tls", files.certificate_file}, {"coordinator_tls", ""}});
  const auto scrape = [&] {
    Exposition out;
    source(&out);
    return out.Text();
  };
  const std::string first = scrape();
  EXPECT_THAT(
      first,
      HasSubstr("djinn_certificate_expiry_timestamp_seconds{key=\"tls\"}"));
  EXPECT_THAT(first, Not(HasSubstr("coordinator_tls")));
  authority.Issue("server", {.end = absl::Hours(2)});
  EXPECT_NE(scrape(), first);
}

TEST(CertificateMetricsTest, AFileThatCannotBeReadShows) {
  const std::string path = testing::TempDir() + "/no.crt";
  std::ofstream(path) << "nothing of the kind";
  const absl::Status status = CertificateExpiry(path).status();
  EXPECT_EQ(ErrorReason(status), "TLS_FILES");
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  Exposition out;
  CertificateMetrics({{"tls", path}})(&out);
  EXPECT_THAT(
      out.Text(),
      HasSubstr("djinn_certificate_expiry_timestamp_seconds{key=\"tls\"} 0\n"));
}

}  // namespace
}  // namespace djinn
