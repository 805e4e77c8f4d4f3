// What is known of a program from other graphs, for one that shows only a
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

// What an earlier analysis of a graph found that stays.
struct Known {
  std::vector<Origin> nodes;
  // Of slots.
  std::vector<Modality> sources;
  std::vector<bool> embedded;
};

// Of one session. Which values are bound to a graph is not known here: a
// value is known again by its type and size. Bounded: what was told least
// recently goes first. Not thread-safe.
class Context {
 public:
  using Key = std::pair<srg::DataType, uint64_t>;  // with bytes

  // How a value is known again; nothing when too many are like it: numbers that
  // are counted, vectors, and what takes less than 256 bytes.
  static std::optional<Key> KeyOf(const srg::TensorView* view);

  // Work of that origin made, or read, a value.
  void RememberMade(Key key, Origin origin) { made_.Put(key, {origin}); }
  // Likewise, and nothing in its own graph reads it: another one will.
  // `embedding`: that work was an embedding's.
  void RememberLeft(Key key, Origin origin, const srg::TensorView& view,
                    bool embedding = false) {
    made_.Put(key, {origin, view.sizes, embedding});
  }
  // An embedding of unknown origin left a value: what is known of one of that
  // size stays.
  void RememberEmbedding(Key key, const srg::TensorView& view);
  void RememberRead(Key key, Origin origin) { read_.Put(key, {origin}); }
  void RememberLast(Phase phase) { last_ = phase; }
  // Of the graph before; unspecified when it was not known.
  Phase last() const { return last_; }
  // Rows are routed to experts somewhere in the program.
  void RememberExperts() { has_experts_ = true; }
  bool has_experts() const { return has_experts_; }
  // Images are cut into patches.
  void RememberPatches() { has_patches_ = true; }
  bool has_patches() const { return has_patches_; }

  // Something else than a projection made such a value.
  void ForgetProjections(Key key);
  // A projection was among the last to make such a value, and left it.
  void RememberProjection(const Projection& left);
  // What projections left in such a value was put in another order, or with
  // other rows, and left as this one.
  void RememberMoved(Key key, int64_t width, const Projection& left);
  // What projections left as such a value.
  std::vector<Projection> ProjectionsIn(Key key) const;
  // A join reads such a value, of rows so wide, that it did not make; -1: it
  // reads what it did not make in another order.
  void RememberJoined(Key key, int64_t width);
  // Whether rows of that width and length one were the last such value, and
  // left.
  bool IsUnitLeft(Key key, int64_t width) const;
  // Whether a join read what a projection left that is as wide as this one, of
  // as many rows: it is the same one in another piece.
  bool IsJoined(const Projection& left) const;

  // Whole numbers of these sizes, one a token, were looked up by work of that
  // origin.
  void RememberTokens(const srg::Dimensions& sizes, Origin origin);
  // Whose tokens have these sizes, by those looked up last.
  std::optional<Origin> TokensOf(const srg::Dimensions& sizes) const;

  // Who last made, or read, such a value.
  std::optional<Origin> MadeBy(Key key) const { return Find(made_, key); }
  std::optional<Origin> ReadBy(Key key) const { return Find(read_, key); }
  // Who last made what the view shows, if that was left for another graph
  // and its sizes are the same; an image's rows and columns may have become one
  // dimension. One vector a row is nobody's: a weight may look the same. So
  // what a program's other models left is hardly ever taken for this one's.
  std::optional<Origin> LeftBy(const srg::TensorView& view) const;
  // Whether that was an embedding.
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
  // Few are looked for, and seldom; oldest first.
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
  // Of the graph before.
  Phase last_ = Phase::kUnspecified;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_CONTEXT_H_
