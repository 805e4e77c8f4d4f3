#include "tests/bench/fill.h"

#include <cstring>

namespace djinn::bench {
namespace {

// The finaliser of splitmix64.
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t Word(uint64_t seed, size_t offset) {
  return Mix(Mix(seed + 0x9e3779b97f4a7c15) + offset);
}

}  // namespace

void Fill(uint64_t seed, void* bytes, size_t size) {
  char* out = static_cast<char*>(bytes);
  for (size_t offset = 0; offset < size; offset += sizeof(uint64_t)) {
    const uint64_t word = Word(seed, offset);
    std::memcpy(out + offset, &word, sizeof(word));
  }
}

bool IsFilled(uint64_t seed, const void* bytes, size_t size) {
  const char* in = static_cast<const char*>(bytes);
  for (size_t offset = 0; offset < size; offset += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, in + offset, sizeof(word));
    if (word != Word(seed, offset)) return false;
  }
  return true;
}

}  // namespace djinn::bench
