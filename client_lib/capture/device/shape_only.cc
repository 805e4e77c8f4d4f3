#include "client_lib/capture/device/shape_only.h"

#include <utility>

#include "client_lib/capture/device/backend.h"

namespace djinn::capture {
namespace {

thread_local int depth = 0;
thread_local bool innermost_structured = false;
thread_local CastWatch* innermost_watch = nullptr;

}  // namespace

ShapeOnlyScope::ShapeOnlyScope(bool structured)
    : outer_structured_(innermost_structured) {
  ++depth;
  innermost_structured = structured;
}

ShapeOnlyScope::~ShapeOnlyScope() {
  --depth;
  innermost_structured = outer_structured_;
}

bool ShapeOnlyScope::Active() { return depth > 0; }

bool ShapeOnlyScope::Structured() { return innermost_structured; }

CastWatch::CastWatch()
    : active_(CastsParts()), outer_(std::exchange(innermost_watch, this)) {}

CastWatch::~CastWatch() {
  innermost_watch = outer_;
  // The outer composite calls whatever this one calls.
  if (outer_ != nullptr && saw_cast()) outer_->saw_cast_ = true;
}

void CastWatch::NoteCall() {
  if (innermost_watch != nullptr && innermost_watch->active_ && !CastsParts()) {
    innermost_watch->saw_cast_ = true;
  }
}

}  // namespace djinn::capture
