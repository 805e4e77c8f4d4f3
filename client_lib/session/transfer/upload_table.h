// The uploads of a device that ask the worker before they send their bytes.
//
//   kAsked -- prove ---------> kProve -- proof queued ------> kAsked
//   kAsked -- send ----------> kSend --- Install executed --> kOver
//   kAsked -- already held, refused, or inside a message ---> kOver
//
// The worker looks for the content in its memory and on its disk. If the tenant
// shares contents with others, the worker may first ask for a proof. Each
// answer is a v1::TransferDecision. The thread that uploads waits for every
// change, and sends the bytes in kSend (Uploader::Finish()).
//
// Not thread-safe: the lock of the answers (device/answers/answers.h) guards
// the table and the fields of UploadWait.
#ifndef CLIENT_LIB_SESSION_TRANSFER_UPLOAD_TABLE_H_
#define CLIENT_LIB_SESSION_TRANSFER_UPLOAD_TABLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/transfer/work.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class UploadTable {
 public:
  // Adds an upload that is announced under its transfer id.
  void Add(std::shared_ptr<UploadWait> wait);
  // Removes an upload whose thread no longer waits.
  void Erase(uint64_t transfer_id) { uploads_.erase(transfer_id); }
  void Clear() { uploads_.clear(); }
  // Forgets the worker, which is lost: the uploads that are not over ask
  // another one. An upload whose Install was executed is over, because its
  // decision never arrives.
  void ForgetWorker();

  // Applies the worker's decision. Ignores a decision about an upload that no
  // thread waits for. Returns InternalError with a text for a decision that
  // breaks the protocol.
  absl::Status Decide(const v1::TransferDecision& decision);
  // Notes that the worker executed the Install.
  void Complete(uint64_t transfer_id);
  // Returns whether the worker had the last content that the device asked about
  // without having uploaded it before, as at the second start of a program. The
  // worker may then have the next content as well.
  bool finds_new_contents() const { return finds_new_contents_; }

  // Queues the proof that the worker asked for, unless the worker was lost
  // since it sent `key`.
  void QueueProof(UploadWait* wait, absl::string_view key, std::string proof);
  bool has_proofs() const { return !proofs_.empty(); }
  // Takes the next proof. Returns false when no thread waits for one any more.
  bool TakeProof(v1::TransferProof* message);

  // Continues on another stream of the same session. Unanswered proofs are
  // queued once more, and the upload continues after the bytes that the worker
  // has.
  void Resume(const v1::WorkerHello& hello);

 private:
  absl::flat_hash_map<uint64_t, std::shared_ptr<UploadWait>>
      uploads_;                  // by transfer id
  std::deque<uint64_t> proofs_;  // transfer ids
  bool finds_new_contents_ = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_UPLOAD_TABLE_H_
