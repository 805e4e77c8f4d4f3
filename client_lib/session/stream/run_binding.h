// Defines the storage that each slot of a run is bound to, and the sized graph
// of a captured run.
#ifndef CLIENT_LIB_SESSION_STREAM_RUN_BINDING_H_
#define CLIENT_LIB_SESSION_STREAM_RUN_BINDING_H_

#include <cstdint>
#include <string>

#include "client_lib/session/model/remote_storage.h"
#include "common/srg/graph.h"

namespace djinn {

// A graph with a size hole, and its key.
struct SizedGraph {
  std::string key;
  srg::Graph graph;
};

// The storage that a slot of a run is bound to.
struct RunBinding {
  // Null for a temporary of a captured graph, which no program can name.
  RemoteStorage* storage = nullptr;
  uint64_t id = 0;
  uint64_t base_version = 0;
  // Size when the run was recorded; 0 without a storage.
  uint64_t size_bytes = 0;
  uint32_t writes = 0;
  // Number of times that the storage was counted as used by the run.
  uint32_t uses = 0;
  bool reads = false;
  bool created = false;
  // The storage is a temporary that nothing names after this run.
  bool dies = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_RUN_BINDING_H_
