#include "common/trace/span_exporter.h"

#include <algorithm>
#include <utility>

#include "common/base/version.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Limit of one call.
constexpr absl::Duration kExportTimeout = absl::Seconds(10);

// Returns whether a later call may succeed, as OTLP's specification lists.
// RESOURCE_EXHAUSTED is not among them: it is the answer to a call that is too
// large, and a collector that means anything else would add RetryInfo.
bool MayPass(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

}  // namespace

SpanExporter::SpanExporter(SpanExporterOptions options,
                           std::unique_ptr<SpanTransport> transport,
                           Clock* clock)
    : options_(std::move(options)),
      transport_(std::move(transport)),
      clock_(clock),
      next_call_(clock->Monotonic()),
      backoff_(options_.min_backoff),
      thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() { Stop(); }

void SpanExporter::Add(Span span) {
  MutexLock lock(&mu_);
  if (stopping_ || queue_.size() >= options_.queue_spans) {
    ++counts_.dropped;
    return;
  }
  if (queue_.empty()) oldest_ = clock_->Monotonic();
  queue_.push_back(std::move(span));
  if (queue_.size() == 1 || queue_.size() == options_.batch_spans) {
    changed_.SignalAll();
  }
}

void SpanExporter::CountDropped(uint64_t spans) {
  MutexLock lock(&mu_);
  counts_.dropped += spans;
}

SpanExporter::Counts SpanExporter::counts() const {
  MutexLock lock(&mu_);
  return counts_;
}

void SpanExporter::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stop_at_ = clock_->Monotonic() + options_.stop_timeout;
    changed_.SignalAll();
    for (;;) {
      const absl::Duration left = stop_at_ - clock_->Monotonic();
      if (ended_ || left <= absl::ZeroDuration()) break;
      clock_->Wait(&changed_, &mu_, left);
    }
  }
  transport_->Cancel();
  thread_.join();
}

bool SpanExporter::AwaitBatch() {
  for (;;) {
    const absl::Duration now = clock_->Monotonic();
    if (stopping_) return !queue_.empty() && now < stop_at_;
    const bool full = queue_.size() >= options_.batch_spans;
    if (queue_.empty()) {
      clock_->Wait(&changed_, &mu_, absl::Hours(1));
      continue;
    }
    const absl::Duration due =
        std::max(next_call_, full ? now : oldest_ + options_.interval);
    if (due <= now) return true;
    clock_->Wait(&changed_, &mu_, due - now);
  }
}

void SpanExporter::FillBatch(Request* batch) {
  auto* const resource = batch->add_resource_spans();
  const auto add = [&](const char* key, const std::string& value) {
    auto* const attribute = resource->mutable_resource()->add_attributes();
    attribute->set_key(key);
    attribute->mutable_value()->set_string_value(value);
  };
  add("service.name", options_.service_name);
  add("service.instance.id", options_.instance_id);
  add("service.version", kVersion);
  auto* const scope = resource->add_scope_spans();
  scope->mutable_scope()->set_name("djinn");
  size_t bytes = 0;
  for (size_t i = 0; i < options_.batch_spans && !queue_.empty(); ++i) {
    bytes += queue_.front().ByteSizeLong();
    // A span that is larger than a batch travels alone.
    if (i > 0 && bytes > options_.batch_bytes) break;
    *scope->add_spans() = std::move(queue_.front());
    queue_.pop_front();
  }
  oldest_ = clock_->Monotonic();
}

bool SpanExporter::Settle(const absl::Status& sent, int64_t rejected,
                          uint64_t spans, absl::Duration began) {
  if (sent.ok()) {
    const uint64_t refused = static_cast<uint64_t>(
        std::clamp<int64_t>(rejected, 0, static_cast<int64_t>(spans)));
    counts_.refused += refused;
    counts_.exported += spans - refused;
    backoff_ = options_.min_backoff;
    return true;
  }
  ++counts_.failures;
  const absl::Duration now = clock_->Monotonic();
  next_call_ = now + backoff_;
  backoff_ = std::min(2 * backoff_, options_.max_backoff);
  if (!MayPass(sent)) {
    counts_.refused += spans;
    return true;
  }
  if (!stopping_ && now - began < options_.give_up_after) return false;
  counts_.dropped += spans;
  return true;
}

void SpanExporter::Run() {
  mu_.Lock();
  while (AwaitBatch()) {
    Request batch;
    FillBatch(&batch);
    const auto spans = static_cast<uint64_t>(
        batch.resource_spans(0).scope_spans(0).spans_size());
    const absl::Duration began = clock_->Monotonic();
    for (bool settled = false; !settled;) {
      absl::Duration timeout = kExportTimeout;
      if (stopping_) {
        timeout = std::min(timeout, stop_at_ - clock_->Monotonic());
      }
      mu_.Unlock();
      int64_t rejected = 0;
      const absl::Status sent = transport_->Export(batch, timeout, &rejected);
      mu_.Lock();
      settled = Settle(sent, rejected, spans, began);
      const bool news = failing_ == sent.ok();
      failing_ = !sent.ok();
      if (news) {
        mu_.Unlock();
        if (sent.ok()) {
          log::Info("traces reach the collector again");
        } else {
          log::Warning("traces do not reach the collector", {{"error", sent}});
        }
        mu_.Lock();
      }
      // A batch that failed is sent again after a pause.
      while (!settled && !stopping_ && clock_->Monotonic() < next_call_) {
        clock_->Wait(&changed_, &mu_, next_call_ - clock_->Monotonic());
      }
    }
    // After a failure, what is left at the end would only take time.
    if (stopping_ && failing_) break;
  }
  counts_.dropped += queue_.size();
  queue_.clear();
  ended_ = true;
  changed_.SignalAll();
  mu_.Unlock();
}

}  // namespace djinn
