// Tests what the supervisor adds to the metrics of its executors.
#include <string>
#include <utility>

#include "common/metrics/exposition.h"
#include "djinn/v1/supervision.pb.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/metrics/joined_metrics.h"
#include "gpu_worker/supervisor/supervisor_fixture.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(SupervisorTest, MetricsOfExecutorsAreJoinedAndOutliveThem) {
  Step();
  Lease("a", "a1");
  Lease("b", "b1");
  executor(0).SayReady();
  executor(1).SayReady();
  Exposition counted;
  counted.Counter("djinn_worker_runs_total", "Runs that the worker executed.",
                  2, {{"tenant", "somebody"}});
  // The name of a family that is the supervisor's own.
  counted.Counter("djinn_worker_device_handovers_total", "Hand-overs.", 77);
  v1::FromExecutor message;
  *message.mutable_metrics() = JoinedMetrics::Encode(counted);
  executor(0).Send(message);
  executor(1).Send(message);
  Step();
  executor(0).Die();
  Step();
  Exposition out;
  supervisor_.Collect(&out);
  supervisor_.CollectExecutors(&out);
  const std::string text = out.Text();
  EXPECT_THAT(text, HasSubstr("djinn_worker_runs_total{tenant=\"a\"} 2"));
  EXPECT_THAT(text, HasSubstr("djinn_worker_runs_total{tenant=\"b\"} 2"));
  EXPECT_THAT(text, HasSubstr("djinn_worker_device_handovers_total 0"));
}

TEST_F(SupervisorTest, MetricsThatNoExecutorDeclaredAreLeftOut) {
  Step();
  Lease("a", "a1");
  executor(0).SayReady();
  Step();
  Exposition counted;
  counted.Counter("djinn_worker_runs_total", "Runs that the worker executed.",
                  2, {{"tenant", "a"}, {"more", "x"}});
  counted.Counter("djinn_worker_invented_total", "Invented.", 3);
  v1::FromExecutor message;
  *message.mutable_metrics() = JoinedMetrics::Encode(counted);
  executor(0).Send(message);
  // A later executor declares nothing more.
  Lease("b", "b1");
  executor(1).Send(message);
  executor(1).SayReady();
  executor(1).Send(message);
  Step();
  EXPECT_THAT(Ended(), IsEmpty());
  Exposition out;
  supervisor_.CollectExecutors(&out);
  EXPECT_THAT(out.Text(), Not(HasSubstr("djinn_worker_invented_total")));
  EXPECT_THAT(out.Text(), Not(HasSubstr("djinn_worker_runs_total{")));
}

TEST_F(SupervisorTest, MetricsThatBreakScrapesEndTheExecutor) {
  Step();
  Lease("a", "a1");
  v1::FromExecutor message;
  message.mutable_metrics()->add_families()->set_name("a\nb");
  executor(0).Send(message);
  Step();
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST")));
}

class UnbilledLeasesTest : public SupervisorTest {
 protected:
  UnbilledLeasesTest() : SupervisorTest(WithOneEndedLease()) {}

  static SupervisorOptions WithOneEndedLease() {
    SupervisorOptions options = Options();
    options.max_ended_leases = 1;
    return options;
  }
  std::string Metrics() {
    Exposition out;
    supervisor_.CollectExecutors(&out);
    return out.Text();
  }
};

TEST_F(UnbilledLeasesTest, EndsThatAreForgottenAreCountedWithTheExecutors) {
  Step();
  EXPECT_THAT(Metrics(), HasSubstr("djinn_worker_unbilled_leases_total 0\n"));
  Lease("a", "a1");
  Lease("b", "b1");
  executor(1).SayReady();
  Exposition counted;
  counted.Counter("djinn_worker_unbilled_leases_total", "Ended leases.", 5);
  v1::FromExecutor message;
  *message.mutable_metrics() = JoinedMetrics::Encode(counted);
  executor(1).Send(message);
  Step();
  executor(0).Die();
  Step();
  EXPECT_THAT(Metrics(), HasSubstr("djinn_worker_unbilled_leases_total 5\n"));
  executor(1).Die();
  Step();
  EXPECT_THAT(Metrics(), HasSubstr("djinn_worker_unbilled_leases_total 6\n"));
}

}  // namespace
}  // namespace djinn::worker
