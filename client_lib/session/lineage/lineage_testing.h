// Makes messages for tests of lineages.
#ifndef CLIENT_LIB_SESSION_LINEAGE_LINEAGE_TESTING_H_
#define CLIENT_LIB_SESSION_LINEAGE_LINEAGE_TESTING_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/session/lineage/lineage.h"

namespace djinn {

inline constexpr uint64_t kAmple = uint64_t{1} << 40;

struct TestPayload : Lineage::Payload {};

inline Lineage::Message MessageOf(std::vector<Lineage::Use> uses,
                                  bool awaits_answer = false,
                                  uint64_t bytes = 0) {
  Lineage::Message message;
  message.uses = std::move(uses);
  message.payload = std::make_unique<TestPayload>();
  message.bytes = bytes;
  message.awaits_answer = awaits_answer;
  return message;
}

inline Lineage::Use Creates(uint64_t storage) {
  return {storage, 0, 1, false, 8};
}
inline Lineage::Use Reads(uint64_t storage, uint64_t version) {
  return {storage, version, 0, true, 8};
}
inline Lineage::Use Updates(uint64_t storage, uint64_t version) {
  return {storage, version, 1, true, 8};
}
inline Lineage::Use Overwrites(uint64_t storage, uint64_t version) {
  return {storage, version, 1, false, 8};
}

inline std::vector<uint64_t> Kept(Lineage& lineage) {
  std::vector<uint64_t> sequences;
  for (const Lineage::Node& node : lineage.nodes()) {
    sequences.push_back(node.sequence);
  }
  return sequences;
}

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_LINEAGE_LINEAGE_TESTING_H_
