#include "common/hash/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace djinn {
namespace {

// Four tables: the checksum of a byte that is followed by 0 to 3 zero bytes.
constexpr std::array<std::array<uint32_t, 256>, 4> MakeTables() {
  std::array<std::array<uint32_t, 256>, 4> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    }
    tables[0][byte] = crc;
  }
  for (size_t i = 1; i < tables.size(); ++i) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[i - 1][byte];
      tables[i][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr std::array<std::array<uint32_t, 256>, 4> kTables = MakeTables();

#if defined(__x86_64__)
// The instruction's latency is three times its throughput, so three
// neighbouring stretches are summed at a time, each as if it came first.
constexpr size_t kStretch = 2048;

// The effect of kStretch further zero bytes on a state. It is a linear map,
// given by the images of the 32 bits, and from these by byte of the state.
using Images = std::array<uint32_t, 32>;
constexpr uint32_t Apply(const Images& images, uint32_t state) {
  uint32_t result = 0;
  for (int bit = 0; bit < 32; ++bit) {
    if ((state >> bit & 1) != 0) result ^= images[bit];
  }
  return result;
}
constexpr std::array<std::array<uint32_t, 256>, 4> MakeSkips() {
  Images images{};
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t state = uint32_t{1} << bit;
    images[bit] = (state >> 8) ^ kTables[0][state & 0xff];
  }
  for (size_t bytes = 1; bytes < kStretch; bytes *= 2) {
    const Images half = images;
    for (uint32_t& image : images) image = Apply(half, image);
  }
  std::array<std::array<uint32_t, 256>, 4> skips{};
  for (int byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      skips[byte][value] = Apply(images, value << (8 * byte));
    }
  }
  return skips;
}
constexpr std::array<std::array<uint32_t, 256>, 4> kSkips = MakeSkips();

uint64_t SkipStretch(uint64_t state) {
  return kSkips[0][state & 0xff] ^ kSkips[1][(state >> 8) & 0xff] ^
         kSkips[2][(state >> 16) & 0xff] ^ kSkips[3][(state >> 24) & 0xff];
}

__attribute__((target("sse4.2"))) inline uint64_t ExtendByWord(uint64_t state,
                                                               const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return _mm_crc32_u64(state, word);
}

__attribute__((target("sse4.2"))) uint32_t
ExtendByInstruction(uint32_t crc, absl::string_view bytes) {
  uint64_t state = static_cast<uint32_t>(~crc);
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 3 * kStretch; left -= 3 * kStretch, at += 3 * kStretch) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kStretch; i += 8) {
      state = ExtendByWord(state, at + i);
      second = ExtendByWord(second, at + kStretch + i);
      third = ExtendByWord(third, at + 2 * kStretch + i);
    }
    state = SkipStretch(SkipStretch(state) ^ second) ^ third;
  }
  for (; left >= 8; left -= 8, at += 8) state = ExtendByWord(state, at);
  uint32_t tail = static_cast<uint32_t>(state);
  for (; left > 0; --left, ++at) {
    tail = _mm_crc32_u8(tail, static_cast<unsigned char>(*at));
  }
  return ~tail;
}
#endif

}  // namespace

uint32_t internal::ExtendCrc32cByTable(uint32_t crc, absl::string_view bytes) {
  uint32_t state = ~crc;
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  for (; left >= 4; left -= 4, at += 4) {
    state ^= static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[1]) << 8 |
             static_cast<uint32_t>(at[2]) << 16 |
             static_cast<uint32_t>(at[3]) << 24;
    state = kTables[3][state & 0xff] ^ kTables[2][(state >> 8) & 0xff] ^
            kTables[1][(state >> 16) & 0xff] ^ kTables[0][state >> 24];
  }
  for (; left > 0; --left, ++at) {
    state = (state >> 8) ^ kTables[0][(state ^ *at) & 0xff];
  }
  return ~state;
}

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ExtendByInstruction(crc, bytes);
#endif
  return internal::ExtendCrc32cByTable(crc, bytes);
}

}  // namespace djinn
