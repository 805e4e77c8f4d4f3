#include "common/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"

namespace djinn {
namespace {

class KernelRandom : public RandomSource {
 public:
  std::string Bytes(size_t count) override {
    std::string bytes(count, '\0');
    for (size_t done = 0; done < count;) {
      const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
      if (got < 0) {
        if (errno == EINTR) continue;
        // Tokens from a weaker source would be a security hole.
        std::perror("djinn: getrandom");
        std::abort();
      }
      done += static_cast<size_t>(got);
    }
    return bytes;
  }
};

}  // namespace

uint64_t RandomSource::NonZero64() {
  for (;;) {
    uint64_t value;
    std::memcpy(&value, Bytes(sizeof(value)).data(), sizeof(value));
    if (value != 0) return value;
  }
}

std::string RandomSource::HexId() { return absl::BytesToHexString(Bytes(16)); }

RandomSource* RandomSource::Real() {
  static KernelRandom* const source = new KernelRandom;
  return source;
}

std::string FakeRandomSource::Bytes(size_t count) {
  MutexLock lock(&mu_);
  std::string bytes(count, '\0');
  uint64_t value = next_++;
  for (size_t i = 0; i < count && value != 0; ++i, value >>= 8) {
    bytes[i] = static_cast<char>(value & 0xff);
  }
  return bytes;
}

}  // namespace djinn
