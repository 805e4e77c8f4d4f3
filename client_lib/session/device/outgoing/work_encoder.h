// Turns work into the messages of one worker: graphs, runs, message numbers,
// and the frees that go with them. The sender alone uses it, so it needs no
// lock. An encoded message carries what other threads must know of it; Append()
// registers that.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_WORK_ENCODER_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_WORK_ENCODER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/kept_message.h"
#include "client_lib/session/device/outgoing/request_profiler.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/device/outgoing/work_queue.h"
#include "client_lib/session/lineage/lineage.h"
#include "client_lib/session/stream/dead_list.h"
#include "client_lib/session/stream/graph_history.h"
#include "client_lib/session/stream/graph_table.h"
#include "client_lib/session/stream/run_encoder.h"
#include "client_lib/session/transfer/work.h"
#include "common/hash/hash.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

// A graph that a device uses again.
struct RepeatedGraph {
  v1::Graph graph;
  v1::GraphNotes notes;
  // The storages bound in this run, by slot.
  std::vector<uint64_t> storages;
  // Number of uses, including this run.
  uint64_t uses = 0;
};

// A numbered message, to be appended to the log.
struct EncodedMessage {
  std::shared_ptr<v1::ControlRequest> request;
  bool ends_work = false;
  Registration registration;
  // See MessageLog::Entry.
  std::vector<uint64_t> written;
  // The call sites of a run, by node; may be empty.
  std::vector<uint32_t> sites;
  // Null for messages that the lineage does not need, and while none is kept.
  std::unique_ptr<Keepsake> keepsake;
};
using EncodedMessages = absl::InlinedVector<EncodedMessage, 4>;

class WorkEncoder {
 public:
  // Called when a graph is used again: at the second use, and ever less often
  // afterwards. May be null.
  using OnRepeat = std::function<void(RepeatedGraph repeated)>;

  WorkEncoder(int device_index, std::shared_ptr<SessionContext> context,
              WorkQueue* queue, DeadList* dead, OnRepeat on_repeat,
              uint64_t first_transfer_id);

  // Starts to encode for a worker with these limits, with message numbers from
  // `next_sequence`.
  void BeginAt(const v1::SessionLimits& limits, uint64_t next_sequence);
  bool begun() const { return graphs_ != nullptr; }

  // Makes keepsakes of messages from now on. `has_room` says whether an
  // upload's bytes may stay in memory for that; it is called without locks.
  // Called before the first message.
  void Keep(std::function<bool(uint64_t bytes)> has_room);
  // The worker's graphs, for messages that are sent again.
  GraphTable& graphs() { return *graphs_; }
  // Returns a new id for an upload.
  uint64_t NextTransferId() { return next_transfer_id_++; }
  // Appends and numbers a message that was sent to another worker.
  EncodedMessage& EncodeAgain(uint32_t lane,
                              std::shared_ptr<v1::ControlRequest> request,
                              EncodedMessages* messages) {
    return Add(lane, std::move(request), messages);
  }

  // Notes that the worker accepted these graphs.
  void NoteAdmitted(absl::Span<const uint64_t> graphs);
  // Notes that the worker executed the messages up to `sequence`.
  void NoteCompleted(uint64_t sequence) { graphs_->Completed(sequence); }
  // Returns the definition of a graph that the worker asks for, or null if the
  // worker cannot need it.
  const std::string* Definition(uint64_t graph_id) const {
    return graphs_->Definition(graph_id);
  }

  // Appends the messages of the work, including frees.
  void Encode(Work work, EncodedMessages* messages);
  // Appends messages that free the storages that the program released.
  void EncodeFrees(EncodedMessages* messages);
  // Collects such storages. Returns whether there are any.
  bool CollectDead();
  // Appends a message whose answer no thread waits for. Returns its number.
  uint64_t EncodeOther(uint32_t lane,
                       std::shared_ptr<v1::ControlRequest> request,
                       EncodedMessages* messages);
  // Counts a recorded call that rematerializes another worker's result. Any
  // thread may call it.
  void CountRecomputed() {
    recomputed_.fetch_add(1, std::memory_order_relaxed);
  }
  // Drops the frees that are still to be sent, because the device has failed.
  void Drop() { pending_free_.clear(); }

  // Measures encoding for a profile from now on; null ends that.
  void set_profile(std::shared_ptr<DeviceProfile> profile) {
    profile_ = std::move(profile);
  }
  const std::shared_ptr<DeviceProfile>& profile() const { return profile_; }
  // Makes the worker begin to measure, or report its measurements.
  void EncodeProfile(v1::ProfileAction action, EncodedMessages* messages);

 private:
  using Out = EncodedMessages*;

  // Appends and numbers the message.
  EncodedMessage& Add(uint32_t lane,
                      std::shared_ptr<v1::ControlRequest> request, Out out);
  void EncodeNow(Work work, Out out);
  Registration Fill(const Work& work, RunWork& run, v1::ControlRequest* request,
                    Out out);
  Registration Fill(const Work& work, ReplayWork& replay,
                    v1::ControlRequest* request, Out out);
  // Fills in the common part of both kinds of run.
  void FillRun(const Work& work, RunEncoder::Encoded encoded,
               std::vector<uint32_t> sites, v1::ControlRequest* request,
               Out out);
  // Keeps the bytes of a hash-first upload of this content.
  void KeepBytes(const ContentHash& hash, absl::string_view bytes);
  // Completes the keepsake of the work's message.
  void Keep(const Work& work, EncodedMessage* message);
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
  Registration Fill(const Work& work, CopyWork& copy,
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
  std::atomic<uint32_t> recomputed_{0};  // not reported yet

  v1::SessionLimits limits_;
  uint64_t next_sequence_ = 1;
  uint64_t next_transfer_id_;
  std::unique_ptr<GraphTable> graphs_;
  std::unique_ptr<RunEncoder> runs_;
  GraphHistory history_;
  std::vector<uint64_t> pending_free_;
  // Fields of the run that is being encoded.
  std::vector<uint64_t> written_;
  std::vector<uint32_t> sites_;
  std::unique_ptr<Keepsake> keepsake_;
  std::shared_ptr<DeviceProfile> profile_;

  bool keeps_ = false;
  std::function<bool(uint64_t bytes)> has_room_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_WORK_ENCODER_H_
