// The main function of a fuzz target that is built as an ordinary test. It runs
// every file of the corpus, and changes of these that are the same on every
// machine.
//
// usage: TARGET FILE...
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/fuzz/mutate_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Only some targets define one.
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(
    uint8_t* data, size_t size, size_t max_size, unsigned int seed);

namespace {

constexpr int kMutations = 2000;
constexpr size_t kMaxSize = 64 << 10;

djinn::fuzz::Random byte_random(1);

// The current input, for the message of a crash.
char current[512] = "nothing yet";

void SayWhich(int signal) {
  (void)!write(STDERR_FILENO, current, std::strlen(current));
  (void)!write(STDERR_FILENO, "\n", 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void Feed(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()),
                         input.size());
}

std::string Mutated(std::string input, unsigned int seed) {
  byte_random.seed(seed + 1);
  const size_t size = input.size();
  input.resize(kMaxSize);
  auto* const data = reinterpret_cast<uint8_t*>(input.data());
  input.resize(LLVMFuzzerCustomMutator != nullptr
                   ? LLVMFuzzerCustomMutator(data, size, kMaxSize, seed)
                   : LLVMFuzzerMutate(data, size, kMaxSize));
  return input;
}

}  // namespace

// Sets, inserts or drops a few bytes.
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  for (int left = 1 + byte_random() % 4; left > 0; --left) {
    const size_t at = size == 0 ? 0 : byte_random() % size;
    switch (byte_random() % 4) {
      case 0:
        if (size == max_size) break;
        std::memmove(data + at + 1, data + at, size - at);
        data[at] = static_cast<uint8_t>(byte_random());
        ++size;
        break;
      case 1:
        if (size == 0) break;
        std::memmove(data + at, data + at + 1, size - at - 1);
        --size;
        break;
      default:
        if (size == 0) break;
        data[at] = static_cast<uint8_t>(byte_random());
    }
  }
  return size;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "no corpus\n");
    return 1;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) {
    std::signal(signal, SayWhich);
  }
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file),
                        std::istreambuf_iterator<char>());
    if (!file.is_open() || corpus.back().size() > kMaxSize) {
      std::fprintf(stderr, "cannot read %s\n", argv[i]);
      return 1;
    }
    std::snprintf(current, sizeof(current), "input: %s", argv[i]);
    Feed(corpus.back());
  }
  for (unsigned int i = 0; i < kMutations; ++i) {
    const size_t which = i % corpus.size();
    std::snprintf(current, sizeof(current), "input: %s, mutation %u",
                  argv[which + 1], i);
    Feed(Mutated(corpus[which], i));
  }
  std::printf("%zu inputs, %d mutations\n", corpus.size(), kMutations);
  return 0;
}
