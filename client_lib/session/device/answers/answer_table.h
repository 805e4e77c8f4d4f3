// Matches the worker's answers with the threads that wait for them, by the
// number of the message that asks: values, metadata, use, models, and the
// fingerprints of graphs.
//
// Not thread-safe: the lock of the answers (answers.h) guards it, and the
// fields of the waits. Nothing here calls out.
#ifndef CLIENT_LIB_SESSION_DEVICE_ANSWERS_ANSWER_TABLE_H_
#define CLIENT_LIB_SESSION_DEVICE_ANSWERS_ANSWER_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "client_lib/session/device/outgoing/work_encoder.h"
#include "client_lib/session/model/call_sites.h"
#include "client_lib/session/transfer/read_table.h"
#include "client_lib/session/transfer/work.h"
#include "djinn/statistics.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

// Waits for the worker's account of what the session has used.
struct MeterWait : Waiter {
  bool done = false;
  v1::MeteredUse use;  // of the virtual device, on all of its workers
};

// Returns whether the error has a code other than OK, as every error must.
bool HasCode(const v1::ErrorDetail& detail);

void AddUse(const v1::MeteredUse& use, v1::MeteredUse* sum);

// Waits whose worker was lost before it answered.
struct Unanswered {
  std::vector<std::shared_ptr<MeterWait>> meters;
  std::vector<std::shared_ptr<ModelWait>> models;
};

class AnswerTable {
 public:
  ReadTable& reads() { return reads_; }
  const ReadTable& reads() const { return reads_; }
  // Returns whether no read and no run's metadata awaits an answer. These may
  // come after the worker has completed the message that asks; all other
  // answers come before.
  bool idle() const { return reads_.empty() && metadata_.empty(); }

  // Registers the thread that waits for the answer to the message.
  void Register(EncodedMessage* message);

  // These methods take the answers. An error is a breach of the protocol.
  absl::Status TakeMetadata(const v1::RunMetadata& reply);
  // `lease` identifies the worker.
  absl::Status TakeAdmitted(const v1::Admitted& admitted,
                            const v1::Lease& lease);
  // Sets `held` if the value's bytes are still to arrive.
  absl::Status TakeRead(uint64_t number, v1::ReadReply* reply, bool* held);
  absl::Status TakeMetered(const v1::Metered& metered);
  absl::Status TakeModel(const v1::ModelRegistered& registered);
  // Wakes the waiting thread if this is the report that ends a profile.
  void TakeReport(const v1::ProfileReport& report);
  // Returns the error, with the site of the failed call if it is known.
  absl::Status StatusOf(const v1::ErrorDetail& detail) {
    return call_sites_.StatusOf(detail);
  }

  // Swaps out the graphs that the worker accepted since the last call.
  void SwapAdmitted(std::vector<uint64_t>* admitted) {
    admitted->swap(admitted_);
  }
  // Prepares for another worker, which knows nothing of earlier messages. `use`
  // is the session's use of the worker that it left.
  void BeginAnew(const v1::MeteredUse& use);
  // Prepares for another worker in place of one that was lost. Messages that
  // are sent again register their waits again. Returns the waits of the others,
  // whose questions the caller asks again.
  Unanswered Forget();
  void Clear();

  void AddStatistics(Statistics* sum) const;

 private:
  void RegisterRead(const v1::Ordered& ordered, std::shared_ptr<ReadWait> wait);
  void RegisterModel(const v1::Ordered& ordered,
                     std::shared_ptr<ModelWait> wait);

  ReadTable reads_;
  // Waits for answers, by the sequence of the message that asks.
  absl::flat_hash_map<uint64_t, std::shared_ptr<MetadataWait>> metadata_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<MeterWait>> meters_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<ModelWait>> models_;
  std::shared_ptr<ProfileWait> last_report_;
  // Fingerprints of graphs that were defined and not answered yet, by id.
  absl::flat_hash_map<uint64_t, std::string> defining_;
  // Graphs that the worker accepted, for the sender.
  std::vector<uint64_t> admitted_;
  CallSiteLog call_sites_;
  // The session's use of workers that it left.
  v1::MeteredUse used_elsewhere_;
  // Counts runs, graphs, and uploads inside messages.
  Statistics statistics_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_ANSWERS_ANSWER_TABLE_H_
