#include "client_lib/session/recording/segment_recorder.h"

#include <algorithm>

#include "absl/base/optimization.h"
#include "client_lib/session/model/execution_flag.h"
#include "common/base/error.h"

namespace djinn {

absl::Status SegmentRecorder::Check(Call* call,
                                    const VirtualDevice* device) const {
  for (const Touch& touch : call->touches()) {
    const RemoteStorage& storage = *touch.storage.get();
    if (ABSL_PREDICT_FALSE(storage.device_.get() != device)) {
      return MakeError(absl::StatusCode::kInvalidArgument, "MIXED_DEVICES",
                       "the call names storages of two virtual devices");
    }
    if (ABSL_PREDICT_FALSE((touch.access & kCreates) != 0 &&
                           storage.created_)) {
      return MakeError(absl::StatusCode::kInternal, "CREATED_TWICE",
                       "a result's storage exists already");
    }
    if (ABSL_PREDICT_FALSE((touch.access & kDraws) != 0 && !storage.created_)) {
      return MakeError(absl::StatusCode::kFailedPrecondition,
                       "GENERATOR_NOT_SEEDED",
                       "the call draws from a generator that was not seeded");
    }
  }
  return absl::OkStatus();
}

const Segment* SegmentRecorder::Record(uint32_t lane, Call* call,
                                       SealedSegments* sealed,
                                       uint64_t thread) {
  Segment* own = OpenSegment(lane, sealed);
  const RunMode mode = CurrentRunMode();
  if (ABSL_PREDICT_FALSE(own->thread != thread || own->mode != mode)) {
    if (!own->calls().empty()) {
      Seal(own, sealed);
      Continue(lane);
      own = OpenSegment(lane, sealed);
    }
    own->thread = thread;
    own->mode = mode;
  }
  const absl::Span<Touch> touches = call->touches();
  for (size_t i = 0; i < touches.size(); ++i) {
    Touch& touch = touches[i];
    RemoteStorage& storage = *touch.storage.get();
    const bool changes = ChangesVersion(touch.access);
    Name(&storage, own, changes || !storage.created_, sealed);
    touch.base_version = storage.version_;
    touch.size_bytes = storage.size_bytes();
    if (ABSL_PREDICT_FALSE(!storage.created_)) {
      MarkCreated(&storage);
      if ((touch.access & kCreates) == 0) {
        own->AddCreation(i, storage.size_bytes());
        ++storage.version_;
      }
    }
    if (changes) ++storage.version_;
    storage.unsent_uses_.fetch_add(1, std::memory_order_relaxed);
  }
  own->Append(call);

  if (own->RepeatsItsStart()) {
    Segment* head = own;
    Seal(head, sealed);
    Continue(lane);
    Segment* tail = OpenSegment(lane, sealed);
    tail->thread = thread;
    tail->mode = mode;
    head->MoveTail(Segment::kRepeatCalls, tail);
    // Name() seals nothing here, because the conflicts of these calls were
    // resolved when they were recorded.
    for (const Touch& touch : tail->touches()) {
      Name(touch.storage.get(), tail, ChangesVersion(touch.access), sealed);
    }
    for (const Segment::Creation& creation : tail->creations()) {
      Name(tail->touches()[creation.touch].storage.get(), tail, true, sealed);
    }
    return tail;
  }
  if (own->calls().size() >= own->cap() ||
      own->bytes().size() >= kMaxSegmentBytes) {
    Seal(own, sealed);
    Continue(lane);
  }
  return own;
}

void SegmentRecorder::Continue(uint32_t lane) {
  // Threads appear and disappear. If a lane is forgotten, its next segment is a
  // short one.
  if (continued_.size() >= kMaxOpenSegments) continued_.clear();
  continued_.insert(lane);
}

void SegmentRecorder::MarkCreated(RemoteStorage* storage) {
  storage->created_ = true;
  if (storage->id_ == 0) storage->id_ = next_storage_id_++;
}

void SegmentRecorder::Name(RemoteStorage* storage, Segment* own, bool writes,
                           SealedSegments* sealed) {
  auto& uses = storage->open_uses_;
  bool named = false;
  for (size_t i = 0; i < uses.size();) {
    RemoteStorage::OpenUse& use = uses[i];
    if (use.segment != own && use.serial == use.segment->serial() &&
        (writes || use.writes)) {
      Seal(use.segment, sealed);
    }
    if (use.serial != use.segment->serial()) {
      use = uses.back();
      uses.pop_back();
      continue;
    }
    if (use.segment == own) {
      use.writes |= writes;
      named = true;
    }
    ++i;
  }
  if (!named) uses.push_back({own, own->serial(), writes});
}

void SegmentRecorder::SealLane(uint32_t lane, SealedSegments* sealed) {
  const auto found = open_.find(lane);
  if (found != open_.end()) Seal(found->second, sealed);
  // The next segment begins a new stretch, even if the last one had just
  // reached its cap.
  continued_.erase(lane);
}

void SegmentRecorder::SealUsers(RemoteStorage* storage, bool writers_only,
                                SealedSegments* sealed) {
  // Reads do not conflict with each other, so the order among users is free.
  for (const RemoteStorage::OpenUse& use : storage->open_uses_) {
    if (use.serial == use.segment->serial() && (use.writes || !writers_only)) {
      Seal(use.segment, sealed);
    }
  }
}

void SegmentRecorder::SealAll(SealedSegments* sealed) {
  std::vector<Segment*> segments;
  for (const auto& [lane, segment] : open_) segments.push_back(segment);
  std::sort(segments.begin(), segments.end(),
            [](const Segment* a, const Segment* b) {
              return a->serial() < b->serial();
            });
  for (Segment* segment : segments) Seal(segment, sealed);
  continued_.clear();
}

uint64_t SegmentRecorder::StampWrite(RemoteStorage* storage) {
  if (!storage->created_) MarkCreated(storage);
  storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
  return storage->version_++;
}

Segment* SegmentRecorder::OpenSegment(uint32_t lane, SealedSegments* sealed) {
  const auto found = open_.find(lane);
  if (ABSL_PREDICT_TRUE(found != open_.end())) return found->second;
  if (ABSL_PREDICT_FALSE(open_.size() >= kMaxOpenSegments)) {
    Segment* oldest = open_.begin()->second;
    for (const auto& [other, segment] : open_) {
      if (segment->serial() < oldest->serial()) oldest = segment;
    }
    Seal(oldest, sealed);
  }
  if (free_.empty()) {
    free_.push_back(all_.emplace_back(std::make_unique<Segment>()).get());
  }
  Segment* const segment = free_.back();
  free_.pop_back();
  open_.emplace(lane, segment);
  const bool continues = continued_.erase(lane) > 0;
  segment->Open(lane, ++last_serial_,
                continues ? Segment::kMaxCalls : kFirstCalls);
  return segment;
}

void SegmentRecorder::Seal(Segment* segment, SealedSegments* sealed) {
  open_.erase(segment->lane());
  segment->Seal();
  sealed->push_back(segment);
}

}  // namespace djinn
