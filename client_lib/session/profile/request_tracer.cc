#include "client_lib/session/profile/request_tracer.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"

namespace djinn {
namespace {

struct ThreadState {
  std::optional<Traceparent> parent;
  bool open = false;
  // The configuration under which the request began.
  uint64_t number = 0;
  // Invalid when the request is not sampled.
  TracedRequest request;
};

ThreadState& State() {
  thread_local ThreadState state;
  return state;
}

uint64_t NextId() {
  // The kernel's generator would take longer than all else that an unsampled
  // request costs.
  thread_local SpanIds ids(RandomSource::Real()->NonZero64());
  return ids.Next();
}

}  // namespace

RequestTracer& RequestTracer::Global() {
  static RequestTracer* const tracer = new RequestTracer;
  return *tracer;
}

void RequestTracer::SetFlag() {
  const bool on =
      ratio_.load(std::memory_order_relaxed) > 0 || sampled_scopes_ > 0;
  debug::Set(debug::kTrace, on ? debug::kTrace : 0);
}

std::shared_ptr<SpanSink> RequestTracer::Configure(Options options) {
  MutexLock lock(&mu_);
  ratio_.store(options.sample_ratio, std::memory_order_relaxed);
  nodes_.store(options.nodes, std::memory_order_relaxed);
  clock_.store(options.clock, std::memory_order_relaxed);
  number_.fetch_add(1, std::memory_order_relaxed);
  SetFlag();
  return std::exchange(sink_, std::move(options.sink));
}

RequestTracer::Scope RequestTracer::Enter(const Traceparent& parent) {
  EndRequest();
  Scope scope{std::exchange(State().parent, parent)};
  if (parent.sampled) {
    MutexLock lock(&mu_);
    ++sampled_scopes_;
    SetFlag();
  }
  return scope;
}

void RequestTracer::Leave(Scope scope) {
  EndRequest();
  const std::optional<Traceparent> left =
      std::exchange(State().parent, std::move(scope.before));
  if (left.has_value() && left->sampled) {
    MutexLock lock(&mu_);
    --sampled_scopes_;
    SetFlag();
  }
}

void RequestTracer::BeginRequest() {
  ThreadState& state = State();
  const uint64_t number = number_.load(std::memory_order_relaxed);
  if (state.open && state.number == number) return;
  state.open = true;
  state.number = number;
  state.request = {};
  TraceContext context;
  uint64_t parent = 0;
  if (state.parent.has_value()) {
    if (!state.parent->sampled) return;
    context = state.parent->context;
    parent = std::exchange(context.span_id, NextId());
    context.nodes |= nodes_.load(std::memory_order_relaxed);
  } else {
    context = NewTrace();
    if (!context.valid()) return;
  }
  state.request = {context, parent,
                   clock_.load(std::memory_order_relaxed)->Monotonic()};
}

const TracedRequest* RequestTracer::Current() {
  const ThreadState& state = State();
  return state.open && state.request.context.valid() ? &state.request : nullptr;
}

void RequestTracer::EndRequest() { State().open = false; }

TraceContext RequestTracer::NewTrace() {
  const double ratio = ratio_.load(std::memory_order_relaxed);
  if (ratio <= 0) return {};
  const TraceContext context{NextId(), NextId(), NextId(),
                             nodes_.load(std::memory_order_relaxed)};
  return IsSampled(context, ratio) ? context : TraceContext();
}

void RequestTracer::Export(const TracedRead& read, const Ending& ending) {
  std::shared_ptr<SpanSink> sink;
  {
    MutexLock lock(&mu_);
    sink = sink_;
  }
  const TracedRequest& request = read.request;
  if (sink == nullptr || !sink->Takes(request.context)) return;
  const WallTimes wall(clock_.load(std::memory_order_relaxed));
  const auto make = [&](uint64_t id, uint64_t parent, absl::string_view name,
                        Span::SpanKind kind, absl::Duration began,
                        absl::Duration ended) {
    TraceContext self = request.context;
    self.span_id = id;
    Span span =
        MakeSpan(self, parent, name, kind, wall.At(began), wall.At(ended));
    AddText("djinn.tenant", ending.tenant, &span);
    return span;
  };
  // Sending and waiting count from the moment at which the program asked.
  const absl::Duration ended = ending.now;
  const absl::Duration began = std::min(request.began, ended);
  const absl::Duration asked = std::clamp(read.asked, began, ended);
  const absl::Duration handed =
      std::clamp(read.handed.value_or(asked), asked, ended);
  const absl::Duration arrived =
      std::clamp(read.arrived.value_or(handed), handed, ended);
  const uint64_t id = request.context.span_id;
  Span span =
      make(id, request.parent, "request", Span::SPAN_KIND_CLIENT, began, ended);
  AddNumber("djinn.device", ending.device, &span);
  if (!ending.outcome.ok()) {
    const std::string reason = ErrorReason(ending.outcome);
    SetFailed(reason.empty() ? absl::StatusCodeToString(ending.outcome.code())
                             : reason,
              &span);
  }
  sink->Add(std::move(span));
  const auto add = [&](absl::string_view name, absl::Duration from,
                       absl::Duration to) {
    sink->Add(make(NextId(), id, name, Span::SPAN_KIND_INTERNAL, from, to));
  };
  add("record", began, asked);
  add("send", asked, handed);
  add("wait", handed, arrived);
  add("receive", arrived, ended);
}

}  // namespace djinn
