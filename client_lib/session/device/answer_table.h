// Finds the threads that wait for the worker's answers by the number of the
// message that asks: values, metadata, use, models, and the fingerprints of
// graphs.
//
// Not thread-safe: the device's lock guards it, and the waits' fields. Nothing
// here calls out.
#ifndef CLIENT_LIB_SESSION_DEVICE_ANSWER_TABLE_H_
#define CLIENT_LIB_SESSION_DEVICE_ANSWER_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/device/work_encoder.h"
#include "client_lib/session/model/call_sites.h"
#include "client_lib/session/transfer/read_table.h"
#include "client_lib/session/transfer/work.h"
#include "djinn/statistics.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

inline constexpr char kProtocolViolation[] = "PROTOCOL_VIOLATION";

// The error of a worker that says what it must not.
absl::Status Violation(absl::string_view what);

// Whether the error has a code: an error must be one.
bool HasCode(const v1::ErrorDetail& detail);

void AddUse(const v1::MeteredUse& use, v1::MeteredUse* sum);

class AnswerTable {
 public:
  ReadTable& reads() { return reads_; }
  const ReadTable& reads() const { return reads_; }
  // Whether nothing is to come that a worker can say only where it was asked.
  bool idle() const { return reads_.empty() && metadata_.empty(); }

  // Notes who waits for what comes of the message.
  void Register(EncodedMessage* message);

  // The answers. A status is a breach of the protocol.
  absl::Status TakeMetadata(const v1::RunMetadata& reply);
  // `lease` names the worker.
  absl::Status TakeAdmitted(const v1::Admitted& admitted,
                            const v1::Lease& lease);
  // `held`: set if the value's bytes are still to come.
  absl::Status TakeRead(uint64_t number, v1::ReadReply* reply, bool* held);
  absl::Status TakeMetered(const v1::Metered& metered);
  absl::Status TakeModel(const v1::ModelRegistered& registered);
  // Wakes who waits for the report that ends a profile, if it is that one.
  void TakeReport(const v1::ProfileReport& report);
  // The error, with the place of the call that failed when it is known.
  absl::Status StatusOf(const v1::ErrorDetail& detail) {
    return call_sites_.StatusOf(detail);
  }

  // Graphs that the worker took since the last call.
  void SwapAdmitted(std::vector<uint64_t>* admitted) {
    admitted->swap(admitted_);
  }
  // Another worker goes on, which was told of nothing. `use`: the session's at
  // the worker that it left.
  void BeginAnew(const v1::MeteredUse& use);
  void Clear();

  void AddStatistics(Statistics* sum) const;

 private:
  void RegisterRead(const v1::Ordered& ordered, std::shared_ptr<ReadWait> wait);
  void RegisterModel(const v1::Ordered& ordered,
                     std::shared_ptr<ModelWait> wait);

  ReadTable reads_;
  // By sequence.
  absl::flat_hash_map<uint64_t, std::shared_ptr<MetadataWait>> metadata_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<MeterWait>> meters_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<ModelWait>> models_;
  std::shared_ptr<ProfileWait> last_report_;
  // Fingerprints of the graphs defined and not yet answered, by id.
  absl::flat_hash_map<uint64_t, std::string> defining_;
  // Graphs that the worker took, for the sender.
  std::vector<uint64_t> admitted_;
  CallSiteLog call_sites_;
  // On workers that it left.
  v1::MeteredUse used_elsewhere_;
  // The runs, the graphs, and the uploads inside messages.
  Statistics statistics_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_ANSWER_TABLE_H_
