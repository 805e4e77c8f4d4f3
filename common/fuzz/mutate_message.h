// Changes protocol buffers at random, by what their descriptors say, so that a
// fuzzer spends its time behind the parser and not in front of it.
#ifndef COMMON_FUZZ_MUTATE_MESSAGE_H_
#define COMMON_FUZZ_MUTATE_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "google/protobuf/message.h"

// libFuzzer's own way to change bytes; common/fuzz/replay.cc brings a small one
// for binaries without libFuzzer. Returns the new size.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace djinn::fuzz {

using Random = std::minstd_rand;

// Changes one thing in the message or in one below it: a value, the presence of
// a field, the number or order of elements, or a part by another part of the
// same type. Equal seeds change equal messages alike.
void MutateMessage(Random* random, google::protobuf::Message* message);

// For LLVMFuzzerCustomMutator: changes the encoded message, mostly as a
// message, at times as bytes. What does not parse is changed as bytes.
template <typename Message>
size_t MutateEncoded(uint8_t* data, size_t size, size_t max_size,
                     unsigned int seed) {
  Random random(seed);
  Message message;
  if (random() % 8 == 0 ||
      !message.ParseFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  for (int left = 1 + random() % 4; left > 0; --left) {
    MutateMessage(&random, &message);
  }
  const std::string bytes = message.SerializeAsString();
  if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  bytes.copy(reinterpret_cast<char*>(data), bytes.size());
  return bytes.size();
}

}  // namespace djinn::fuzz

#endif  // COMMON_FUZZ_MUTATE_MESSAGE_H_
