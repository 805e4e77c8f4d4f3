#include "client_lib/session/stream/run_encoder.h"

#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "client_lib/session/recording/recording.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "common/srg/size_hole.h"

namespace djinn {
namespace {

// Adds the float holes whose bits differ from `before`.
void FillChangedFloats(absl::Span<const double> floats,
                       absl::Span<const double> before, v1::Run* run) {
  uint32_t next = 0;
  for (uint32_t hole = 0; hole < floats.size(); ++hole) {
    if (std::memcmp(&floats[hole], &before[hole], sizeof(double)) == 0)
      continue;
    run->mutable_repeat()->add_float_gaps(hole - next);
    run->add_float_holes(floats[hole]);
    next = hole + 1;
  }
}

// Returns how many slots are bound to other storages than before. The count
// stops once it exceeds `most`.
size_t CountChanged(absl::Span<const RunBinding> bindings,
                    const GraphTable::RememberedRun& before, size_t most) {
  size_t changed = 0;
  for (size_t slot = 0; slot < bindings.size() && changed <= most; ++slot) {
    changed +=
        !bindings[slot].created && bindings[slot].id != before.storages[slot];
  }
  return changed;
}

// If more slots than this differ, the encoder searches all remembered runs. If
// they differ even from the most similar remembered run, the new run is worth
// remembering as well.
constexpr size_t kFewChanged = 8;

struct Likeness {
  size_t place = 0;
  size_t changed = 0;
};

// Returns the most similar remembered run. The search starts after the last one
// used, because runs often alternate in a fixed order.
Likeness FindMostAlike(absl::Span<const RunBinding> bindings,
                       const GraphTable::RememberedRuns& remembered) {
  const size_t places = remembered.runs.size();
  Likeness best{remembered.last_place, bindings.size()};
  for (size_t i = 1; i <= places && best.changed > kFewChanged; ++i) {
    const size_t place = (remembered.last_place + i) % places;
    const size_t changed =
        CountChanged(bindings, remembered.runs[place], best.changed);
    if (changed < best.changed) best = {place, changed};
  }
  return best;
}

// Returns the family's graph, given the graph of a member.
srg::Graph AtSizeZero(srg::Graph graph, const SizeFamilies::Member& member) {
  graph.size_hole = *member.hole;
  // Cannot fail: the conversion was checked when the member was found.
  srg::Graph base = *srg::AtSize(std::move(graph), -member.size);
  base.size_hole = *member.hole;
  return base;
}

}  // namespace

RunEncoder::Encoded RunEncoder::Encode(const Segment& segment,
                                       uint64_t graph_epoch) {
  AssignSlots(segment);
  BuildGraphKey(segment, slot_of_touch_, kinds_, &key_);
  Encoded encoded;
  const GraphTable::Entry entry = FindGraph(
      key_, graph_epoch,
      [&] { return BuildGraph(segment, slot_of_touch_, kinds_); }, &encoded);
  encoded.run.set_reply_metadata(segment.wants_metadata);
  FillRun(segment.mode, bindings_, segment.floats(), segment.scalar_tensors(),
          entry, &encoded);
  return encoded;
}

RunEncoder::Encoded RunEncoder::Encode(const CapturedPart& part, RunMode mode,
                                       absl::Span<const RunBinding> bindings,
                                       uint64_t graph_epoch,
                                       const PartNumbers* numbers) {
  Encoded encoded;
  const GraphTable::Entry entry =
      FindGraph(part.key, graph_epoch, [&] { return part.graph; }, &encoded);
  FillRun(mode, bindings, numbers == nullptr ? part.floats : numbers->floats,
          numbers == nullptr ? part.scalar_tensors : numbers->scalar_tensors,
          entry, &encoded);
  return encoded;
}

RunEncoder::Encoded RunEncoder::Encode(const CapturedPart& part, RunMode mode,
                                       const SizedGraph& sized, int64_t size,
                                       absl::Span<const RunBinding> bindings,
                                       uint64_t graph_epoch) {
  Encoded encoded;
  const GraphTable::Entry entry = table_->FindOrAdd(sized.key);
  FillGraph(
      sized.key, entry, graph_epoch,
      [&]() -> const srg::Graph& { return sized.graph; }, &encoded);
  encoded.run.set_size(size);
  FillRun(mode, bindings, part.floats, part.scalar_tensors, entry, &encoded);
  return encoded;
}

template <typename Build>
GraphTable::Entry RunEncoder::FindGraph(absl::string_view key,
                                        uint64_t graph_epoch, Build build,
                                        Encoded* encoded) {
  std::optional<GraphTable::Entry> entry = table_->Find(key);
  const std::optional<SizeFamilies::Member> member =
      entry.has_value() ? std::nullopt : families_.Find(key);
  if (member.has_value()) {
    entry = table_->FindOrAdd(member->family);
    encoded->run.set_size(member->size);
    FillGraph(
        member->family, *entry, graph_epoch,
        [&] { return AtSizeZero(build(), *member); }, encoded);
  } else {
    if (!entry.has_value()) entry = table_->Add(key);
    FillGraph(key, *entry, graph_epoch, build, encoded);
  }
  return *entry;
}

template <typename Build>
void RunEncoder::FillGraph(absl::string_view key,
                           const GraphTable::Entry& entry, uint64_t graph_epoch,
                           Build build, Encoded* encoded) {
  encoded->run.set_graph_id(entry.id);
  encoded->uses = entry.uses;
  const bool send = *entry.sent_epoch != graph_epoch;
  if (!entry.is_new && !send) return;
  const srg::Graph& graph = build();
  v1::Graph message = srg::ToProto(graph);
  if (send) {
    *entry.sent_epoch = graph_epoch;
    encoded->graph_to_send = {HashContent(key.data(), key.size()), message};
  }
  if (!entry.is_new) return;
  Definition& definition = encoded->definition.emplace();
  definition.message.set_graph_id(entry.id);
  *definition.message.mutable_graph() = std::move(message);
  definition.fingerprint = srg::Fingerprint(graph);
  table_->Keep(definition.message.SerializeAsString(), definition.fingerprint);
  for (const uint64_t id : table_->Unsaid()) {
    definition.message.add_forget_ids(id);
  }
}

v1::Graph RunEncoder::Describe(const Segment& segment,
                               std::vector<uint64_t>* storages) {
  AssignSlots(segment);
  if (storages != nullptr) {
    storages->clear();
    for (const RunBinding& binding : bindings_) storages->push_back(binding.id);
  }
  return srg::ToProto(BuildGraph(segment, slot_of_touch_, kinds_));
}

bool RunEncoder::ReleaseUse(RemoteStorage* storage) {
  // The order matters: once the storage is released its uses no longer grow.
  const bool dead = storage->dead();
  const bool last =
      storage->unsent_uses_.fetch_sub(1, std::memory_order_relaxed) == 1;
  const bool final = dead && last;
  storage->known_to_worker_ = !final;
  return final;
}

void RunEncoder::AssignSlots(const Segment& segment) {
  ++run_;
  kinds_.clear();
  bindings_.clear();
  slot_of_touch_.clear();
  auto creation = segment.creations().begin();
  for (size_t i = 0; i < segment.touches().size(); ++i) {
    const Touch& touch = segment.touches()[i];
    RemoteStorage* const storage = touch.storage.get();
    if (storage->slot_run_ != run_) {
      storage->slot_run_ = run_;
      storage->slot_ = static_cast<uint32_t>(bindings_.size());
      const bool created =
          creation != segment.creations().end() && creation->touch == i;
      const srg::Slot& kind = kinds_.emplace_back(
          KindOfFirstTouch(touch.access, created ? &creation->bytes : nullptr));
      // A storage that the run creates has version 0 before it, as stamped.
      bindings_.push_back(
          {.storage = storage,
           .id = storage->id(),
           .base_version = touch.base_version,
           .size_bytes = touch.size_bytes,
           .writes = created ? 1u : 0u,
           .reads = ReadsBefore(kind, touch.access),
           .created = created || (touch.access & kCreates) != 0});
      if (created) ++creation;
    }
    RunBinding& binding = bindings_[storage->slot_];
    if (ChangesVersion(touch.access)) ++binding.writes;
    ++binding.uses;
    slot_of_touch_.push_back(storage->slot_);
  }
}

void RunEncoder::FillMode(RunMode mode, v1::Run* run) {
  run->set_mode(mode.fast ? v1::EXECUTION_MODE_FAST
                          : v1::EXECUTION_MODE_STRICT);
  if (mode.switches != nullptr) {
    srg::ToProto(*mode.switches, run->mutable_switches());
  }
}

void RunEncoder::FillRun(RunMode mode, absl::Span<const RunBinding> bindings,
                         absl::Span<const double> floats,
                         absl::Span<const ScalarValue> scalar_tensors,
                         const GraphTable::Entry& graph, Encoded* encoded) {
  v1::Run* const run = &encoded->run;
  FillMode(mode, run);
  for (const ScalarValue& value : scalar_tensors) {
    run->add_scalar_tensors(value.bytes, value.size);
  }
  FindFinalSlots(bindings);
  GraphTable::RememberedRuns& remembered = *graph.remembered;
  const size_t size = bindings.size() + floats.size();
  const GraphTable::RememberedRun* before = nullptr;
  bool remember = false;
  if (remembered.runs.empty()) {
    for (const RunBinding& binding : bindings) {
      v1::Binding* const message = run->add_bindings();
      message->set_storage(binding.id);
      message->set_writes(binding.writes);
      message->set_reads(binding.reads);
      message->set_base_version(binding.base_version);
    }
    run->mutable_float_holes()->Add(floats.begin(), floats.end());
    remember = table_->Remember(graph.id, size);
    if (remember) remembered.last_place = 0;
  } else {
    const Likeness alike = FindMostAlike(bindings, remembered);
    if (alike.changed > kFewChanged)
      remember = table_->Remember(graph.id, size);
    before = &remembered.runs[alike.place];
    run->mutable_repeat()->set_place(static_cast<uint32_t>(alike.place));
    FillRepeat(bindings, *before, encoded);
    run->mutable_repeat()->set_same_final_slots(final_slots_ ==
                                                before->final_slots);
    FillChangedFloats(floats, before->floats, run);
    remembered.last_place = remember ? remembered.runs.size() - 1 : alike.place;
  }
  if (before == nullptr || final_slots_ != before->final_slots) {
    run->mutable_final_slots()->Add(final_slots_.begin(), final_slots_.end());
  }
  run->set_remember(remember);
  if (keeps_) Keep(mode, bindings, floats, graph, encoded);
  if (remembered.runs.empty()) return;
  GraphTable::RememberedRun& kept = remembered.runs[remembered.last_place];
  kept.storages.clear();
  for (const RunBinding& binding : bindings)
    kept.storages.push_back(binding.id);
  kept.final_slots = final_slots_;
  kept.floats.assign(floats.begin(), floats.end());
}

void RunEncoder::Keep(RunMode mode, absl::Span<const RunBinding> bindings,
                      absl::Span<const double> floats,
                      const GraphTable::Entry& graph, Encoded* encoded) const {
  const v1::Run& run = encoded->run;
  std::shared_ptr<const KeptRun>& last = graph.remembered->kept;
  // Most runs equal the last one, and copy nothing. 0.0 and -0.0 are not equal.
  const bool again =
      last != nullptr && last->graph == *graph.definition &&
      last->final_slots == final_slots_ && last->size == run.size() &&
      last->reply_metadata == run.reply_metadata() && last->mode == mode &&
      last->floats.size() == floats.size() &&
      (floats.empty() || std::memcmp(last->floats.data(), floats.data(),
                                     floats.size() * sizeof(double)) == 0) &&
      absl::c_equal(last->scalar_tensors, run.scalar_tensors());
  if (!again) {
    last = std::make_shared<const KeptRun>(
        KeptRun{*graph.definition,
                final_slots_,
                {floats.begin(), floats.end()},
                {run.scalar_tensors().begin(), run.scalar_tensors().end()},
                run.size(),
                run.reply_metadata(),
                mode});
  }
  encoded->kept = last;
  encoded->kept_uses.reserve(bindings.size());
  for (const RunBinding& binding : bindings) {
    const bool known = binding.storage != nullptr;
    encoded->kept_uses.push_back(
        {binding.id, binding.base_version, binding.writes, binding.reads,
         binding.size_bytes, !known && binding.base_version > 0});
  }
}

void RunEncoder::FillRepeat(absl::Span<const RunBinding> bindings,
                            const GraphTable::RememberedRun& before,
                            Encoded* encoded) {
  v1::Run* const run = &encoded->run;
  v1::Repeat* const repeat = run->mutable_repeat();
  uint64_t next_new = 0;
  uint64_t versions = 0;
  uint32_t next_slot = 0;
  uint64_t storage_before = 0;
  bool all_first_versions = true;
  for (uint32_t slot = 0; slot < bindings.size(); ++slot) {
    const RunBinding& binding = bindings[slot];
    if (binding.writes > 0) encoded->written.push_back(binding.id);
    if (binding.created) {
      if (next_new == 0) {
        next_new = binding.id;
        repeat->set_first_new_storage(next_new);
      }
      if (binding.id == next_new) {
        ++next_new;
        continue;
      }
    } else if (binding.id == before.storages[slot]) {
      versions += binding.base_version;
      continue;
    }
    repeat->add_slot_gaps(slot - next_slot);
    next_slot = slot + 1;
    repeat->add_storages(static_cast<int64_t>(binding.id - storage_before));
    storage_before = binding.id;
    repeat->add_base_versions(binding.base_version);
    all_first_versions = all_first_versions && binding.base_version == 1;
  }
  if (all_first_versions) repeat->clear_base_versions();
  repeat->set_version_sum(versions);
}

void RunEncoder::FindFinalSlots(absl::Span<const RunBinding> bindings) {
  final_slots_.clear();
  for (uint32_t slot = 0; slot < bindings.size(); ++slot) {
    const RunBinding& binding = bindings[slot];
    if (binding.storage == nullptr) {
      if (binding.dies) final_slots_.push_back(slot);
      continue;
    }
    // The order matters: once the storage is released its uses no longer grow.
    const bool dead = binding.storage->dead();
    const bool last =
        binding.storage->unsent_uses_.fetch_sub(
            binding.uses, std::memory_order_relaxed) == binding.uses;
    const bool final = dead && last;
    if (final) final_slots_.push_back(slot);
    binding.storage->known_to_worker_ = !final;
  }
}

}  // namespace djinn
