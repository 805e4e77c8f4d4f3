#include "scheduler/placement/stages/stages.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::scheduler {
namespace {

using semantics::Residency;

// Limits of the search, which takes some ten milliseconds at most. Its time and
// memory are proportional to the square of kMaxUnits, and to the product of
// both.
constexpr int kMaxUnits = 512;
constexpr size_t kMaxUses = 20'000;

absl::Status NotDivisible(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_DIVISIBLE",
                   absl::StrCat("no stages: ", why));
}

bool Stays(const semantics::SlotMeaning& slot) {
  return slot.residency == Residency::kPersistentWeight ||
         slot.residency == Residency::kStatefulKvCache;
}

// A value that one unit makes and others use.
struct Crossing {
  int producer = 0;
  std::vector<int> consumers;  // units except the producer, ascending
  uint64_t bytes = 0;
};

// A graph as a sequence of units, which are not cut.
class Units {
 public:
  Units(const srg::Graph& graph, const semantics::Meaning& meaning)
      : frame_(graph), meaning_(meaning) {
    unit_of_slot_.assign(graph.slots.size(), -1);
    for (int node = 0; node < frame_.node_count(); ++node) Assign(node);
    Join();
    FindCrossings();
  }

  int count() const { return count_; }
  const semantics::Frame& frame() const { return frame_; }
  int of_node(int node) const { return unit_of_node_[node]; }
  // Returns -1 when no unit keeps the slot.
  int of_slot(uint32_t slot) const { return unit_of_slot_[slot]; }
  const std::vector<Crossing>& crossings() const { return crossings_; }

 private:
  // Returns the slots that stay and that the node uses, the largest first.
  std::vector<uint32_t> Kept(int node) const {
    std::vector<uint32_t> slots;
    for (const semantics::Frame::Operand& operand : frame_.operands(node)) {
      const uint32_t slot = operand.view->slot;
      if (Stays(meaning_.slots[slot])) slots.push_back(slot);
    }
    std::stable_sort(slots.begin(), slots.end(), [&](uint32_t a, uint32_t b) {
      return meaning_.slots[a].size_bytes > meaning_.slots[b].size_bytes;
    });
    return slots;
  }

  void Assign(int node) {
    const std::vector<uint32_t> kept = Kept(node);
    int unit = node == 0 ? -1 : unit_of_node_.back();
    if (!kept.empty()) {
      // Puts the node into the unit of its largest weight that has a unit, or
      // into a new unit.
      unit = -1;
      int least = count_;
      int most = -1;
      for (const uint32_t slot : kept) {
        const int known = unit_of_slot_[slot];
        if (known < 0) continue;
        if (unit < 0) unit = known;
        least = std::min(least, known);
        most = std::max(most, known);
      }
      if (most > least) ties_.push_back({least, most});
    }
    if (unit < 0) unit = count_++;
    unit_of_node_.push_back(unit);
    for (const uint32_t slot : kept) {
      if (unit_of_slot_[slot] < 0) unit_of_slot_[slot] = unit;
    }
  }

  // Joins units that must not be separated.
  void Join() {
    std::vector<bool> tied(count_ + 1, false);  // to the previous unit
    for (const auto& [least, most] : ties_) {
      for (int unit = least + 1; unit <= most; ++unit) tied[unit] = true;
    }
    std::vector<int> joined(count_);
    int last = -1;
    for (int unit = 0; unit < count_; ++unit) {
      if (!tied[unit]) ++last;
      joined[unit] = last;
    }
    for (int& unit : unit_of_node_) unit = joined[unit];
    for (int& unit : unit_of_slot_) {
      if (unit >= 0) unit = joined[unit];
    }
    count_ = last + 1;
  }

  void FindCrossings() {
    for (int value = 0; value < frame_.value_count(); ++value) {
      const semantics::Frame::Value& made = frame_.value(value);
      if (made.producer < 0 || unit_of_slot_[made.slot] >= 0) continue;
      Crossing crossing;
      crossing.producer = unit_of_node_[made.producer];
      for (const int reader : made.readers) {
        const int unit = unit_of_node_[reader];
        if (unit != crossing.producer) crossing.consumers.push_back(unit);
      }
      std::sort(crossing.consumers.begin(), crossing.consumers.end());
      crossing.consumers.erase(
          std::unique(crossing.consumers.begin(), crossing.consumers.end()),
          crossing.consumers.end());
      crossing.bytes = meaning_.slots[made.slot].size_bytes;
      if (!crossing.consumers.empty()) {
        crossings_.push_back(std::move(crossing));
      }
    }
  }

  const semantics::Frame frame_;
  const semantics::Meaning& meaning_;
  int count_ = 0;
  std::vector<int> unit_of_node_;
  std::vector<int> unit_of_slot_;
  std::vector<std::pair<int, int>> ties_;
  std::vector<Crossing> crossings_;
};

// The bytes that stretches [first, last] of units fetch from other units, by
// first and last.
class Inputs {
 public:
  explicit Inputs(const Units& units)
      : count_(units.count()),
        bytes_(static_cast<size_t>(count_) * static_cast<size_t>(count_)) {
    struct Use {
      const Crossing* crossing;
      int before;  // the consumer before; -1 for the first
    };
    std::vector<std::vector<Use>> uses(count_);
    // A value of a unit, and the last earlier unit that uses it.
    struct Made {
      uint64_t bytes;
      int last_before;
    };
    std::vector<std::vector<Made>> made(count_);
    for (const Crossing& crossing : units.crossings()) {
      int before = -1;
      int last_before = -1;
      for (const int consumer : crossing.consumers) {
        uses[consumer].push_back({&crossing, before});
        before = consumer;
        if (consumer < crossing.producer) last_before = consumer;
      }
      if (last_before >= 0) {
        made[crossing.producer].push_back({crossing.bytes, last_before});
      }
    }
    for (int first = 0; first < count_; ++first) {
      uint64_t bytes = 0;
      for (int last = first; last < count_; ++last) {
        for (const Use& use : uses[last]) {
          const bool is_new = use.before < first;
          const int producer = use.crossing->producer;
          if (is_new && (producer < first || producer > last)) {
            bytes += use.crossing->bytes;
          }
        }
        for (const Made& value : made[last]) {
          if (value.last_before >= first) bytes -= value.bytes;
        }
        bytes_[Index(first, last)] = bytes;
      }
    }
  }

  uint64_t Bytes(int first, int last) const {
    return bytes_[Index(first, last)];
  }

 private:
  size_t Index(int first, int last) const {
    return static_cast<size_t>(first) * static_cast<size_t>(count_) +
           static_cast<size_t>(last);
  }

  const int count_;
  std::vector<uint64_t> bytes_;
};

// The best cut of the first units among the first workers: seconds of the
// slowest stage and bytes between stages.
struct Best {
  double bottleneck = std::numeric_limits<double>::infinity();
  double crossed = 0;
  // First unit of the last worker's stage; its end if that worker has none.
  int begin = 0;

  bool IsBetterThan(const Best& other) const {
    return bottleneck != other.bottleneck ? bottleneck < other.bottleneck
                                          : crossed < other.crossed;
  }
};

class Search {
 public:
  Search(const Units& units, const semantics::Meaning& meaning,
         absl::Span<const StageWorker> workers,
         const semantics::CostFactors& factors)
      : units_(units),
        meaning_(meaning),
        workers_(workers),
        factors_(factors),
        known_(std::all_of(
            workers.begin(), workers.end(),
            [](const StageWorker& worker) { return IsKnown(worker.speed); })),
        inputs_(units) {
    for (size_t worker = 0; worker < workers.size(); ++worker) {
      std::vector<double> seconds(units.count() + 1, 0);
      for (int node = 0; node < units.frame().node_count(); ++node) {
        seconds[units.of_node(node) + 1] += Seconds(worker, node);
      }
      for (int unit = 0; unit < units.count(); ++unit) {
        seconds[unit + 1] += seconds[unit];
      }
      seconds_.push_back(std::move(seconds));
      room_.push_back(workers[worker].available_bytes);
    }
    weights_.assign(units.count() + 1, 0);
    for (uint32_t slot = 0; slot < meaning.slots.size(); ++slot) {
      if (units.of_slot(slot) < 0) continue;
      weights_[units.of_slot(slot) + 1] += meaning.slots[slot].size_bytes;
    }
    for (int unit = 0; unit < units.count(); ++unit) {
      weights_[unit + 1] += weights_[unit];
    }
  }

  double Seconds(size_t worker, int node) const {
    const semantics::NodeMeaning& found = meaning_.nodes[node];
    const Work::Part part{units_.frame().op_class(node), found.phase,
                          found.cost, 1};
    if (!known_) return RooflineSeconds(part, kReferenceSpeed);
    return RooflineSeconds(part, workers_[worker].speed) *
           factors_.Factor(part.op_class, part.phase, workers_[worker].device);
  }
  // Returns bytes per second.
  double Link(size_t worker) const {
    const double link = workers_[worker].link_bytes_per_second;
    return link > 0 ? link : kReferenceLink;
  }

  struct Placed {
    StagePlan::Stage stage;
    int first_unit;
    int last_unit;
  };

  Placed Place(size_t worker, int first, int last) const {
    StagePlan::Stage stage;
    stage.worker = static_cast<uint32_t>(worker);
    stage.weight_bytes = weights_[last + 1] - weights_[first];
    stage.input_bytes = inputs_.Bytes(first, last);
    stage.compute_seconds =
        seconds_[worker][last + 1] - seconds_[worker][first];
    stage.transfer_seconds =
        static_cast<double>(stage.input_bytes) / Link(worker);
    return {stage, first, last};
  }

  // Returns the workers' stages, or none if there is no room.
  std::vector<Placed> Cut() const {
    const int count = units_.count();
    std::vector<std::vector<Best>> best(workers_.size() + 1,
                                        std::vector<Best>(count + 1));
    best[0][0].bottleneck = 0;
    for (size_t worker = 0; worker < workers_.size(); ++worker) {
      for (int end = 0; end <= count; ++end) {
        Best& found = best[worker + 1][end];
        found = best[worker][end];
        found.begin = end;
        for (int begin = 0; begin < end; ++begin) {
          const Best& rest = best[worker][begin];
          const StagePlan::Stage stage = Place(worker, begin, end - 1).stage;
          if (stage.weight_bytes > room_[worker]) continue;
          const Best candidate = {
              std::max(rest.bottleneck, stage.seconds()),
              rest.crossed + static_cast<double>(stage.input_bytes), begin};
          if (candidate.IsBetterThan(found)) found = candidate;
        }
      }
    }
    std::vector<Placed> stages;
    int end = count;
    for (size_t worker = workers_.size(); worker-- > 0;) {
      const Best& last = best[worker + 1][end];
      if (last.bottleneck == std::numeric_limits<double>::infinity()) return {};
      if (last.begin < end) {
        stages.push_back(Place(worker, last.begin, end - 1));
      }
      end = last.begin;
    }
    std::reverse(stages.begin(), stages.end());
    return stages;
  }

  // Returns the stages of an earlier plan. Returns none if its stages are not
  // stretches of these units on these workers.
  std::vector<Placed> InForce(absl::Span<const uint32_t> worker_of_node) const {
    const int nodes = units_.frame().node_count();
    if (worker_of_node.size() != static_cast<size_t>(nodes)) return {};
    constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
    std::vector<uint32_t> workers(units_.count(), kNone);
    for (int node = 0; node < nodes; ++node) {
      uint32_t& worker = workers[units_.of_node(node)];
      if (worker == kNone) worker = worker_of_node[node];
      if (worker != worker_of_node[node] || worker >= workers_.size()) {
        return {};
      }
    }
    std::vector<Placed> stages;
    for (int unit = 0; unit < units_.count(); ++unit) {
      if (stages.empty() || stages.back().stage.worker < workers[unit]) {
        stages.push_back(Place(workers[unit], unit, unit));
      } else if (stages.back().stage.worker == workers[unit]) {
        stages.back() = Place(workers[unit], stages.back().first_unit, unit);
      } else {
        return {};
      }
    }
    return stages;
  }

  // Adds room to the worker.
  void AddRoom(size_t worker, uint64_t bytes) {
    uint64_t& room = room_[worker];
    room += std::min(bytes, std::numeric_limits<uint64_t>::max() - room);
  }

  // Places all units on the worker that is the fastest for them, or on the
  // first one if that is nearly as fast. Returns nothing if no worker has room.
  std::optional<Placed> Alone() const {
    std::optional<Placed> found;
    for (size_t worker = 0; worker < workers_.size(); ++worker) {
      const Placed all = Place(worker, 0, units_.count() - 1);
      if (all.stage.weight_bytes > room_[worker]) continue;
      if (!found.has_value() ||
          all.stage.seconds() < (1 - kCutMargin) * found->stage.seconds()) {
        found = all;
      }
    }
    return found;
  }

 private:
  const Units& units_;
  const semantics::Meaning& meaning_;
  const absl::Span<const StageWorker> workers_;
  const semantics::CostFactors& factors_;
  // True when the speed of every worker is known.
  const bool known_;
  const Inputs inputs_;
  std::vector<std::vector<double>> seconds_;  // by worker, before each unit
  std::vector<uint64_t> weights_;             // bytes before each unit
  std::vector<uint64_t> room_;                // by worker
};

// Writes into the plan the worker of each node, the slots that each stage
// keeps, and the values that move between stages.
void Bind(const srg::Graph& graph, const semantics::Meaning& meaning,
          const Units& units, const Search& search,
          absl::Span<const Search::Placed> placed, StagePlan* plan) {
  std::vector<uint32_t> stage_of_unit(units.count());
  std::vector<double> links;
  for (size_t i = 0; i < placed.size(); ++i) {
    for (int unit = placed[i].first_unit; unit <= placed[i].last_unit; ++unit) {
      stage_of_unit[unit] = static_cast<uint32_t>(i);
    }
    links.push_back(search.Link(placed[i].stage.worker));
  }
  std::vector<double> seconds;
  for (int node = 0; node < units.frame().node_count(); ++node) {
    const uint32_t number = stage_of_unit[units.of_node(node)];
    StagePlan::Stage& stage = plan->stages[number];
    ++stage.node_count;
    plan->stage_of_node.push_back(number);
    seconds.push_back(search.Seconds(stage.worker, node));
  }
  const CutNodes cut = {plan->stage_of_node, seconds, links};
  plan->remaining_of_node = RemainingSeconds(meaning.edges, cut);
  plan->transfers =
      FindTransfers(units.frame(), meaning.slots, cut, plan->remaining_of_node);
  plan->worker_of_slot.assign(graph.slots.size(), -1);
  for (uint32_t slot = 0; slot < graph.slots.size(); ++slot) {
    const int unit = units.of_slot(slot);
    if (unit < 0) continue;
    plan->worker_of_slot[slot] =
        static_cast<int>(plan->stages[stage_of_unit[unit]].worker);
  }
}

}  // namespace

double StagePlan::bottleneck_seconds() const {
  double most = 0;
  for (const Stage& stage : stages) most = std::max(most, stage.seconds());
  return most;
}

absl::StatusOr<StagePlan> PlanStages(const srg::Graph& graph,
                                     const semantics::Meaning& meaning,
                                     absl::Span<const StageWorker> workers,
                                     const semantics::CostFactors& factors,
                                     absl::Span<const uint32_t> in_force) {
  const Units units(graph, meaning);
  bool keeps = false;
  for (const semantics::SlotMeaning& slot : meaning.slots) keeps |= Stays(slot);
  if (!keeps) return NotDivisible("it has no weights");
  if (units.count() > kMaxUnits) {
    return NotDivisible(absl::StrCat(units.count(), " layers, at most ",
                                     kMaxUnits, " are looked at"));
  }
  size_t uses = 0;
  for (const Crossing& crossing : units.crossings()) {
    uses += crossing.consumers.size();
  }
  if (uses > kMaxUses) {
    return NotDivisible(absl::StrCat(uses, " values between its layers, ",
                                     kMaxUses, " are looked at"));
  }
  Search search(units, meaning, workers, factors);
  const std::vector<Search::Placed> before = search.InForce(in_force);
  for (const Search::Placed& each : before) {
    // The weights of a stage in force are on its worker already, so they need
    // no further room.
    search.AddRoom(each.stage.worker, each.stage.weight_bytes);
  }
  std::vector<Search::Placed> placed = search.Cut();
  if (placed.empty()) {
    return NotDivisible(
        absl::StrCat("the workers have no room for its ",
                     search.Place(0, 0, units.count() - 1).stage.weight_bytes,
                     " bytes of weights"));
  }
  StagePlan plan;
  plan.alone_seconds = search.Place(0, 0, units.count() - 1).stage.seconds();
  for (const Search::Placed& each : placed) plan.stages.push_back(each.stage);
  const std::optional<Search::Placed> alone = search.Alone();
  if (alone.has_value() &&
      plan.bottleneck_seconds() > (1 - kCutMargin) * alone->stage.seconds()) {
    placed = {*alone};
    plan.stages = {alone->stage};
  }
  if (!before.empty()) {
    StagePlan same;
    for (const Search::Placed& each : before) same.stages.push_back(each.stage);
    if (plan.bottleneck_seconds() >
        (1 - kCutMargin) * same.bottleneck_seconds()) {
      placed = before;
      plan.stages = std::move(same.stages);
    }
  }
  Bind(graph, meaning, units, search, placed, &plan);
  return plan;
}

}  // namespace djinn::scheduler
