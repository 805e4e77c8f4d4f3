#include "common/net/monitoring/request_origin.h"

#include <initializer_list>
#include <utility>

#include "gtest/gtest.h"
#include "httplib.h"

namespace djinn {
namespace {

TEST(RequestOriginTest, NamesOfTheLoopbackMayHavePorts) {
  for (const char* const host :
       {"localhost", "localhost:9464", "127.0.0.1:1", "[::1]", "[::1]:80"}) {
    EXPECT_TRUE(NamesLoopback(host)) << host;
  }
  for (const char* const host :
       {"", ":80", "example.com", "localhost.example.com", "127.0.0.1.x:80",
        "[::1]x", "::1"}) {
    EXPECT_FALSE(NamesLoopback(host)) << host;
  }
}

TEST(RequestOriginTest, AddressesAreNoNames) {
  for (const char* const host :
       {"10.0.0.1", "10.0.0.1:9464", "[fe80::1]", "[fe80::1]:9464"}) {
    EXPECT_TRUE(NamesAddress(host)) << host;
  }
  for (const char* const host : {"", "localhost", "10.0.0", "10.0.0.1.example",
                                 "[fe80::1", "[example]:80"}) {
    EXPECT_FALSE(NamesAddress(host)) << host;
  }
}

httplib::Request Asking(
    std::initializer_list<std::pair<const char*, const char*>> headers) {
  httplib::Request request;
  request.set_header("Host", "localhost:9464");
  for (const auto& [name, value] : headers) request.set_header(name, value);
  return request;
}

TEST(RequestOriginTest, OwnPagesAndOtherProgramsAreNotForeign) {
  EXPECT_FALSE(IsForeign(Asking({}), /*linked=*/false));
  EXPECT_FALSE(IsForeign(Asking({{"Origin", "http://localhost:9464"},
                                 {"Sec-Fetch-Site", "same-origin"}}),
                         /*linked=*/false));
  EXPECT_FALSE(IsForeign(Asking({{"Sec-Fetch-Site", "none"}}),
                         /*linked=*/false));
}

TEST(RequestOriginTest, OtherSitesAreForeign) {
  EXPECT_TRUE(
      IsForeign(Asking({{"Origin", "http://example.com"}}), /*linked=*/true));
  EXPECT_TRUE(IsForeign(Asking({{"Origin", "null"}}), /*linked=*/true));
  EXPECT_TRUE(
      IsForeign(Asking({{"Sec-Fetch-Site", "same-site"}}), /*linked=*/false));
}

TEST(RequestOriginTest, LinksOfOtherSitesLeadToLinkedPathsAlone) {
  const httplib::Request link = Asking(
      {{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Mode", "navigate"}});
  EXPECT_FALSE(IsForeign(link, /*linked=*/true));
  EXPECT_TRUE(IsForeign(link, /*linked=*/false));
  EXPECT_TRUE(IsForeign(
      Asking({{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Mode", "no-cors"}}),
      /*linked=*/true));
}

}  // namespace
}  // namespace djinn
