// Tests the configuration of traces, and the transport with a real server.
#include "common/net/tracing/tracing.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/config/config_reader.h"
#include "common/metrics/exposition.h"
#include "common/net/server.h"
#include "common/net/tracing/grpc_span_transport.h"
#include "gmock/gmock.h"
#include "grpcpp/server_context.h"
#include "gtest/gtest.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace djinn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace otlp = opentelemetry::proto::collector::trace::v1;

absl::StatusOr<TracingConfig> Read(const std::string& text) {
  ConfigReader reader = ConfigReader::FromText(text, "test.yaml");
  ConfigMap root = reader.root();
  TracingConfig config = ReadTracing(&root);
  const absl::Status status = reader.Finish();
  if (!status.ok()) return status;
  return config;
}

TEST(ReadTracingTest, NothingIsExportedByDefault) {
  const absl::StatusOr<TracingConfig> config = Read("");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->endpoint, "");
  const auto exporter = StartTracing(*config, "test", "one", Clock::Real());
  ASSERT_TRUE(exporter.ok());
  EXPECT_EQ(*exporter, nullptr);
  Exposition metrics;
  CollectSpans(exporter->get(), &metrics);
  EXPECT_EQ(metrics.Text(), "");
}

TEST(ReadTracingTest, SettingsAreRead) {
  const absl::StatusOr<TracingConfig> config = Read(
      "tracing: {endpoint: 'otel:4317', sample_ratio: 0.25, insecure: true}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->endpoint, "otel:4317");
  EXPECT_EQ(config->sample_ratio, 0.25);
  EXPECT_THAT(TracingDifferences(TracingConfig(), *config),
              ElementsAre("tracing.endpoint", "tracing.sample_ratio",
                          "tracing.insecure"));
}

TEST(ReadTracingTest, MistakesAreNamed) {
  const auto text = [](const std::string& yaml) {
    return std::string(Read(yaml).status().message());
  };
  EXPECT_THAT(text("tracing: {sample_ratio: 1}"),
              HasSubstr("tracing.sample_ratio: there is no endpoint"));
  EXPECT_THAT(text("tracing: {endpoint: 'localhost:4317', sample_ratio: 2}"),
              HasSubstr("tracing.sample_ratio"));
  EXPECT_THAT(text("tracing: {endpoint: 'otel:4317'}"),
              HasSubstr("tracing.endpoint"));
  EXPECT_THAT(text("tracing: {endpoint: 'http://otel'}"),
              HasSubstr("tracing.endpoint"));
  EXPECT_THAT(text("tracing: {endpoint: 'localhost:4317', ratio: 1}"),
              HasSubstr("ratio"));
  EXPECT_THAT(
      text("tracing: {endpoint: 'otel:4317', tls: {ca_file: missing.crt}}"),
      HasSubstr("missing.crt"));
}

class Collector final : public otlp::TraceService::Service {
 public:
  grpc::Status Export(grpc::ServerContext* /*context*/,
                      const otlp::ExportTraceServiceRequest* request,
                      otlp::ExportTraceServiceResponse* response) override {
    MutexLock lock(&mu_);
    received_.MergeFrom(*request);
    response->mutable_partial_success()->set_rejected_spans(1);
    return refused_;
  }
  void Refuse(grpc::Status status) {
    MutexLock lock(&mu_);
    refused_ = std::move(status);
  }
  otlp::ExportTraceServiceRequest received() {
    MutexLock lock(&mu_);
    return received_;
  }

 private:
  Mutex mu_;
  otlp::ExportTraceServiceRequest received_ ABSL_GUARDED_BY(mu_);
  grpc::Status refused_ ABSL_GUARDED_BY(mu_);
};

class SpanTransportTest : public testing::Test {
 protected:
  SpanTransportTest() {
    ServerOptions options;
    options.address = "127.0.0.1:0";
    options.services = {&collector_};
    server_ = *Server::Start(options);
  }

  Collector collector_;
  std::unique_ptr<Server> server_;
};

TEST_F(SpanTransportTest, SpansReachTheCollector) {
  TracingConfig config;
  config.endpoint = server_->address();
  FakeClock clock;
  auto exporter = StartTracing(config, "djinn-test", "one", &clock);
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  for (const char* const name : {"first", "second"}) {
    Span span;
    span.set_name(name);
    (*exporter)->Add(std::move(span));
  }
  // The two spans make one batch, whatever time this thread took.
  clock.Advance(absl::Seconds(1));
  for (Patience patience; (*exporter)->counts().exported == 0;) {
    // A call that fails on a machine under load is repeated.
    clock.Advance(absl::Milliseconds(5));
    absl::SleepFor(std::min(patience.Left(), absl::Milliseconds(1)));
  }
  (*exporter)->Stop();
  EXPECT_EQ(
      collector_.received().resource_spans(0).scope_spans(0).spans(0).name(),
      "first");
  Exposition metrics;
  CollectSpans(exporter->get(), &metrics);
  EXPECT_THAT(metrics.Text(),
              HasSubstr("djinn_trace_spans_total{result=\"exported\"} 1"));
  EXPECT_THAT(metrics.Text(),
              HasSubstr("djinn_trace_spans_total{result=\"refused\"} 1"));
}

TEST_F(SpanTransportTest, TheCollectorsStatusIsReturned) {
  collector_.Refuse({grpc::StatusCode::RESOURCE_EXHAUSTED, "too much"});
  auto transport = MakeGrpcSpanTransport(server_->address(), {});
  ASSERT_TRUE(transport.ok());
  int64_t rejected = 0;
  const absl::Status status = (*transport)
                                  ->Export(otlp::ExportTraceServiceRequest(),
                                           absl::Minutes(1), &rejected);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  (*transport)->Cancel();
  EXPECT_TRUE(absl::IsCancelled((*transport)
                                    ->Export(otlp::ExportTraceServiceRequest(),
                                             absl::Minutes(1), &rejected)));
}

TEST(MakeGrpcSpanTransportTest, AnAddressOfAnotherHostNeedsTls) {
  EXPECT_EQ(ErrorReason(MakeGrpcSpanTransport("otel:4317", {}).status()),
            "INSECURE_ADDRESS");
}

}  // namespace
}  // namespace djinn
