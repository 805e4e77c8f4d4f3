// Keeps what other graphs of a program showed, for a graph that holds only a
// piece of it.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_CONTEXT_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_CONTEXT_H_

#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/srg/graph.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

struct Origin {
  Phase phase = Phase::kUnspecified;
  Modality modality = Modality::kUnspecified;
};

// The parts of an earlier finding about a graph that stay.
struct Known {
  std::vector<Origin> nodes;
  // The `source` and `embedded` of each slot.
  std::vector<Modality> sources;
  std::vector<bool> embedded;
};

// The context of one session. It does not see which values are bound to a
// graph, and therefore recognizes a value by its type and size. Its size is
// bounded: the least recently updated entry is dropped first. Not thread-safe.
class Context {
 public:
  using Key = std::pair<srg::DataType, uint64_t>;  // with bytes

  // Returns the key by which a value is recognized. Returns nothing for values
  // that too many others resemble: integers, vectors, and values of less than
  // 256 bytes.
  static std::optional<Key> KeyOf(const srg::TensorView* view);

  // Notes a value that work of `origin` made.
  void RememberMade(Key key, Origin origin) { made_.Put(key, {origin}); }
  // Notes a value that work of `origin` made and that its own graph does not
  // read; a later graph will. `embedding` says whether an embedding made it.
  void RememberLeft(Key key, Origin origin, const srg::TensorView& view,
                    bool embedding = false) {
    made_.Put(key, {origin, view.sizes, embedding});
  }
  // Notes that an embedding of unknown origin left a value. Keeps the known
  // origin of a value of that size.
  void RememberEmbedding(Key key, const srg::TensorView& view);
  void RememberRead(Key key, Origin origin) { read_.Put(key, {origin}); }
  void RememberLast(Phase phase) { last_ = phase; }
  // Returns the phase of the previous graph; unspecified when unknown.
  Phase last() const { return last_; }
  // Notes that the program routes rows to experts.
  void RememberExperts() { has_experts_ = true; }
  bool has_experts() const { return has_experts_; }
  // Notes that the program cuts images into patches.
  void RememberPatches() { has_patches_ = true; }
  bool has_patches() const { return has_patches_; }

  // Notes that something other than a projection made such a value.
  void ForgetProjections(Key key);
  // Notes that a projection made such a value and left it to other graphs.
  void RememberProjection(const Projection& left);
  // Notes that a projection's value was reordered, or combined with other rows,
  // and left under this key and width for another graph.
  void RememberMoved(Key key, int64_t width, const Projection& left);
  // Returns the projections that left such a value.
  std::vector<Projection> ProjectionsIn(Key key) const;
  // Notes that a join reads, from another graph, a value with this key and with
  // rows of this width. A width of -1 means that the join reads it in another
  // order.
  void RememberJoined(Key key, int64_t width);
  // Returns whether a value with this key, with rows of this width, was left as
  // rows of length one.
  bool IsUnitLeft(Key key, int64_t width) const;
  // Returns whether a join read what an equal projection left. Such a
  // projection is the same one in another piece.
  bool IsJoined(const Projection& left) const;

  // Notes that work of `origin` looked up integers of these sizes, one for each
  // token.
  void RememberTokens(const srg::Dimensions& sizes, Origin origin);
  // Returns the origin of the latest look-up of tokens of these sizes.
  std::optional<Origin> TokensOf(const srg::Dimensions& sizes) const;

  // Return the origin of the work that last made, or read, such a value.
  std::optional<Origin> MadeBy(Key key) const { return Find(made_, key); }
  std::optional<Origin> ReadBy(Key key) const { return Find(read_, key); }
  // Returns the origin of the work that last made the value that the view
  // shows, if it left the value for another graph and the sizes are equal. An
  // image's rows and columns may have become one dimension. Returns nothing for
  // one vector per row, because a weight may look the same. Values that other
  // models of the program left are therefore hardly ever mistaken for this
  // one's.
  std::optional<Origin> LeftBy(const srg::TensorView& view) const;
  // Returns whether an embedding made that value.
  bool IsLeftByEmbedding(const srg::TensorView& view) const;

 private:
  class Table {
   public:
    struct Value {
      Origin origin;
      srg::Dimensions left_sizes;  // empty when it was not left
      bool embedding = false;
    };

    void Put(Key key, Value value);
    const Value* Find(Key key) const;
    Value* Find(Key key);

   private:
    static constexpr size_t kMaxValues = 256;
    struct Entry {
      Value value;
      std::list<Key>::iterator age;
    };
    absl::flat_hash_map<Key, Entry> values_;
    std::list<Key> ages_;  // oldest first
  };

  std::optional<Origin> Find(const Table& table, Key key) const;
  const Table::Value* FindLeft(const srg::TensorView& view) const;

  Table made_;
  Table read_;
  // The following lists are short and rarely searched; oldest first.
  static constexpr size_t kMaxProjections = 16;
  struct Left {
    Key key;
    int64_t width;
    Projection made;
  };
  std::list<Left> projections_;
  std::list<Projection> joined_;
  std::list<std::pair<srg::Dimensions, Origin>> tokens_;
  bool has_experts_ = false;
  bool has_patches_ = false;
  // Phase of the previous graph.
  Phase last_ = Phase::kUnspecified;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_CONTEXT_H_
