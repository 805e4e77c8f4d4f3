// Queues graphs for the coordinator in the order in which they were defined. It
// bounds the memory of queued graphs while the coordinator is slow or absent.
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
  // Limits on the queue: messages, and their encoded bytes.
  explicit GraphQueue(size_t max_graphs = 1024, size_t max_bytes = 64 << 20)
      : max_graphs_(max_graphs), max_bytes_(max_bytes) {}

  // Appends a request whose encoding has `bytes` bytes. If there is no room,
  // drops and counts the request and returns false.
  bool Push(v1::SessionRequest request, size_t bytes);
  // Returns the first request, or null. The request stays first until Pop() or
  // Clear().
  const v1::SessionRequest* Front() const;
  // Removes the first request, if there is one.
  void Pop();
  void Clear();

  // Returns the number of requests dropped so far, without those that Clear()
  // removed.
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
