// Keeps what a device sent to its worker, as long as something alive depends on
// it, so that another worker can compute the same values again.
//
// There is a node for each ordered message that reads or writes storages, or
// that has an answer. A node is kept while
//
// - the worker has not executed it, or its answer has not arrived;
// - it produced the current version of a storage that is not freed;
// - a node that is kept reads a version that it produced.
//
// A message that overwrites a storage without reading it cuts the chain of the
// storage's earlier versions. The kept nodes, in the order in which they were
// added, are therefore the smallest set of messages that produces every live
// value and every pending answer on an empty worker.
//
// The nodes count bytes, whose sum stays within a budget: beyond it payloads
// shrink to hashes, and if that does not suffice, the oldest chains lose their
// messages.
// Their nodes, and those that depend on them, are then incomplete, until their
// storages are overwritten or freed, or read back. An incomplete node counts
// nothing: there are no more of them than live storages and pending answers.
//
// An anchor takes the place of the node that produced a version: it has the
// version's bytes, and no operands. What only led to that version is forgotten.
// Anchors are exact whatever else is kept. They cut the chains of values that
// depend on each other only if they have the versions of one point of the order
// of messages. Their bytes count apart (anchored_bytes()).
//
// Not thread-safe: the connection's lock guards it.
#ifndef CLIENT_LIB_SESSION_LINEAGE_LINEAGE_H_
#define CLIENT_LIB_SESSION_LINEAGE_LINEAGE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client_lib/session/lineage/packed_array.h"

namespace djinn {

class Lineage {
 public:
  // The data from which a message is sent again.
  struct Payload {
    virtual ~Payload() = default;
    // Returns whether this process has all that the message needs: not only the
    // hash of its bytes.
    virtual bool has_bytes() const { return true; }
    // Gives up bytes that another process may have, and returns how many. Later
    // calls return 0.
    virtual uint64_t Shrink() { return 0; }
  };

  // The effect of a message on one storage.
  struct Use {
    uint64_t storage = 0;
    // The version before the message; 0 if the message creates the storage.
    uint64_t base_version = 0;
    uint32_t writes = 0;
    // Whether the contents before the message matter.
    bool reads = false;
    // The storage's size before the message, or after one that creates or
    // resizes it.
    uint64_t size_bytes : 60 = 0;
    // Whether the storage must have its memory, although its contents do not
    // matter, because its size is not known here.
    bool needs_memory : 1 = false;
    // Whether the storage holds a generator's state. Add() also sets it if an
    // earlier message made the storage a generator.
    bool generator : 1 = false;

    bool depends() const { return reads || needs_memory; }
  };

  using Uses = PackedArray<Use>;
  struct Node;
  using Operands = absl::InlinedVector<Node*, 2>;

  // There are many nodes, so the order of the fields matters.
  struct Node {
    Uses uses;
    // Null if the node is incomplete.
    std::unique_ptr<Payload> payload;
    // Number of the message at the present worker; 0 before it is sent there.
    uint64_t sequence = 0;
    // Not OK if the node's values must not be shown, with the reason.
    absl::Status error;
    // Why the node is incomplete; empty otherwise. Lives for ever.
    const char* lack = "";

   private:
    friend class Lineage;
    // The place in the order in which nodes were added. An anchor has that of
    // the node that it replaces.
    uint64_t place = 0;
    // Counted in anchored_bytes_ if the node is an anchor, and in bytes_
    // otherwise.
    uint64_t bytes = 0;
    Operands operands;  // each once
    std::list<Node>::iterator self;
    // Number of current versions that the node produced, and of kept nodes that
    // read from it.
    uint32_t references = 0;

   public:
    // How likely it is that the message ends the workers that execute it. It
    // grows with each worker that is lost meanwhile, and is 0 again once a
    // worker has executed the message.
    uint8_t suspicion = 0;
    bool executed : 1 = false;
    bool awaits_answer : 1 = false;
    bool incomplete : 1 = false;
    bool anchor : 1 = false;
    // The message failed once because its worker lacked memory.
    bool lacked_memory : 1 = false;
    // Set if the payload lacks bytes, which the next worker must have.
    bool hash_only : 1 = false;
  };

  struct Message {
    std::vector<Use> uses;
    // Null if the message cannot be sent again.
    std::unique_ptr<Payload> payload;
    // Size of the payload.
    uint64_t bytes = 0;
    // The answer may arrive after the worker has executed the message.
    bool awaits_answer = false;
  };

  // The current value of a live storage.
  struct Value {
    uint64_t storage = 0;
    uint64_t version = 0;
    // 0 if it is not known.
    uint64_t size_bytes = 0;
    bool generator = false;
    Node* producer = nullptr;

    // Returns whether reading the value back would save more than one message,
    // or bytes that are not kept.
    bool WorthReading() const {
      return producer->error.ok() &&
             (producer->incomplete || producer->hash_only ||
              !producer->operands.empty());
    }
  };

  explicit Lineage(uint64_t budget) : budget_(budget) {}
  Lineage(const Lineage&) = delete;
  Lineage& operator=(const Lineage&) = delete;

  // Adds a message, which has a higher number than the one before. `freed` are
  // the storages that the message frees after it used them.
  void Add(uint64_t sequence, Message message,
           absl::Span<const uint64_t> freed = {});
  // Notes a message that frees storages.
  void Free(absl::Span<const uint64_t> storages);
  // Notes that the worker executed the messages up to `sequence`.
  void Executed(uint64_t sequence);
  // Notes that the answer to the message arrived.
  void Answered(uint64_t sequence);
  // Returns the node of a message that is not executed, or whose answer did not
  // arrive, or null.
  Node* FindPending(uint64_t sequence);
  // Returns the node whose version the message reads that awaits an answer and
  // has this number, or null. The message reads one storage.
  Node* ReadFrom(uint64_t sequence);
  // Keeps the node until Release().
  static void Hold(Node* node) { ++node->references; }
  void Release(Node* node);
  // Adds bytes to those that the node counts.
  void Charge(Node* node, uint64_t bytes);
  // Drops the messages of the node and of all that depends on it.
  void MakeIncomplete(Node* node);
  // Gives the error to the node and to all that depends on it. Messages that
  // are added later inherit it.
  void Taint(Node* node, const absl::Status& error);

  // --- For a checkpoint ---

  // Returns the live values whose reading is worth while, in the order in which
  // they were produced.
  std::vector<Value> ToBeRead() const;
  // Returns the current value, or a value without a producer if the storage is
  // not live.
  Value Find(uint64_t storage) const;
  struct Anchored {
    // The value as it was found. The caller holds the producer until Anchor()
    // returns; meanwhile the storage may have been written or freed.
    Value value;
    // Sends an Install of the bytes.
    std::unique_ptr<Payload> payload;
    // Size of the payload.
    uint64_t bytes = 0;
  };
  // Puts anchors in the place of the values' producers.
  void Anchor(std::vector<Anchored> values);
  // Returns the bytes of the anchors and their payloads.
  uint64_t anchored_bytes() const { return anchored_bytes_; }

  // --- For a recovery ---

  // The kept nodes in the order in which they were added. Between BeginAnew()
  // and the last Resent(), nothing else may be called.
  std::list<Node>& nodes() { return nodes_; }
  bool IsLive(uint64_t storage) const { return live_.contains(storage); }
  // Forgets the numbers of messages, because another worker counts from 1.
  void BeginAnew();
  // Notes the node's number at the new worker. The numbers ascend.
  void Resent(Node* node, uint64_t sequence);

  // --- For operators ---

  // Returns the current values of all live storages, ordered by storage.
  std::vector<Value> Values() const;
  // Returns the nodes whose versions the node reads.
  static const Operands& OperandsOf(const Node& node) { return node.operands; }
  // Returns whether `a` was added before `b`.
  static bool Precedes(const Node& a, const Node& b) {
    return a.place < b.place;
  }
  // Returns `node` and its transitive operands, `node` first, at most `most` in
  // all.
  static std::vector<const Node*> Ancestry(const Node* node, size_t most);

  // Returns whether Taint() was called.
  bool tainted() const { return tainted_; }
  // Returns whether every kept node can be sent again.
  bool complete() const { return incomplete_nodes_ == 0; }
  // Returns the number of kept nodes whose bytes the next worker must have.
  size_t hash_only_nodes() const { return hash_only_nodes_; }
  // Returns the number of live storages whose value cannot be computed again.
  size_t incomplete_storages() const;
  bool has_unexecuted() const { return !unexecuted_.empty(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t budget() const { return budget_; }
  size_t size() const { return nodes_.size(); }
  void Clear();

  // Bytes that a node counts besides its payload and its uses: also its links
  // in the list, and what the allocations of node, uses and payload cost.
  static constexpr uint64_t kNodeBytes = sizeof(Node) + 5 * sizeof(void*);
  // Bytes that an anchor counts besides its payload.
  static constexpr uint64_t kAnchorBytes = kNodeBytes + sizeof(Use);

 private:
  static bool IsPinned(const Node& node) {
    return !node.executed || node.awaits_answer;
  }
  struct Live {
    Node* producer = nullptr;
    uint64_t version = 0;
    uint64_t size_bytes = 0;
    bool generator = false;
  };
  using AnchorMap =
      absl::flat_hash_map<std::pair<uint64_t, uint64_t>,
                          std::pair<Node*, Node*>>;  // storage, version →
                                                     // producer, anchor

  static bool Produces(const Node& node, const Use& use);
  void Note(Use* use, Node* node);
  // Makes the node read from the anchors.
  void Rewire(Node* node, const AnchorMap& anchors);
  void DropIfUnused(Node* node);
  void Strip(Node* node);
  // Notes whether the node has its bytes.
  void NoteBytes(Node* node);
  // Marks every node after `first` that depends on a marked one.
  template <typename IsMarked, typename Mark>
  void Spread(Node* first, IsMarked is_marked, Mark mark);
  void Shed();

  const uint64_t budget_;
  uint64_t bytes_ = 0;
  uint64_t anchored_bytes_ = 0;
  uint64_t last_place_ = 0;
  size_t incomplete_nodes_ = 0;
  size_t hash_only_nodes_ = 0;
  bool tainted_ = false;  // some node has an error, or had one
  std::list<Node> nodes_;
  // The current version of each live storage, and its producer.
  absl::flat_hash_map<uint64_t, Live> live_;
  std::deque<Node*> unexecuted_;                  // by sequence
  absl::flat_hash_map<uint64_t, Node*> awaited_;  // by sequence
  // Nodes to be dropped; kept to save allocations.
  std::vector<Node*> unused_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_LINEAGE_LINEAGE_H_
