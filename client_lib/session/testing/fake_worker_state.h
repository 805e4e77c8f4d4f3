// Defines what a fake worker stores: storages, graphs and unacknowledged
// replies. The worker's lock guards all of it.
#ifndef CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_STATE_H_
#define CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_STATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/srg/graph.h"
#include "common/srg/validate.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

struct FakeStorage {
  uint64_t version = 0;
  std::string bytes;
  uint64_t poison = 0;
};

// A graph that the client defined.
struct FakeWorkerGraph {
  srg::Graph graph;
  srg::GraphFacts facts;
  std::string fingerprint;
  struct Remembered {
    std::vector<uint64_t> storages;
    std::vector<uint32_t> final_slots;
    std::vector<double> floats;
  };
  std::vector<Remembered> remembered;  // by place
};

// A numbered response that is not acknowledged yet.
struct FakeReply {
  v1::ControlResponse response;
  uint64_t transfer_id = 0;
  std::shared_ptr<const std::string> value;  // on Bulk
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_STATE_H_
