// The parts that all sessions of a worker share. They must outlive the
// sessions.
#ifndef GPU_WORKER_SESSION_BASE_SESSION_ENVIRONMENT_H_
#define GPU_WORKER_SESSION_BASE_SESSION_ENVIRONMENT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/srg/validate.h"
#include "common/transport/stream.h"

namespace djinn {
class Clock;
class RandomSource;
class SpanSink;
}  // namespace djinn

namespace djinn::worker {

class ContentCache;
class ContentProofs;
class ContentStore;
class DeviceMemory;
class GraphCache;
class LinkRates;
class NodeEdge;
class OfferTable;
class PullSource;
class ServedTime;
class UploadRate;
struct ExecutionCounters;
struct SessionMetrics;

// How a client's bytes reach this worker.
enum class StreamWay {
  kLocal,  // within this machine
  kNetwork,
};

struct SessionEnvironment {
  std::string worker_id;
  Clock* clock = nullptr;
  RandomSource* random = nullptr;
  DeviceMemory* memory = nullptr;
  ContentCache* contents = nullptr;
  ContentProofs* proofs = nullptr;
  // Null when the worker keeps no contents on disk.
  ContentStore* store = nullptr;
  GraphCache* graphs = nullptr;
  OfferTable* offers = nullptr;
  PullSource* pulls = nullptr;
  LinkRates* links = nullptr;
  // Measures uploads that arrive over the network.
  UploadRate* uploads = nullptr;
  ExecutionCounters* counters = nullptr;
  // Null when runs do not yield.
  NodeEdge* edge = nullptr;
  // Tells which tenants the device worked for while a run waited. Null if that
  // is not measured.
  const ServedTime* served = nullptr;
  srg::GraphCaps caps;
  absl::Duration transfer_idle_timeout = absl::Seconds(30);
  uint64_t outbox_bytes = uint64_t{8} << 20;
  SessionMetrics* metrics = nullptr;
  // Called, without locks, when the tenant's contents changed, or when the
  // coordinator should hear of a lease's credit.
  std::function<void()> contents_changed = [] {};
  // Takes the spans of traced runs. Null when the worker exports none.
  SpanSink* spans = nullptr;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_BASE_SESSION_ENVIRONMENT_H_
