// Sends spans to a collector, in batches, on a thread of its own.
//
// The queue is bounded: a span that finds no room is dropped and counted, so a
// collector that is dead or slow costs memory up to the bound and nothing else.
// A batch that the collector cannot take now is sent again, ever less often,
// while newer spans wait, and is dropped after a while: no batch can block
// those behind it for ever. The log says once that spans do not arrive, and
// once that they do again.
#ifndef COMMON_TRACE_SPAN_EXPORTER_H_
#define COMMON_TRACE_SPAN_EXPORTER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/trace/span.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"

namespace djinn {

// The way to a collector.
class SpanTransport {
 public:
  virtual ~SpanTransport() = default;
  // Sends the request and waits for the answer for at most `timeout`.
  // `rejected` becomes the number of spans that the collector refused although
  // it answered OK. Called by one thread.
  virtual absl::Status Export(const opentelemetry::proto::collector::trace::v1::
                                  ExportTraceServiceRequest& request,
                              absl::Duration timeout, int64_t* rejected) = 0;
  // Makes the call in progress, and any later one, return soon. Any thread may
  // call it.
  virtual void Cancel() = 0;
};

struct SpanExporterOptions {
  // The resource: "djinn-worker", and what tells the process from others.
  std::string service_name;
  std::string instance_id;
  // The share of traces that are taken.
  double sample_ratio = 1;
  size_t queue_spans = 8192;
  size_t batch_spans = 512;
  // Size of the spans of a batch. Collectors refuse calls of more than 4 MiB.
  size_t batch_bytes = size_t{1} << 20;
  // The longest time that a span waits for others to join its batch.
  absl::Duration interval = absl::Seconds(1);
  absl::Duration min_backoff = absl::Seconds(1);
  absl::Duration max_backoff = absl::Seconds(60);
  // The time after which a batch that fails is dropped.
  absl::Duration give_up_after = absl::Minutes(5);
  // The time for which Stop() sends what waits.
  absl::Duration stop_timeout = absl::Seconds(2);
};

class SpanExporter final : public SpanSink {
 public:
  struct Counts {
    uint64_t exported = 0;
    // Dropped because the queue was full, the collector did not answer for too
    // long, or the process stopped.
    uint64_t dropped = 0;
    // Refused by the collector.
    uint64_t refused = 0;
    // Calls that failed.
    uint64_t failures = 0;
  };

  // `clock` must outlive this.
  SpanExporter(SpanExporterOptions options,
               std::unique_ptr<SpanTransport> transport, Clock* clock);
  // Calls Stop().
  ~SpanExporter() override;

  bool Takes(const TraceContext& context) const override {
    return context.valid() && IsSampled(context, options_.sample_ratio);
  }
  // After Stop(), drops the span.
  void Add(Span span) override;
  // Counts spans that were dropped before they reached this.
  void CountDropped(uint64_t spans);

  // Sends what waits, for at most stop_timeout, and ends the thread. A batch
  // that fails meanwhile is dropped. One thread calls it; a second call does
  // nothing.
  void Stop();

  Counts counts() const;

 private:
  using Request =
      opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;

  void Run();
  // Waits until a batch is due. Returns false when nothing is left to do.
  bool AwaitBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FillBatch(Request* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Applies the outcome of a call for a batch that was first sent at `began`.
  // Returns whether the batch is settled.
  bool Settle(const absl::Status& sent, int64_t rejected, uint64_t spans,
              absl::Duration began) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const SpanExporterOptions options_;
  const std::unique_ptr<SpanTransport> transport_;
  Clock* const clock_;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Span> queue_ ABSL_GUARDED_BY(mu_);
  // When the first span of the queue was added.
  absl::Duration oldest_ ABSL_GUARDED_BY(mu_);
  // The time before which no call begins, and the next pause.
  absl::Duration next_call_ ABSL_GUARDED_BY(mu_);
  absl::Duration backoff_ ABSL_GUARDED_BY(mu_);
  bool failing_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration stop_at_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  Counts counts_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace djinn

#endif  // COMMON_TRACE_SPAN_EXPORTER_H_
