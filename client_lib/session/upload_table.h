// The large uploads of a device that the worker was told of: what it decided
// about each, and what is to be said of them beside the order.
//
// Not thread-safe: the device's lock guards it, and the waits' fields.
#ifndef CLIENT_LIB_SESSION_UPLOAD_TABLE_H_
#define CLIENT_LIB_SESSION_UPLOAD_TABLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "client_lib/session/work.h"
#include "common/hash.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class UploadTable {
 public:
  // It is announced, under its transfer id, from now on.
  void Add(std::shared_ptr<UploadWait> wait);
  // Nobody waits for it any more.
  void Erase(uint64_t transfer_id) { uploads_.erase(transfer_id); }
  void Clear() { uploads_.clear(); }

  // What the worker decided; ignored where nobody waits for it. Not OK: what it
  // may not say, in words.
  absl::Status Decide(const v1::TransferDecision& decision);
  // The Install was carried out.
  void Complete(uint64_t transfer_id);
  // The worker had use for the hash of the last one: it had the bytes, or asks
  // its tenant for proofs. So it may for the next one's.
  bool last_hash_was_of_use() const { return last_hash_was_of_use_; }

  // To be said beside the order.
  void QueueHash(UploadWait* wait, const ContentHash& hash);
  void QueueProof(UploadWait* wait, std::string proof);
  bool has_hashes() const { return !hashes_.empty(); }
  bool has_proofs() const { return !proofs_.empty(); }
  // The next of them; false when it is of no use any more.
  bool TakeHash(v1::TransferHash* message);
  bool TakeProof(v1::TransferProof* message);

  // The worker is reached by another stream: what was said beside the order is
  // said again, and bytes go on where the worker has them up to.
  void Resume(const v1::WorkerHello& hello);
  // Another worker is, which was told of nothing.
  void ForgetQueued();

 private:
  absl::flat_hash_map<uint64_t, std::shared_ptr<UploadWait>>
      uploads_;  // by transfer id
  // Transfer ids.
  std::deque<uint64_t> proofs_;
  std::deque<uint64_t> hashes_;
  bool last_hash_was_of_use_ = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_UPLOAD_TABLE_H_
