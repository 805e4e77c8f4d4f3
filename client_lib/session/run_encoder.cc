#include "client_lib/session/run_encoder.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "client_lib/session/execution_flag.h"
#include "client_lib/session/operator_table.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"

namespace djinn {
namespace {

bool IsWholeOverwrite(uint8_t access) {
  return (access & kOverwrites) != 0 && IgnoresContents(access);
}

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

RunEncoder::Encoded RunEncoder::Encode(const Segment& segment,
                                       uint64_t telling) {
  AssignSlots(segment);
  BuildKey(segment);
  const StructureTable::Entry entry = table_->FindOrAdd(key_);

  Encoded encoded;
  const bool tell = *entry.told != telling;
  if (entry.is_new || tell) {
    const srg::Structure structure = BuildStructure(segment);
    v1::Structure message = srg::ToProto(structure);
    if (tell) {
      *entry.told = telling;
      encoded.telling = {HashContent(key_.data(), key_.size()), message};
    }
    if (entry.is_new) {
      Definition& definition = encoded.definition.emplace();
      definition.message.set_structure_id(entry.id);
      *definition.message.mutable_structure() = std::move(message);
      table_->Keep(definition.message.SerializeAsString());
      for (const uint64_t id : table_->Unsaid()) {
        definition.message.add_forget_ids(id);
      }
      definition.fingerprint = srg::Fingerprint(structure);
    }
  }
  encoded.run.set_structure_id(entry.id);
  encoded.run.mutable_float_holes()->Add(segment.floats().begin(),
                                         segment.floats().end());
  for (const ScalarValue& value : segment.scalar_tensors()) {
    encoded.run.add_scalar_tensors(value.bytes, value.size);
  }
  encoded.run.set_reply_metadata(segment.wants_metadata);
  encoded.run.set_mode(fast_execution.load(std::memory_order_relaxed)
                           ? v1::EXECUTION_MODE_FAST
                           : v1::EXECUTION_MODE_STRICT);
  FillBindings(&encoded.run);
  return encoded;
}

v1::Structure RunEncoder::Describe(const Segment& segment) {
  AssignSlots(segment);
  return srg::ToProto(BuildStructure(segment));
}

bool RunEncoder::ReleaseUse(RemoteStorage* storage) {
  // In this order: once the storage is dead its uses no longer grow.
  const bool dead = storage->dead();
  const bool last =
      storage->unsent_uses_.fetch_sub(1, std::memory_order_relaxed) == 1;
  const bool final = dead && last;
  storage->known_to_worker_ = !final;
  return final;
}

void RunEncoder::AssignSlots(const Segment& segment) {
  ++run_;
  slots_.clear();
  slot_of_touch_.clear();
  auto creation = segment.creations().begin();
  for (size_t i = 0; i < segment.touches().size(); ++i) {
    const Touch& touch = segment.touches()[i];
    RemoteStorage* const storage = touch.storage.get();
    if (storage->slot_run_ != run_) {
      storage->slot_run_ = run_;
      storage->slot_ = static_cast<uint32_t>(slots_.size());
      SlotState& slot = slots_.emplace_back(
          SlotState{storage, srg::Slot{srg::Slot::Kind::kBound, 0},
                    touch.base_version, 0, 0, false});
      if (creation != segment.creations().end() && creation->touch == i) {
        slot.kind = {srg::Slot::Kind::kCreated, creation->bytes};
        slot.writes = 1;
        ++creation;
      } else if ((touch.access & kBirth) != 0) {
        slot.kind.kind = srg::Slot::Kind::kResult;
      } else if ((touch.access & kDraws) != 0) {
        slot.kind.kind = srg::Slot::Kind::kGenerator;
        slot.reads = true;
      } else {
        slot.reads = !IsWholeOverwrite(touch.access);
      }
    }
    SlotState& slot = slots_[storage->slot_];
    if (ChangesVersion(touch.access)) ++slot.writes;
    ++slot.uses;
    slot_of_touch_.push_back(storage->slot_);
  }
}

void RunEncoder::BuildKey(const Segment& segment) {
  key_.clear();
  Put(static_cast<uint32_t>(segment.calls().size()), &key_);
  for (const Segment::Mark& mark : segment.calls()) {
    Put(mark.operator_id, &key_);
    Put(mark.bytes_end, &key_);
    Put(mark.touches_end, &key_);
  }
  key_.append(segment.bytes().data(), segment.bytes().size());
  for (size_t i = 0; i < slot_of_touch_.size(); ++i) {
    Put(slot_of_touch_[i], &key_);
    Put(segment.touches()[i].access, &key_);
  }
  for (const SlotState& slot : slots_) {
    Put(slot.kind.kind, &key_);
    if (slot.kind.kind == srg::Slot::Kind::kCreated) {
      Put(slot.kind.created_bytes, &key_);
    }
  }
}

srg::Structure RunEncoder::BuildStructure(const Segment& segment) const {
  srg::Structure structure;
  for (const SlotState& slot : slots_) structure.slots.push_back(slot.kind);
  absl::flat_hash_map<uint32_t, uint32_t> operator_indices;
  std::vector<uint8_t> accesses;
  for (const Touch& touch : segment.touches()) {
    accesses.push_back(touch.access);
  }
  HoleCounters counters;
  Segment::Mark begin;
  for (const Segment::Mark& end : segment.calls()) {
    const size_t touches = end.touches_end - begin.touches_end;
    srg::Node node = DecodeCall(
        segment.bytes().substr(begin.bytes_end,
                               end.bytes_end - begin.bytes_end),
        absl::MakeConstSpan(slot_of_touch_).subspan(begin.touches_end, touches),
        absl::MakeConstSpan(accesses).subspan(begin.touches_end, touches),
        &counters);
    const auto [index, is_new] = operator_indices.try_emplace(
        end.operator_id, static_cast<uint32_t>(structure.operators.size()));
    if (is_new) {
      structure.operators.push_back(
          OperatorTable::Global().Get(end.operator_id));
    }
    node.operator_index = index->second;
    structure.nodes.push_back(std::move(node));
    begin = end;
  }
  structure.float_hole_count = counters.floats;
  structure.scalar_tensor_hole_count = counters.scalar_tensors;
  return structure;
}

void RunEncoder::FillBindings(v1::Run* run) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    const SlotState& slot = slots_[i];
    v1::Binding* const binding = run->add_bindings();
    binding->set_storage(slot.storage->id());
    binding->set_writes(slot.writes);
    binding->set_reads(slot.reads);
    // A storage born in the run has version 0 before it, as stamped.
    binding->set_base_version(slot.base_version);
    // In this order: once the storage is dead its uses no longer grow.
    const bool dead = slot.storage->dead();
    const bool last = slot.storage->unsent_uses_.fetch_sub(
                          slot.uses, std::memory_order_relaxed) == slot.uses;
    const bool final = dead && last;
    if (final) run->add_final_slots(static_cast<uint32_t>(i));
    slot.storage->known_to_worker_ = !final;
  }
}

}  // namespace djinn
