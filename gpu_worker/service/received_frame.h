// Parses a Bulk frame in place, as gRPC received it.
#ifndef GPU_WORKER_SERVICE_RECEIVED_FRAME_H_
#define GPU_WORKER_SERVICE_RECEIVED_FRAME_H_

#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/transport/bulk_frame.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace djinn::worker {

// Views of the frame live as long as this object.
class ReceivedFrame {
 public:
  // Takes the bytes out of the buffer.
  explicit ReceivedFrame(grpc::ByteBuffer* buffer) {
    (void)buffer->Dump(&slices_);
    buffer->Clear();
    for (const grpc::Slice& slice : slices_) {
      pieces_.emplace_back(reinterpret_cast<const char*>(slice.begin()),
                           slice.size());
    }
    parsed_ = ParseBulkFrame(pieces_);
  }
  ReceivedFrame(const ReceivedFrame&) = delete;
  ReceivedFrame& operator=(const ReceivedFrame&) = delete;

  const absl::StatusOr<BulkFrame>& parsed() const { return parsed_; }

 private:
  std::vector<grpc::Slice> slices_;
  absl::InlinedVector<absl::string_view, 32> pieces_;
  absl::StatusOr<BulkFrame> parsed_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_RECEIVED_FRAME_H_
