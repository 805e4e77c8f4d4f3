#include "coordinator/ctl/top.h"

#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

TEST(TopTest, TheBusiestWorkerIsFirstAndALostOneLast) {
  EXPECT_EQ(TopWorkers(Parse<v1::ListWorkersResponse>(R"pb(
              workers { worker_id: "gone" memory_bytes: 1000 lease_count: 0 }
              workers {
                worker_id: "idle"
                memory_bytes: 1000
                free_bytes: 1000
                memory {}
              }
              workers {
                worker_id: "busy"
                memory_bytes: 1000000
                free_bytes: 750000
                queued_runs: 7
                lease_count: 2
                session_count: 1
                busy_share: 0.934
                memory {}
              }
            )pb")),
            "WORKER  BUSY  MEMORY         QUEUED  LEASES  SESSIONS\n"
            "busy    93%   250.0kB (25%)  7       2       1\n"
            "idle    0%    0B (0%)        0       0       0\n"
            "gone    -     -              -       0       -\n");
}

TEST(TopTest, TenantsAreByTheDeviceTimeBetweenTwoLooks) {
  const auto before = Parse<v1::ListTenantsResponse>(R"pb(
    tenants {
      tenant: "blue"
      credits {
        used {
          device_time { seconds: 100 }
          bytes: 500
        }
      }
    }
    tenants {
      tenant: "red"
      credits {
        used {
          device_time { seconds: 10 }
          bytes: 1000
        }
      }
    }
  )pb");
  const auto after = Parse<v1::ListTenantsResponse>(R"pb(
    tenants {
      tenant: "blue"
      credits {
        used {
          device_time { seconds: 1 }
          bytes: 10
        }
      }
    }
    tenants { tenant: "new" session_count: 1 }
    tenants {
      tenant: "red"
      session_count: 2
      lease_count: 3
      storage_bytes: 2000
      use { queued_runs: 4 }
      credits {
        used {
          device_time { seconds: 13 }
          bytes: 5000
        }
      }
    }
  )pb");
  // What blue used began anew with a period of its credits.
  EXPECT_EQ(TopTenants(before, after, absl::Seconds(2)),
            "TENANT  DEVICES  MOVED    STORAGE  QUEUED  LEASES  SESSIONS\n"
            "red     1.50     2.0kB/s  2.0kB    4       3       2\n"
            "blue    0.00     0B/s     0B       0       0       0\n"
            "new     -        -        0B       0       0       1\n");
}

}  // namespace
}  // namespace djinn::ctl
