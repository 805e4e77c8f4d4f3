// Reads rings as a hostile peer may leave them. The first bytes are the
// indices; the rest is the contents of the ring. Whatever they are, nothing
// outside the ring is returned, and reading ends.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "common/fuzz/require.h"
#include "common/transport/shared_memory/frame_ring.h"

namespace djinn {
namespace {

constexpr size_t kBytes = 1024;

}  // namespace
}  // namespace djinn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using djinn::fuzz::Require;
  uint64_t indices[2] = {};
  std::memcpy(indices, input, std::min(size, sizeof(indices)));
  std::vector<char> data(djinn::kBytes);
  if (size > sizeof(indices)) {
    std::memcpy(data.data(), input + sizeof(indices),
                std::min(size - sizeof(indices), data.size()));
  }
  const auto state = std::make_unique<djinn::RingState>();
  state->written = indices[0];
  state->read = indices[1];
  state->writer_waits = 1;
  djinn::FrameRingReader reader(state.get(), data.data(), djinn::kBytes);
  djinn::FrameRingReader::Frame frame;
  size_t frames = 0;
  for (;;) {
    const absl::StatusOr<bool> here = reader.Peek(&frame);
    if (!here.ok() || !*here) break;
    uint64_t sum = 0, bytes = 0;
    for (const absl::string_view piece : frame.payload()) {
      Require(piece.data() >= data.data() &&
                  piece.data() + piece.size() <= data.data() + data.size(),
              "a payload lies in the ring");
      for (const char byte : piece) sum += static_cast<uint8_t>(byte);
      bytes += piece.size();
    }
    Require(sum <= bytes * 255, "readable");
    Require(bytes == frame.header.payload_bytes, "a payload is whole");
    reader.Pop();
    Require(++frames <= djinn::kBytes / djinn::kFrameAlignment, "reading ends");
  }
  djinn::FrameRingWriter writer(state.get(), data.data(), djinn::kBytes);
  const absl::StatusOr<bool> fits = writer.FitsOrAwait(size);
  if (fits.ok() && *fits) {
    writer.Write({},
                 absl::string_view(reinterpret_cast<const char*>(input), size));
  }
  return 0;
}
