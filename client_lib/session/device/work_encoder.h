// Turns work into the messages of one worker: graphs and runs, numbers, and
// what is freed on the way. All of it is confined to the sender, so that it has
// no lock: what other threads have to know of a message comes with it, and is
// registered when the message is appended.
//
// Used by the sender alone.
#ifndef CLIENT_LIB_SESSION_DEVICE_WORK_ENCODER_H_
#define CLIENT_LIB_SESSION_DEVICE_WORK_ENCODER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "client_lib/session/device/device_profile.h"
#include "client_lib/session/device/session_context.h"
#include "client_lib/session/device/work_queue.h"
#include "client_lib/session/stream/dead_list.h"
#include "client_lib/session/stream/graph_history.h"
#include "client_lib/session/stream/graph_table.h"
#include "client_lib/session/stream/run_encoder.h"
#include "client_lib/session/transfer/work.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

// A graph that a device uses again.
struct RepeatedGraph {
  v1::Graph graph;
  v1::GraphNotes notes;
  // By slot, the storage that it is bound to in this run.
  std::vector<uint64_t> storages;
  // With this run.
  uint64_t uses = 0;
};

// The fingerprint that the worker must see of a graph that it gets.
struct DefinedGraph {
  uint64_t id = 0;
  std::string fingerprint;
};

// An eager upload that is sent inline after all.
struct InlinedUpload {
  uint64_t size_bytes = 0;
};

// Names the thread that waits for the answer to a message.
using Registration =
    std::variant<std::monostate, DefinedGraph, InlinedUpload,
                 std::shared_ptr<MetadataWait>, std::shared_ptr<ReadWait>,
                 std::shared_ptr<UploadWait>, std::shared_ptr<MeterWait>,
                 std::shared_ptr<ModelWait>, std::shared_ptr<ProfileWait>>;

// A message that has its number, to be appended to the log.
struct EncodedMessage {
  std::shared_ptr<v1::ControlRequest> request;
  bool ends_work = false;
  Registration registration;
  // As MessageLog::Entry.
  std::vector<uint64_t> written;
  // The call sites of a run, by node; may be empty.
  std::vector<uint32_t> sites;
};
using EncodedMessages = absl::InlinedVector<EncodedMessage, 4>;

class WorkEncoder {
 public:
  // Called with a graph that is used again: the second time, and less and
  // less often afterwards. May be null.
  using OnRepeat = std::function<void(RepeatedGraph repeated)>;

  WorkEncoder(int device_index, std::shared_ptr<SessionContext> context,
              WorkQueue* queue, DeadList* dead, OnRepeat on_repeat,
              uint64_t first_transfer_id);

  // Goes on at a worker with these limits, where messages are numbered from
  // `next_sequence`.
  void BeginAt(const v1::SessionLimits& limits, uint64_t next_sequence);
  bool begun() const { return graphs_ != nullptr; }

  // The worker took these graphs.
  void NoteAdmitted(absl::Span<const uint64_t> graphs);
  // The worker executed messages up to this one.
  void NoteCompleted(uint64_t sequence) { graphs_->Completed(sequence); }
  // The definition of a graph that the worker asks for; null when it cannot
  // want it.
  const std::string* Definition(uint64_t graph_id) const {
    return graphs_->Definition(graph_id);
  }

  // Appends the messages of the work, frees included.
  void Encode(Work work, EncodedMessages* messages);
  // Appends what frees the storages that the program has dropped.
  void EncodeFrees(EncodedMessages* messages);
  // Looks for such storages; true if there are any.
  bool CollectDead();
  // Appends a message without an answer that anybody waits for; returns its
  // number.
  uint64_t EncodeOther(uint32_t lane,
                       std::shared_ptr<v1::ControlRequest> request,
                       EncodedMessages* messages);
  // A call that was recorded makes again what another worker has made. Callable
  // from any thread.
  void CountRecomputed() {
    recomputed_.fetch_add(1, std::memory_order_relaxed);
  }
  // The device has failed: drops what is still to be freed.
  void Drop() { pending_free_.clear(); }

  // Measures what is encoded from now on, for a profile; null ends that.
  void set_profile(std::shared_ptr<DeviceProfile> profile) {
    profile_ = std::move(profile);
  }
  const std::shared_ptr<DeviceProfile>& profile() const { return profile_; }
  // Has the worker begin, or report, what it measures.
  void EncodeProfile(v1::ProfileAction action, EncodedMessages* messages);

 private:
  using Out = EncodedMessages*;

  // Numbers the message.
  EncodedMessage& Add(uint32_t lane,
                      std::shared_ptr<v1::ControlRequest> request, Out out);
  void EncodeNow(Work work, Out out);
  Registration Fill(const Work& work, RunWork& run, v1::ControlRequest* request,
                    Out out);
  Registration Fill(const Work& work, ReplayWork& replay,
                    v1::ControlRequest* request, Out out);
  // The common part of both.
  void FillRun(const Work& work, RunEncoder::Encoded encoded,
               std::vector<uint32_t> sites, v1::ControlRequest* request,
               Out out);
  Registration Fill(const Work& work, InstallWork& install,
                    v1::ControlRequest* request, Out out);
  Registration Fill(const Work& work, SeedWork& seed,
                    v1::ControlRequest* request, Out out);
  Registration Fill(const Work& work, CreateWork& create,
                    v1::ControlRequest* request, Out out);
  Registration Fill(const Work& work, ReadWork& read,
                    v1::ControlRequest* request, Out out);
  Registration Fill(const Work& work, OfferWork& offer,
                    v1::ControlRequest* request, Out out);
  Registration Fill(const Work& work, PullWork& pull,
                    v1::ControlRequest* request, Out out);
  Registration Fill(const Work& work, ProfileWork& profile,
                    v1::ControlRequest* request, Out out);
  Registration Fill(const Work& work, MeterWork& meter,
                    v1::ControlRequest* request, Out out);
  Registration Fill(const Work& work, ModelWork& model,
                    v1::ControlRequest* request, Out out);

  const int device_index_;
  const std::shared_ptr<SessionContext> context_;
  WorkQueue* const queue_;
  DeadList* const dead_;
  const OnRepeat on_repeat_;
  std::atomic<uint32_t> recomputed_{0};  // and not told

  v1::SessionLimits limits_;
  uint64_t next_sequence_ = 1;
  uint64_t next_transfer_id_;
  std::unique_ptr<GraphTable> graphs_;
  std::unique_ptr<RunEncoder> runs_;
  GraphHistory history_;
  std::vector<uint64_t> pending_free_;
  // These belong to the run that is encoded now.
  std::vector<uint64_t> written_;
  std::vector<uint32_t> sites_;
  std::shared_ptr<DeviceProfile> profile_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_WORK_ENCODER_H_
