#include "common/net/call_metrics.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/metrics/exposition.h"
#include "common/net/server.h"
#include "djinn/v1/worker_departure.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGetWorker[] = "djinn.v1.Admin/GetWorker";
constexpr char kAttach[] = "djinn.v1.Session/Attach";

std::string TextOf(const CallMetrics& metrics) {
  Exposition exposition;
  metrics.Collect(&exposition);
  return exposition.Text();
}

// Returns the name of a sample of an ended call.
std::string Sample(const std::string& name, const std::string& method,
                   const std::string& status) {
  return absl::StrCat("grpc_server_call_", name, "{grpc_method=\"", method,
                      "\",grpc_status=\"", status, "\"} ");
}

TEST(CallMetricsTest, CountsByMethodAndStatus) {
  CallMetrics metrics;
  metrics.Started(kGetWorker);
  metrics.Ended(kGetWorker, "NOT_FOUND", absl::Seconds(1));
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, HasSubstr("grpc_server_call_started_total{grpc_method="
                              "\"djinn.v1.Admin/GetWorker\"} 1\n"));
  EXPECT_THAT(
      text, HasSubstr(Sample("duration_seconds_sum", kGetWorker, "NOT_FOUND") +
                      "1\n"));
  EXPECT_THAT(text, Not(HasSubstr("message_size")));
}

TEST(CallMetricsTest, SizesFallIntoTheirBuckets) {
  CallMetrics metrics;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1024},
                               uint64_t{1025}, uint64_t{5} << 30}) {
    metrics.Ended(kGetWorker, "OK", absl::ZeroDuration(),
                  CallSizes{.sent = bytes, .received = 0});
  }
  const std::string text = TextOf(metrics);
  const auto bucket = [](const char* bound, int count) {
    return absl::StrCat(
        "grpc_server_call_sent_total_compressed_message_size_bytes_bucket"
        "{grpc_method=\"djinn.v1.Admin/GetWorker\",grpc_status=\"OK\",le=\"",
        bound, "\"} ", count, "\n");
  };
  EXPECT_THAT(text, HasSubstr(bucket("0", 1)));
  EXPECT_THAT(text, HasSubstr(bucket("1024", 3)));
  EXPECT_THAT(text, HasSubstr(bucket("2048", 4)));
  EXPECT_THAT(text, HasSubstr(bucket("4294967296", 4)));
  EXPECT_THAT(text, HasSubstr(bucket("+Inf", 5)));
  EXPECT_THAT(text,
              HasSubstr(Sample("rcvd_total_compressed_message_size_bytes_count",
                               kGetWorker, "OK") +
                        "5\n"));
}

TEST(CountedStreamTest, CountsItsEndAndItsMessages) {
  CallMetrics metrics;
  CountedStream stream(&metrics, kAttach);
  stream.AddSent(100);
  stream.AddSent(20);
  stream.AddReceived(3);
  EXPECT_THAT(TextOf(metrics), Not(HasSubstr(kAttach)));
  EXPECT_EQ(stream.End(grpc::Status(grpc::StatusCode::CANCELLED, "why"))
                .error_message(),
            "why");
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text,
              HasSubstr(Sample("duration_seconds_count", kAttach, "CANCELLED") +
                        "1\n"));
  EXPECT_THAT(text,
              HasSubstr(Sample("sent_total_compressed_message_size_bytes_sum",
                               kAttach, "CANCELLED") +
                        "120\n"));
  EXPECT_THAT(text,
              HasSubstr(Sample("rcvd_total_compressed_message_size_bytes_sum",
                               kAttach, "CANCELLED") +
                        "3\n"));
}

TEST(CountedStreamTest, WithoutSizesItHasADurationAlone) {
  CallMetrics metrics;
  CountedStream(&metrics, kAttach).EndWithoutSizes(grpc::Status::OK);
  const std::string text = TextOf(metrics);
  EXPECT_THAT(
      text, HasSubstr(Sample("duration_seconds_count", kAttach, "OK") + "1\n"));
  EXPECT_THAT(text, Not(HasSubstr("message_size")));
  // A handler that nothing counts.
  EXPECT_TRUE(CountedStream(nullptr, kAttach).End(grpc::Status::OK).ok());
}

// A service whose request is large, and whose answer is small, or an error for
// a worker without a name.
class Departures : public v1::WorkerDeparture::Service {
 public:
  grpc::Status Leave(grpc::ServerContext* /*context*/,
                     const v1::LeaveRequest* request,
                     v1::LeaveProgress* progress) override {
    if (request->worker_id().empty()) {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "who?");
    }
    progress->set_leases(3);
    return grpc::Status::OK;
  }
};

TEST(CallCounterTest, AServerCountsUnaryCallsWithTheSizesOfTheirMessages) {
  constexpr char kLeave[] = "djinn.v1.WorkerDeparture/Leave";
  CallMetrics metrics;
  Departures departures;
  ServerOptions options;
  options.address = "127.0.0.1:0";
  options.services = {&departures};
  options.call_metrics = &metrics;
  const std::unique_ptr<Server> server = Server::Start(options).value();
  const auto stub = v1::WorkerDeparture::NewStub(grpc::CreateChannel(
      server->address(), grpc::InsecureChannelCredentials()));
  const auto leave = [&](const std::string& id) {
    grpc::ClientContext context;
    v1::LeaveRequest request;
    request.set_worker_id(id);
    v1::LeaveProgress progress;
    return stub->Leave(&context, request, &progress).error_code();
  };
  EXPECT_EQ(leave(std::string(3000, 'w')), grpc::StatusCode::OK);
  EXPECT_EQ(leave(""), grpc::StatusCode::NOT_FOUND);
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, HasSubstr("grpc_server_call_started_total{grpc_method="
                              "\"djinn.v1.WorkerDeparture/Leave\"} 2\n"));
  EXPECT_THAT(
      text, HasSubstr(Sample("duration_seconds_count", kLeave, "OK") + "1\n"));
  // A tag and two bytes of length; a tag and a byte.
  EXPECT_THAT(text,
              HasSubstr(Sample("rcvd_total_compressed_message_size_bytes_sum",
                               kLeave, "OK") +
                        "3003\n"));
  EXPECT_THAT(text,
              HasSubstr(Sample("sent_total_compressed_message_size_bytes_sum",
                               kLeave, "OK") +
                        "2\n"));
  EXPECT_THAT(text,
              HasSubstr(Sample("sent_total_compressed_message_size_bytes_sum",
                               kLeave, "NOT_FOUND") +
                        "0\n"));
}

}  // namespace
}  // namespace djinn
