// Changes protocol buffers at random according to their descriptors, so that a
// fuzzer tests the code behind the parser rather than the parser.
#ifndef COMMON_FUZZ_MUTATE_MESSAGE_H_
#define COMMON_FUZZ_MUTATE_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "google/protobuf/message.h"

// Changes bytes as libFuzzer does, and returns the new size.
// common/fuzz/replay.cc defines a small version for binaries without libFuzzer.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace djinn::fuzz {

using Random = std::minstd_rand;

// Changes one thing in the message or in a message within it: a value, the
// presence of a field, or the number or order of elements. May also replace a
// part of the message by another part of the same type. Equal seeds change
// equal messages in the same way.
void MutateMessage(Random* random, google::protobuf::Message* message);

// Implements LLVMFuzzerCustomMutator: changes the encoded message, mostly as a
// message and sometimes as bytes. Bytes that do not parse are changed as bytes.
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
