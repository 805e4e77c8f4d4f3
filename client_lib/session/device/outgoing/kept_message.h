// Keeps a message, with its bytes or their hash, until no other worker may need
// it.
//
// Not thread-safe: the lock of the lineage that has a message guards it.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_KEPT_MESSAGE_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_KEPT_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "client_lib/session/lineage/lineage.h"
#include "client_lib/session/stream/run_encoder.h"
#include "client_lib/session/transfer/kept_copy.h"
#include "client_lib/session/transfer/spill_file.h"
#include "client_lib/session/transfer/work.h"
#include "common/hash/hash.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

// A graph sent to the worker, and the fingerprint that the worker must find.
struct DefinedGraph {
  uint64_t id = 0;
  std::string fingerprint;
};

// An eager upload that is sent inline after all.
struct InlinedUpload {
  uint64_t size_bytes = 0;
};

// Identifies the thread that waits for the answer to a message.
using Registration =
    std::variant<std::monostate, DefinedGraph, InlinedUpload,
                 std::shared_ptr<MetadataWait>, std::shared_ptr<ReadWait>,
                 std::shared_ptr<UploadWait>, std::shared_ptr<MeterWait>,
                 std::shared_ptr<ModelWait>, std::shared_ptr<ProfileWait>>;

// The data from which replica/replay.cc sends a message to another worker.
struct KeptMessage : Lineage::Payload {
  // Gives up the bytes of an upload that are in memory, and keeps their hash.
  uint64_t Shrink() override;
  bool has_bytes() const override;

  // Null for other messages.
  std::shared_ptr<const KeptRun> run;
  // The message as it was sent, unless it is a run. An eager upload whose bytes
  // are not in memory becomes a hash-first one.
  std::shared_ptr<const v1::ControlRequest> request;
  uint32_t lane = 0;
  bool ends_work = false;

  // A value that the program has read of what the message wrote, and the answer
  // of another worker that has the same value.
  struct Seen {
    v1::Read read;  // asks for the hash
    std::string hash;
  };
  // Most messages have none of these.
  struct Extras {
    // The bytes of a message that names only their hash, if there was room for
    // them.
    KeptBytes source;
    std::vector<Seen> seen;
    Registration registration;
    std::vector<uint32_t> sites;
    // The hash of the run's metadata, once the program has it.
    std::optional<ContentHash> metadata;
    // The source, if the message fetches a copy from another virtual device.
    std::shared_ptr<KeptCopy> copy;
  };
  bool has_extras() const { return extras_ != nullptr; }
  const Extras& extras() const;
  Extras& mutable_extras();

 private:
  std::unique_ptr<Extras> extras_;
};

// Returns the message of a node; null if the node is incomplete.
inline KeptMessage* KeptOf(const Lineage::Node& node) {
  return static_cast<KeptMessage*>(node.payload.get());
}

// A message for the lineage.
struct Keepsake {
  // Null if the message cannot be sent again.
  std::unique_ptr<KeptMessage> message;
  std::vector<Lineage::Use> uses;
  std::vector<uint64_t> freed;
  bool awaits_answer = false;
  // Set if the message keeps a copy for another virtual device.
  CopyNeeded kept_copy;

  // Returns roughly the bytes that the message takes here.
  uint64_t Bytes() const;
};

// Returns the size that a storage has after the message.
uint64_t SizeOf(const v1::Install& install);

// Returns an Install like this one that asks by hash.
std::shared_ptr<const v1::ControlRequest> HashFirst(const v1::Install& install,
                                                    const ContentHash& hash,
                                                    uint64_t size_bytes);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_KEPT_MESSAGE_H_
