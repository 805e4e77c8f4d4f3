#include "coordinator/ctl/output.h"

#include <yaml-cpp/yaml.h>

#include <limits>
#include <string>

#include "coordinator/ctl/parse_testing.h"
#include "djinn/v1/admin.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(OutputTest, YamlHasFieldsInOrderAndListsInBlocks) {
  EXPECT_EQ(ToYaml(Parse<v1::ListQueuesResponse>(R"pb(
              queues {
                tenant: "red"
                stop {
                  drain: true
                  stop_time { seconds: 43200 }
                }
                oldest_wait { seconds: 1 nanos: 500000000 }
                line_length: 2
                waiting { reason: "QUEUE_STOPPED" count: 2 }
                weighted_share: 0.25
              }
              queues { tenant: "blue" }
            )pb")),
            R"(queues:
  - tenant: "red"
    stop:
      drain: true
      stop_time: "1970-01-01T12:00:00Z"
    oldest_wait: "1.500s"
    first_place: 0
    line_length: 2
    waiting:
      - reason: "QUEUE_STOPPED"
        count: 2
    cohort: ""
    weighted_share: 0.25
  - tenant: "blue"
    first_place: 0
    line_length: 0
    waiting:
      []
    cohort: ""
    weighted_share: 0
next_page_token: ""
)");
}

TEST(OutputTest, YamlHasScalarsOfAllKinds) {
  const std::string text = ToYaml(Parse<v1::WorkerInfo>(R"pb(
    worker_id: "w0"
    state: ACTIVE
    incarnation: 18446744073709551615
    free_bytes: 9007199254740993
    capabilities: "cuda"
    capabilities: "1e3"
    phases: PHASE_LLM_DECODE
    cordoned: true
    memory {}
    busy_share: 0.5
  )pb"));
  for (const char* line :
       {"state: ACTIVE\n", "incarnation: 18446744073709551615\n",
        "free_bytes: 9007199254740993\n", "- \"cuda\"\n  - \"1e3\"\n",
        "- PHASE_LLM_DECODE\n", "cordoned: true\n", "busy_share: 0.5\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("disk")));
}

TEST(OutputTest, YamlKeepsEveryText) {
  v1::TenantInfo info;
  for (const char* name :
       {"team-a/b_c.d", "No", "null", "12", "a: b", "-", "say \"x\"\n\t", ""}) {
    info.set_tenant(name);
    EXPECT_EQ(YAML::Load(ToYaml(info))["tenant"].as<std::string>(), name);
  }
}

TEST(OutputTest, YamlHasNumbersThatAreNone) {
  v1::TenantInfo info;
  info.set_weighted_share(std::numeric_limits<double>::infinity());
  EXPECT_THAT(ToYaml(info), HasSubstr("weighted_share: .inf\n"));
}

TEST(OutputTest, MessageWithoutFieldsIsAnEmptyMap) {
  EXPECT_EQ(ToYaml(v1::GetVersionRequest()), "{}\n");
}

TEST(OutputTest, JsonHasAllFieldsByTheirNames) {
  v1::QueueInfo info;
  info.set_tenant("red");
  const std::string text = ToJson(info);
  EXPECT_THAT(text, HasSubstr("\"tenant\": \"red\""));
  EXPECT_THAT(text, HasSubstr("\"first_place\": 0"));
  EXPECT_THAT(text, Not(HasSubstr("\"stop\"")));
}

}  // namespace
}  // namespace djinn::ctl
