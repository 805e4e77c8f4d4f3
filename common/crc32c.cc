#include "common/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace djinn {
namespace {

// Four tables: the checksum of a byte that 0 to 3 further bytes follow.
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
__attribute__((target("sse4.2"))) uint32_t
ExtendByInstruction(uint32_t crc, absl::string_view bytes) {
  uint64_t state = ~crc;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    state = _mm_crc32_u64(state, word);
  }
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
