#include "gpu_worker/device/cuda/run_graph.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "c10/core/InferenceMode.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

constexpr absl::string_view kFailed = "GRAPH_FAILED";
// Equal runs of a program before one is recorded.
constexpr int kRunsBefore = 3;
// Successive runs that a graph did not fit, after which it is dropped.
constexpr int kMaxMisses = 3;
// Limits on the operands that one replay copies, and on the sets of operands of
// one program.
constexpr size_t kMaxCopiedOperands = 64;
constexpr size_t kMaxVariants = 8;

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

// Returns a storage over memory that another object owns.
c10::Storage Window(const void* address, uint64_t bytes, c10::Device device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      c10::DataPtr(const_cast<void*>(address), device), /*allocator=*/nullptr,
      /*resizable=*/false));
}

const TorchBuffer& Torch(const std::shared_ptr<Buffer>& buffer) {
  return static_cast<const TorchBuffer&>(*buffer);
}

// Calls `visit(view)` for each tensor of an argument.
template <typename Visitor>
void ForEachView(const srg::Argument& argument, Visitor visit) {
  if (const auto* view = std::get_if<srg::TensorView>(&argument)) {
    visit(*view);
  } else if (const auto* list =
                 std::get_if<std::vector<srg::TensorListEntry>>(&argument)) {
    for (const srg::TensorListEntry& entry : *list) {
      if (const auto* view = std::get_if<srg::TensorView>(&entry)) visit(*view);
    }
  }
}

std::optional<uint32_t> SlotOf(const srg::Result& result) {
  const auto* view = std::get_if<srg::TensorView>(&result);
  if (view == nullptr) return std::nullopt;
  return view->slot;
}

}  // namespace

RunGraph::RunGraph(Environment environment, srg::Graph srg_graph,
                   size_t flag_count, std::vector<uint32_t> draws,
                   RunNode run_node)
    : environment_(environment),
      srg_graph_(std::move(srg_graph)),
      flag_count_(flag_count),
      draws_(std::move(draws)),
      run_node_(std::move(run_node)),
      last_uses_(srg_graph_.nodes.size()),
      written_(srg_graph_.slots.size(), false) {
  std::vector<bool> seen(srg_graph_.slots.size(), false);
  for (size_t i = srg_graph_.nodes.size(); i-- > 0;) {
    const srg::Node& node = srg_graph_.nodes[i];
    const auto use = [&](uint32_t slot) {
      if (!seen[slot]) last_uses_[i].push_back(slot);
      seen[slot] = true;
    };
    for (const srg::Argument& argument : node.arguments) {
      ForEachView(argument,
                  [&](const srg::TensorView& view) { use(view.slot); });
    }
    for (const srg::Result& result : node.results) {
      if (const auto slot = SlotOf(result)) use(*slot);
    }
    for (const uint32_t slot : node.writes) written_[slot] = true;
  }
}

RunGraph::~RunGraph() {
  MutexLock lock(&mu_);
  for (const Variant& variant : variants_) {
    if (const std::shared_ptr<HeldGraph> graph = variant.graph.lock()) {
      environment_.store->Drop(graph.get());
    }
  }
}

bool RunGraph::IsOperand(const NodeInput& input, size_t slot) const {
  // No operator draws from a generator in a run that comes this far.
  return input.slots[slot] != nullptr &&
         srg_graph_.slots[slot].kind != srg::Slot::Kind::kGenerator;
}

RunGraph::Addresses RunGraph::AddressesOf(const NodeInput& input) const {
  Addresses addresses;
  for (size_t i = 0; i < input.slots.size(); ++i) {
    addresses.push_back(IsOperand(input, i) ? Torch(input.slots[i]).data()
                                            : nullptr);
  }
  return addresses;
}

RunGraph::Shape RunGraph::ShapeOf(const NodeInput& input,
                                  absl::Span<const KeptResult> kept) const {
  Shape shape;
  shape.floats.assign(input.floats.begin(), input.floats.end());
  shape.scalar_tensors.assign(input.scalar_tensors.begin(),
                              input.scalar_tensors.end());
  shape.fast = input.fast;
  shape.switches = input.switches;
  for (size_t i = 0; i < input.slots.size(); ++i) {
    shape.bytes.push_back(IsOperand(input, i) ? input.slots[i]->size_bytes()
                                              : 0);
  }
  shape.kept.assign(kept.begin(), kept.end());
  return shape;
}

bool RunGraph::Same(const Shape& a, const Shape& b) {
  return SameBits(a.floats, b.floats) && a.scalar_tensors == b.scalar_tensors &&
         a.fast == b.fast && a.switches == b.switches && a.bytes == b.bytes &&
         std::equal(a.kept.begin(), a.kept.end(), b.kept.begin(), b.kept.end(),
                    [](const KeptResult& one, const KeptResult& other) {
                      return one.slot == other.slot && one.bytes == other.bytes;
                    });
}

bool RunGraph::Fits(const HeldGraph& graph, const Shape& shape,
                    const NodeInput& input) const {
  Shape recorded;
  recorded.floats = graph.floats;
  recorded.scalar_tensors = graph.scalar_tensors;
  recorded.fast = graph.fast;
  recorded.switches = graph.switches;
  recorded.bytes.assign(shape.bytes.size(), 0);
  for (const HeldGraph::Operand& operand : graph.operands) {
    recorded.bytes[operand.slot] = operand.bytes;
  }
  recorded.kept = graph.kept;
  if (!Same(recorded, shape)) return false;
  return std::all_of(
      graph.operands.begin(), graph.operands.end(),
      [&](const HeldGraph::Operand& operand) {
        const auto& buffer = input.slots[operand.slot];
        return buffer != nullptr &&
               (operand.copy || Torch(buffer).data() == operand.address);
      });
}

std::shared_ptr<HeldGraph> RunGraph::FindFitting(const Shape& shape,
                                                 const NodeInput& input) {
  for (auto variant = variants_.begin(); variant != variants_.end();
       ++variant) {
    std::shared_ptr<HeldGraph> graph = variant->graph.lock();
    if (graph == nullptr || !Fits(*graph, shape, input)) continue;
    variants_.splice(variants_.begin(), variants_, variant);
    return graph;
  }
  return nullptr;
}

std::optional<uint64_t> RunGraph::CopiedBytes(
    const Variant& variant, const Shape& shape,
    const Addresses& addresses) const {
  const uint64_t max_bytes = environment_.store->options().max_copied_bytes;
  uint64_t bytes = 0;
  size_t operands = 0;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (!variant.moves[i] && addresses[i] == variant.addresses[i]) continue;
    if (shape.bytes[i] > max_bytes - bytes) return std::nullopt;
    bytes += shape.bytes[i];
    if (++operands > kMaxCopiedOperands) return std::nullopt;
  }
  return bytes;
}

RunGraph::Variant& RunGraph::VariantOf(const Shape& shape,
                                       const Addresses& addresses) {
  auto best = variants_.end();
  uint64_t least = 0;
  for (auto variant = variants_.begin(); variant != variants_.end();
       ++variant) {
    const std::optional<uint64_t> bytes =
        CopiedBytes(*variant, shape, addresses);
    if (!bytes.has_value()) continue;
    if (best == variants_.end() || *bytes < least) {
      best = variant;
      least = *bytes;
    }
  }
  if (best != variants_.end()) {
    variants_.splice(variants_.begin(), variants_, best);
    return variants_.front();
  }
  if (variants_.size() >= kMaxVariants) {
    // Prefers a variant without a graph, so that sets of operands that never
    // recur do not evict those that have graphs.
    auto gone = std::prev(variants_.end());
    for (auto variant = variants_.begin(); variant != variants_.end();
         ++variant) {
      if (variant->graph.expired()) gone = variant;
    }
    if (const std::shared_ptr<HeldGraph> graph = gone->graph.lock()) {
      environment_.store->Drop(graph.get());
    }
    variants_.erase(gone);
  }
  Variant variant;
  variant.id = next_id_++;
  variant.last = shape;
  variant.addresses = addresses;
  variant.moves.resize(addresses.size(), false);
  variants_.push_front(std::move(variant));
  return variants_.front();
}

void RunGraph::NoteRun(Variant* variant, Shape shape, Addresses addresses) {
  if (Same(variant->last, shape)) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      if (addresses[i] != variant->addresses[i]) variant->moves[i] = true;
    }
  } else {
    variant->alike = std::min(variant->alike, 0);
  }
  variant->last = std::move(shape);
  variant->addresses = std::move(addresses);
  noted_variant_ = variant->id;
}

void RunGraph::Observe(bool plain) {
  MutexLock lock(&mu_);
  for (Variant& variant : variants_) {
    if (variant.id != noted_variant_) continue;
    variant.alike = plain ? variant.alike + 1 : std::min(variant.alike, 0);
  }
  noted_variant_ = 0;
}

void RunGraph::NoteRefusal(Variant* variant, const absl::Status& why) {
  if (!absl::IsResourceExhausted(why)) {
    environment_.store->Count("graphs_refused_failed");
    refused_.store(true, std::memory_order_relaxed);
    return;
  }
  environment_.store->Count("graphs_refused_memory");
  // Each refusal doubles the number of runs before the next attempt.
  constexpr int kMaxDoublings = 8;
  variant->refusals = std::min(variant->refusals + 1, kMaxDoublings);
  variant->alike = -(kRunsBefore << variant->refusals);
}

std::shared_ptr<HeldGraph> RunGraph::Execute(
    const NodeInput& input, absl::Span<const KeptResult> kept,
    std::vector<std::shared_ptr<Buffer>>* results, absl::Status* status) {
  for (const uint32_t hole : draws_) {
    if (input.floats[hole] != 0) return nullptr;
  }
  Shape shape = ShapeOf(input, kept);
  std::shared_ptr<HeldGraph> graph;
  std::vector<bool> moves;
  bool record = false;
  {
    MutexLock lock(&mu_);
    if (busy_) return nullptr;
    graph = FindFitting(shape, input);
    if (graph == nullptr) {
      Addresses addresses = AddressesOf(input);
      Variant& variant = VariantOf(shape, addresses);
      const std::shared_ptr<HeldGraph> other = variant.graph.lock();
      if (other != nullptr) {
        environment_.store->Count("graphs_missed");
        if (++variant.misses >= kMaxMisses) {
          environment_.store->Drop(other.get());
          variant.graph.reset();
          variant.misses = 0;
          variant.alike = 0;
        }
      }
      NoteRun(&variant, shape, std::move(addresses));
      record = other == nullptr && variant.alike >= kRunsBefore;
      if (!record) return nullptr;
      moves = variant.moves;
    }
    busy_ = true;
  }
  absl::Status recorded;
  if (record) {
    absl::StatusOr<std::shared_ptr<HeldGraph>> made =
        Record(shape, input, moves);
    recorded = made.status();
    if (made.ok()) graph = *std::move(made);
  }
  const std::shared_ptr<HeldGraph> kept_graph = graph;
  std::vector<std::shared_ptr<TorchBuffer>> made;
  if (graph != nullptr) {
    const absl::Status room = CatchTorch(kFailed, [&] {
      for (const KeptResult& result : kept) {
        made.push_back(environment_.transfers->MakeForOperators(result.bytes));
      }
      return absl::OkStatus();
    });
    if (!room.ok()) graph = nullptr;
  }
  if (graph != nullptr) {
    environment_.store->Touch(graph.get());
    environment_.store->Count("graphs_replayed");
    *status = CatchTorch(kFailed, [&] { return Replay(*graph, input, made); });
    results->assign(made.begin(), made.end());
  } else {
    *status = recorded;
  }
  MutexLock lock(&mu_);
  busy_ = false;
  // The variant is still in front, because `busy_` kept all other runs out.
  Variant& variant = variants_.front();
  if (!recorded.ok()) NoteRefusal(&variant, recorded);
  if (kept_graph != nullptr) {
    variant.graph = kept_graph;
    variant.misses = 0;
    variant.refusals = 0;
  }
  if (graph != nullptr) noted_variant_ = 0;
  return graph;
}

GraphBody RunGraph::MakeBody(const HeldGraph& graph) const {
  // Copies the graph's fields, because the body may be called as long as the
  // graph lives. `this` must outlive the body: the destructor drops the graphs
  // from the store.
  return [this, operands = graph.operands, floats = graph.floats,
          scalar_tensors = graph.scalar_tensors, fast = graph.fast,
          switches = graph.switches, kept = graph.kept, flags = graph.flags](
             std::vector<c10::Storage>* made) -> absl::Status {
    const c10::InferenceMode inference;
    const c10::Device device = environment_.accelerator->device();
    std::vector<std::shared_ptr<Buffer>> slots(srg_graph_.slots.size());
    std::vector<bool> stays(slots.size(), false);
    for (const HeldGraph::Operand& operand : operands) {
      const void* const address =
          operand.copy ? operand.copy.data() : operand.address;
      slots[operand.slot] =
          std::make_shared<TorchBuffer>(Window(address, operand.bytes, device));
      stays[operand.slot] = true;
    }
    for (const KeptResult& result : kept) stays[result.slot] = true;
    const auto zeroed = [&](uint64_t bytes) {
      c10::Storage storage =
          environment_.accelerator->Allocate(bytes, StreamId::kCompute);
      if (bytes > 0) {
        environment_.accelerator->Zero(storage.mutable_data(), bytes,
                                       StreamId::kCompute);
      }
      // Orders this thread's next operators after the command.
      const auto scope = environment_.accelerator->EnterCompute();
      return std::make_shared<TorchBuffer>(std::move(storage));
    };
    std::vector<std::pair<uint32_t, uint32_t>> ends;
    for (uint32_t i = 0; i < srg_graph_.nodes.size(); ++i) {
      for (const uint32_t slot : last_uses_[i]) {
        if (!stays[slot]) ends.emplace_back(i, slot);
      }
    }
    std::sort(ends.begin(), ends.end());
    if (flags.defined()) flags.zero_();
    std::vector<NodeResult> results;
    for (uint32_t i = 0; i < srg_graph_.nodes.size(); ++i) {
      const srg::Node& node = srg_graph_.nodes[i];
      for (const srg::Argument& argument : node.arguments) {
        ForEachView(argument, [&](const srg::TensorView& view) {
          if (slots[view.slot] == nullptr) {
            slots[view.slot] =
                zeroed(srg_graph_.slots[view.slot].created_bytes);
          }
        });
      }
      results.clear();
      NodeInput input{slots, floats, scalar_tensors, fast};
      input.run_ends = ends;
      input.switches = switches;
      DJINN_RETURN_IF_ERROR(run_node_(i, input, flags, &results));
      for (size_t r = 0; r < results.size(); ++r) {
        const std::optional<uint32_t> slot = SlotOf(node.results[r]);
        if (!slot.has_value()) continue;
        if (results[r].aliased_slot.has_value() ||
            results[r].buffer == nullptr) {
          return absl::UnimplementedError("a result is an operand's memory");
        }
        slots[*slot] = std::move(results[r].buffer);
      }
      for (const uint32_t slot : last_uses_[i]) {
        if (!stays[slot]) slots[slot] = nullptr;
      }
    }
    for (const KeptResult& result : kept) {
      if (slots[result.slot] == nullptr) {
        slots[result.slot] = zeroed(result.bytes);
      }
      if (slots[result.slot]->size_bytes() != result.bytes) {
        return absl::UnimplementedError("a result of another size");
      }
      made->push_back(Torch(slots[result.slot]).storage());
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<std::shared_ptr<HeldGraph>> RunGraph::Record(
    const Shape& shape, const NodeInput& input,
    const std::vector<bool>& moves) {
  static const std::string& kNobody = *new std::string;
  auto graph = std::make_shared<HeldGraph>();
  graph->floats = shape.floats;
  graph->scalar_tensors = shape.scalar_tensors;
  graph->fast = shape.fast;
  graph->switches = shape.switches;
  graph->kept = shape.kept;
  uint64_t bytes = flag_count_;
  // Checks the least amount that the graph needs before it allocates anything.
  uint64_t needed = bytes;
  for (const KeptResult& result : shape.kept) needed += result.bytes;
  for (size_t i = 0; i < moves.size(); ++i) {
    if (moves[i]) needed += shape.bytes[i];
  }
  if (needed > environment_.store->options().max_bytes) {
    return absl::ResourceExhaustedError("more than graphs may have");
  }
  const absl::Status status = CatchTorch(kFailed, [&]() -> absl::Status {
    const c10::InferenceMode inference;
    const c10::Device device = environment_.accelerator->device();
    std::vector<c10::Storage> written;
    for (uint32_t i = 0; i < input.slots.size(); ++i) {
      if (!IsOperand(input, i)) continue;
      HeldGraph::Operand operand;
      operand.slot = i;
      operand.bytes = input.slots[i]->size_bytes();
      operand.address = Torch(input.slots[i]).data();
      operand.written = written_[i];
      if (moves[i] && operand.bytes > 0) {
        operand.copy = environment_.accelerator->Allocate(operand.bytes,
                                                          StreamId::kCompute);
        bytes += operand.bytes;
      }
      if (operand.written) {
        written.push_back(
            Window(operand.copy ? operand.copy.data() : operand.address,
                   operand.bytes, device));
      }
      environment_.transfers->Use(Torch(input.slots[i]));
      graph->operands.push_back(std::move(operand));
    }
    if (flag_count_ > 0) {
      c10::Storage flags =
          environment_.accelerator->Allocate(flag_count_, StreamId::kCompute);
      srg::TensorView view;
      view.data_type = srg::DataType::kBool;
      view.sizes = {static_cast<int64_t>(flag_count_)};
      view.strides = {1};
      graph->flags = MakeTensor(view, flags);
    }
    // Excludes earlier commands from the recording. The scope is closed at
    // once, so that the recorder may have the stream to itself.
    environment_.accelerator->EnterCompute().reset();
    DJINN_ASSIGN_OR_RETURN(graph->recording,
                           environment_.accelerator->recorder()->Record(
                               MakeBody(*graph), written));
    return absl::OkStatus();
  });
  DJINN_RETURN_IF_ERROR(status);
  bytes += graph->recording.graph->bytes();
  graph = environment_.store->Add(
      std::move(graph), input.tenant != nullptr ? *input.tenant : kNobody,
      bytes);
  if (graph == nullptr) {
    return absl::ResourceExhaustedError("no memory to spare for a graph");
  }
  environment_.store->Count("graphs_recorded");
  return graph;
}

absl::Status RunGraph::Replay(
    const HeldGraph& graph, const NodeInput& input,
    absl::Span<const std::shared_ptr<TorchBuffer>> results) {
  Accelerator& accelerator = *environment_.accelerator;
  for (const HeldGraph::Operand& operand : graph.operands) {
    const TorchBuffer& buffer = Torch(input.slots[operand.slot]);
    environment_.transfers->Use(buffer);
    if (operand.written) buffer.WillBeWritten();
    if (operand.copy) {
      accelerator.Copy(operand.copy.mutable_data(), buffer.data(),
                       operand.bytes, StreamId::kCompute);
    }
  }
  {
    const auto scope = accelerator.EnterCompute();
    graph.recording.graph->Replay();
  }
  for (const HeldGraph::Operand& operand : graph.operands) {
    if (!operand.written || !operand.copy) continue;
    accelerator.Copy(Torch(input.slots[operand.slot]).data(),
                     operand.copy.data(), operand.bytes, StreamId::kCompute);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (graph.kept[i].bytes == 0) continue;
    accelerator.Copy(results[i]->data(), graph.recording.made[i].data(),
                     graph.kept[i].bytes, StreamId::kCompute);
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
