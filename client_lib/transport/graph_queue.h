// Graphs on their way to the coordinator, in the order in which they were
// defined: only so much of a program's memory is for one that is slow or away.
//
// Not thread-safe.
#ifndef CLIENT_LIB_TRANSPORT_GRAPH_QUEUE_H_
#define CLIENT_LIB_TRANSPORT_GRAPH_QUEUE_H_

#include <cstddef>
#include <deque>

#include "djinn/v1/session.pb.h"

namespace djinn {

class GraphQueue {
 public:
  // Bounds of what is queued: messages, and their bytes when they are encoded.
  explicit GraphQueue(size_t max_graphs = 1024, size_t max_bytes = 64 << 20)
      : max_graphs_(max_graphs), max_bytes_(max_bytes) {}

  // `bytes`: what the request takes when it is encoded. False when there is no
  // room; then it is dropped, and counted.
  bool Push(v1::SessionRequest request, size_t bytes);
  // Null when there is none. Stays the first one until Pop() or Clear().
  const v1::SessionRequest* Front() const;
  // Nothing when there is none.
  void Pop();
  void Clear();

  // In all; what was cleared is not among them.
  size_t dropped() const { return dropped_; }

 private:
  struct Item {
    v1::SessionRequest request;
    size_t bytes = 0;
  };

  const size_t max_graphs_;
  const size_t max_bytes_;
  std::deque<Item> items_;
  size_t bytes_ = 0;
  size_t dropped_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRAPH_QUEUE_H_
