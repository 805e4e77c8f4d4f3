#include "gpu_worker/pull/peer_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/hash/crc32c.h"

namespace djinn::worker {
namespace {

absl::Status CheckChunk(const v1::PullChunk& chunk, uint64_t expected_offset,
                        uint64_t size, bool encrypted) {
  const uint64_t bytes = chunk.payload().size();
  if (bytes == 0 || chunk.offset() != expected_offset ||
      bytes > size - expected_offset) {
    return BrokenByPeer(absl::StrCat(bytes, " bytes at ", chunk.offset(),
                                     " after ", expected_offset, " of ", size));
  }
  if (!chunk.has_crc32c()) {
    return encrypted ? absl::OkStatus()
                     : BrokenByPeer("bytes without a checksum");
  }
  if (chunk.crc32c() == Crc32c(chunk.payload())) return absl::OkStatus();
  return MakeError(absl::StatusCode::kDataLoss, "CHUNK_CORRUPT",
                   absl::StrCat("the ", bytes, " bytes at ", chunk.offset(),
                                " do not have the checksum they were sent "
                                "with"));
}

}  // namespace

absl::Status BrokenByPeer(absl::string_view what) {
  return MakeError(absl::StatusCode::kDataLoss, "PROTOCOL_VIOLATION",
                   absl::StrCat("the other worker broke the protocol: ", what));
}

absl::StatusOr<std::optional<v1::ErrorDetail>> MessageCall::Receive(
    uint64_t size, PullReceiver* receiver) {
  uint64_t received = 0;
  v1::PullResponse response;
  while (received < size && Read(&response)) {
    switch (response.message_case()) {
      case v1::PullResponse::kWaiting:
        receiver->OnWaiting();
        break;
      case v1::PullResponse::kPoisoned:
        return std::move(*response.mutable_poisoned());
      case v1::PullResponse::kChunk:
        DJINN_RETURN_IF_ERROR(
            CheckChunk(response.chunk(), received, size, encrypted()));
        DJINN_RETURN_IF_ERROR(
            receiver->OnBytes(received, response.chunk().payload()));
        received += response.chunk().payload().size();
        break;
      case v1::PullResponse::MESSAGE_NOT_SET:
        return BrokenByPeer("a message that says nothing");
    }
  }
  if (received == size) return std::nullopt;
  DJINN_RETURN_IF_ERROR(Finish());
  return BrokenByPeer(absl::StrCat("only ", received, " of ", size, " bytes"));
}

}  // namespace djinn::worker
